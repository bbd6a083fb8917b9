package control

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/rights"
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := rights.Send(c.conn, binary.BigEndian.AppendUint32(nil, uint32(len(raw))), files...); err != nil {
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

// ReceiveFile reads at most len(text) bytes and the one file that came with them, nil if none. More than one is refused, and
// the end of the stream is io.EOF.
func ReceiveFile(conn *net.UnixConn, text []byte) (*os.File, int, error) {
	files, n, err := rights.Receive(conn, text, 1)
	if len(files) == 0 {
		return nil, n, err
	}
	return files[0], n, nil
}
