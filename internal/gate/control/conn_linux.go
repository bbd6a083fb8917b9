package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// maxMessage bounds a message: thousands of rules, or a lease of many secrets.
const maxMessage = 8 << 20

// Conn sends and receives messages, each as four bytes of length and JSON, files as rights of the length. Send may be called
// from several goroutines at once, Receive from one.
type Conn struct {
	conn *net.UnixConn
	mu   sync.Mutex // guards sending
}

// NewConn wraps a connected stream socket.
func NewConn(c *net.UnixConn) *Conn { return &Conn{conn: c} }

// Raw is the socket itself.
func (c *Conn) Raw() *net.UnixConn { return c.conn }

// Close closes the socket.
func (c *Conn) Close() error { return c.conn.Close() }

// Send writes one message.
func (c *Conn) Send(m any, files ...*os.File) error {
	raw, err := json.Marshal(m)
	if err != nil || len(raw) > maxMessage {
		return rung.Errorf(rung.KindInternal, "gate: message of %d bytes: %w", len(raw), err)
	}
	var rights []byte
	for _, f := range files {
		rights = append(rights, unix.UnixRights(int(f.Fd()))...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, _, err := c.conn.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), rights, nil); err != nil {
		return err
	}
	_, err = c.conn.Write(raw)
	return err
}

// Receive reads one message into m and returns the file that came with it, nil if none.
func (c *Conn) Receive(m any) (*os.File, error) {
	var head [4]byte
	file, n, err := ReceiveFile(c.conn, head[:])
	if err != nil {
		return nil, err
	}
	if n < len(head) {
		_, err = io.ReadFull(c.conn, head[n:])
	}
	size := binary.BigEndian.Uint32(head[:])
	if err == nil && size > maxMessage {
		err = rung.Errorf(rung.KindInvalid, "gate: a message of %d bytes", size)
	}
	raw := []byte(nil)
	if err == nil {
		raw = make([]byte, size)
		_, err = io.ReadFull(c.conn, raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, m)
		clear(raw) // it may have been a lease
	}
	if err != nil && file != nil {
		file.Close()
		file = nil
	}
	return file, err
}

// ReceiveFile reads at most len(text) bytes and the one file that came with them, nil if none. More than one is refused.
func ReceiveFile(conn *net.UnixConn, text []byte) (*os.File, int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, rights, flags, _, err := conn.ReadMsgUnix(text, oob)
	if err != nil {
		return nil, 0, err
	}
	if n == 0 {
		return nil, 0, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:rights])
	if err != nil {
		return nil, n, err
	}
	var file *os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return file, n, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			if file != nil {
				unix.Close(fd)
				continue
			}
			file = os.NewFile(uintptr(fd), "received")
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		if file != nil {
			file.Close()
		}
		return nil, n, errors.New("gate: more files than one")
	}
	return file, n, nil
}

// SendFile sends one byte with a file as right: what a holder does on the link.
func SendFile(conn *net.UnixConn, kind byte, f *os.File) error {
	_, _, err := conn.WriteMsgUnix([]byte{kind}, unix.UnixRights(int(f.Fd())), nil)
	return err
}
