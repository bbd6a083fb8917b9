package flow

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/rung-dev/rung/internal/gate/budget"
	"github.com/rung-dev/rung/internal/gate/stream"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// counter is the part of a meter that bytes need.
type counter interface {
	In(n int) error
	Out(n int) error
}

// reversed counts what is read as coming in and what is written as leaving: a connection seen from the gate outwards.
type reversed struct{ m *budget.Meter }

func (r reversed) In(n int) error  { return r.m.Out(n) }
func (r reversed) Out(n int) error { return r.m.In(n) }

// meteredConn is a sandbox's connection: what is read from it leaves, what is written to it comes in. Past a cap the
// connection ends.
type meteredConn struct {
	net.Conn
	meter counter
	over  func(error)
	once  sync.Once
}

func (c *meteredConn) count(err error) error {
	if err != nil {
		c.once.Do(func() { c.over(err) })
		stream.Abort(c.Conn)
	}
	return err
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if e := c.count(c.meter.Out(n)); e != nil {
			return 0, e
		}
	}
	return n, err
}

func (c *meteredConn) Write(p []byte) (int, error) {
	if e := c.count(c.meter.In(len(p))); e != nil {
		return 0, e
	}
	return c.Conn.Write(p)
}

// CloseWrite passes a half-close on.
func (c *meteredConn) CloseWrite() error { return stream.CloseWrite(c.Conn) }

// Abort passes a reset on.
func (c *meteredConn) Abort() { stream.Abort(c.Conn) }

// heldConn gives back what a connection took when it is closed.
type heldConn struct {
	net.Conn
	release func()
	once    sync.Once
}

func (c *heldConn) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}

// CloseWrite passes a half-close on.
func (c *heldConn) CloseWrite() error { return stream.CloseWrite(c.Conn) }

func firstByte(c net.Conn) (byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(firstTimeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	var b [1]byte
	_, err := io.ReadFull(c, b[:])
	return b[0], err
}

// What one direction holds. Towards the sandbox it is what one segment of the link surely takes, over IPv6 with all 40 bytes
// of options (RFC 9293 3.1): the stack cuts each write into segments of its own, and a rest costs a frame like a whole one.
const (
	relayBuffer = 128 << 10
	relayInward = tap.MTU - 40 - 20 - 40
)

var buffers = sync.Pool{New: func() any { b := make([]byte, relayBuffer); return &b }}

// splice copies both ways between a sandbox's connection and the outside's until both have ended or nothing has moved for
// idleTimeout. The end of one direction is passed on as such.
func splice(a, b net.Conn) {
	var wg sync.WaitGroup
	idle := time.AfterFunc(idleTimeout, func() { a.Close(); b.Close() })
	defer idle.Stop()
	copyOne := func(dst, src net.Conn, most int) {
		pooled, _ := buffers.Get().(*[]byte)
		defer buffers.Put(pooled)
		buf := (*pooled)[:most]
		for {
			n, err := src.Read(buf)
			if n > 0 {
				idle.Reset(idleTimeout)
				if _, werr := dst.Write(buf[:n]); werr != nil {
					src.Close() // nobody takes it any more
					return
				}
			}
			if err != nil {
				if err != io.EOF || stream.CloseWrite(dst) != nil {
					a.Close()
					b.Close()
				}
				return
			}
		}
	}
	wg.Go(func() { copyOne(b, a, relayBuffer) })
	wg.Go(func() { copyOne(a, b, relayInward) })
	wg.Wait()
}
