package main

import (
	"context"
	"net"
	"os"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/lease"
)

// leaseFD is a connection to the gate's socket.
const leaseFD = 3

// leaseCmd is for `rung run`: a request on standard input, values to leaseFD, the answer on standard output.
type leaseCmd struct{}

// Run implements runner. A failure is told on standard output too, for a program: its kind and hint would be lost in text.
func (c *leaseCmd) Run(ctx context.Context, a *app) error {
	err := c.grant(ctx, a)
	if err != nil {
		_ = a.json(map[string]any{"failed": rung.Fail(err)}) // the exit code tells as well
	}
	return err
}

func (*leaseCmd) grant(ctx context.Context, a *app) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	q, err := lease.Parse(a.in)
	if err != nil {
		return err
	}
	conn, err := gateConn()
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := lease.Grant(ctx, a.state, q, conn)
	if err != nil {
		return err
	}
	return a.json(answer)
}

// gateConn takes the inherited socket, and nothing that would keep what is written to it.
func gateConn() (*net.UnixConn, error) {
	f := os.NewFile(leaseFD, "gate")
	if f == nil {
		return nil, errNoGate
	}
	defer f.Close() // FileConn has a copy of its own
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, errNoGate
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, errNoGate
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errNoGate
	}
	return conn, nil
}

var errNoGate = rung.Errorf(rung.KindInvalid, "descriptor %d is no connection to a gate on a Unix socket", leaseFD).
	WithHint("rung run asks for leases; there is no other use of this command")
