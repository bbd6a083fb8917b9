package holder

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/rights"
)

// What the client writes on the lifeline before lines of message:
//
//	'm'                     an ordinary user's id maps are written (read by becomeMapped)
//	'o' length(4) JSON      the Order, with the lock files and the gate's link as rights of the first five bytes
//	'p' or 'c'              the go-ahead, if the order says that one comes; 'c': the control group exists; with at most one
//	                        file as right
const (
	maxOrder = 4 << 20
	maxKeep  = 4
)

// sendOrder is the client's side.
func sendOrder(conn *net.UnixConn, order Order, keep []*os.File) error {
	raw, err := json.Marshal(order)
	if err != nil || len(raw) > maxOrder || len(keep) > maxKeep {
		return rung.Errorf(rung.KindInternal, "holder order of %d bytes and %d files: %w", len(raw), len(keep), err)
	}
	head := binary.LittleEndian.AppendUint32([]byte{'o'}, uint32(len(raw)))
	if err := sendFiles(conn, head, keep); err != nil {
		return err
	}
	if _, err := conn.Write(raw); err != nil {
		return rung.Errorf(rung.KindInternal, "holder order: %w", err)
	}
	return nil
}

func sendFiles(conn *net.UnixConn, text []byte, files []*os.File) error {
	if err := rights.Send(conn, text, files...); err != nil {
		return rung.Errorf(rung.KindInternal, "holder: send: %w", err)
	}
	return nil
}

// receiveFiles reads len(text) bytes that were sent as one message, and the files with them.
func receiveFiles(conn *net.UnixConn, text []byte) ([]*os.File, error) {
	files, n, err := rights.Receive(conn, text, maxKeep)
	if err != nil || n != len(text) {
		rights.Close(files) // of a torn message
		return nil, rung.Errorf(rung.KindConflict, "holder: the client went")
	}
	return files, nil
}

// receiveOrder waits for the order; a holder that was started ahead may wait for long, and ends with its client.
func (h *held) receiveOrder() (err error) {
	conn, ok := h.life.conn.(*net.UnixConn)
	if !ok {
		return rung.Errorf(rung.KindInternal, "holder: the lifeline is not a Unix socket")
	}
	var head [5]byte
	if h.keep, err = receiveFiles(conn, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if head[0] != 'o' || size > maxOrder {
		return rung.Errorf(rung.KindInternal, "holder: not an order")
	}
	raw := make([]byte, size)
	if _, err = io.ReadFull(conn, raw); err == nil {
		err = json.Unmarshal(raw, &h.order)
	}
	if err != nil {
		return rung.Errorf(rung.KindInternal, "holder: read order: %w", err)
	}
	return nil
}

// prepared waits for the client's go-ahead, once, and returns its file.
func (h *held) prepared() (*os.File, error) {
	h.asked.Do(func() { h.ahead, h.refused = h.receiveGoAhead() })
	return h.ahead.File, h.refused
}

func (h *held) receiveGoAhead() (p Prepared, err error) {
	conn, ok := h.life.conn.(*net.UnixConn)
	if !ok || !h.order.Prepared {
		return p, nil
	}
	var b [1]byte
	files, err := receiveFiles(conn, b[:])
	if err != nil {
		return p, err
	}
	if len(files) > 1 || b[0] != 'p' && b[0] != 'c' {
		return p, rung.Errorf(rung.KindInternal, "holder: not a go-ahead")
	}
	if len(files) == 1 {
		p.File = files[0]
	}
	p.Cgroup = b[0] == 'c'
	return p, nil
}
