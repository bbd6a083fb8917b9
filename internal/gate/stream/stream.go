// Package stream is what the gate's packages share about connections: putting back what was read of one, ending half of one,
// and ending one by a reset.
package stream

import (
	"errors"
	"net"
)

// Prefixed is a connection of which Prefix was read already and is read again first.
type Prefixed struct {
	net.Conn
	Prefix []byte
}

// Read implements net.Conn.
func (c *Prefixed) Read(p []byte) (int, error) {
	if len(c.Prefix) > 0 {
		n := copy(p, c.Prefix)
		c.Prefix = c.Prefix[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite passes a half-close on.
func (c *Prefixed) CloseWrite() error { return CloseWrite(c.Conn) }

// Abort passes a reset on.
func (c *Prefixed) Abort() { Abort(c.Conn) }

// CloseWrite says that nothing more will be sent; the other side may go on. errors.ErrUnsupported where a connection has no
// halves, which is then left as it is.
func CloseWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Aborter is a connection that can be ended at once, so that its other side sees an error and not an orderly end. What wraps
// a connection passes it on.
type Aborter interface{ Abort() }

// Abort ends a connection by a reset where it can: its client learns at once and sends nothing again.
func Abort(c net.Conn) {
	switch c := c.(type) {
	case Aborter:
		c.Abort()
	case interface{ SetLinger(sec int) error }: // TCP of the host's: closing without lingering resets
		_ = c.SetLinger(0)
	}
	c.Close()
}
