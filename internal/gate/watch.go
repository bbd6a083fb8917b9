package gate

import (
	"context"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/flow"
	"github.com/rung-dev/rung/internal/gate/secret"
	"github.com/rung-dev/rung/internal/gate/stream"
)

// grade makes a denial one of high severity when what was refused held a placeholder: in a name to look up or to open TLS
// for, whoever refused it and why.
func (s *session) grade(d *rung.NetDenial) {
	if d.Severity == "" && s.swap.Holds(d.Host, d.Request) {
		d.Severity = "high"
	}
}

// leave is dial for a session that may be waiting for secrets, or has some that must not leave by a raw connection.
func (s *session) leave(ctx context.Context, t flow.Target) (net.Conn, string, error) {
	if err := s.leases.ready(); err != nil {
		return nil, "", err
	}
	c, by, err := s.dial(ctx, t)
	if err == nil && t.Raw && !s.swap.Empty() {
		c = s.watched(c, t)
	}
	return c, by, err
}

// watched looks for placeholders in what leaves on a connection that may carry any bytes, and ends it where it finds one.
// Bytes before the last of it have left by then.
func (s *session) watched(c net.Conn, t flow.Target) net.Conn {
	return &watchedConn{Conn: c, scan: s.swap.Scan(secret.Target{Host: t.Name}, "a connection of protocol tcp"), found: func(err error) {
		s.ledger.Deny(rung.NetDenial{
			Layer: "secret", Host: t.Name, Address: t.Addr.Addr().String(), Port: int(t.Addr.Port()), Rule: t.Rule,
			Reason: err.Error(), Hint: rung.HintOf(err), Severity: "high",
		})
	}}
}

type watchedConn struct {
	net.Conn
	scan  *secret.Scanner
	found func(error)
}

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (int, error) {
	if _, err := c.scan.Write(p); err != nil {
		if secret.IsRefused(err) {
			c.found(err)
		}
		c.Conn.Close()
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite passes a half-close on.
func (c *watchedConn) CloseWrite() error { return stream.CloseWrite(c.Conn) }

// settle and late are when memory is given back after a session's end: the goroutines of its connections let go of their
// buffers soon, on a busy host less so.
const (
	settle = 200 * time.Millisecond
	late   = 3 * time.Second
)

// forgetting gives memory back for all sessions of the process, which stops it for a moment each time.
type forgetting struct{ due, dueLate atomic.Bool }

// soon has the memory that ended sessions used given back to the kernel, which clears it: copies of values that Go made
// (headers are strings, TLS and pools have buffers) are in it, and would stay until they are overwritten by chance.
func (f *forgetting) soon() {
	if f == nil {
		return
	}
	after(&f.due, settle)
	after(&f.dueLate, late)
}

func after(due *atomic.Bool, wait time.Duration) {
	if !due.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(wait, func() {
		due.Store(false)
		runtime.GC() // a pool lets go of what it has at the second collection
		debug.FreeOSMemory()
	})
}
