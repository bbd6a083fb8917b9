package resolve

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
)

const (
	// MaxDials is how many addresses of one name are tried.
	MaxDials = 8
	// Stagger is how long one address has a head start over the next (RFC 8305, connection attempt delay).
	Stagger = 250 * time.Millisecond
	// DialTimeout is the Dialer's when none is set.
	DialTimeout = 10 * time.Second
)

// Dialer connects to addresses and never to names.
type Dialer struct {
	// Judge is asked about each address right before its connect, with the address that the kernel is given.
	Judge   func(netip.AddrPort) error
	Timeout time.Duration // of all attempts together
}

// Dial connects to the first of the addresses that answers, and says which.
func (d *Dialer) Dial(ctx context.Context, addrs ...netip.AddrPort) (net.Conn, netip.AddrPort, error) {
	if len(addrs) == 0 {
		return nil, netip.AddrPort{}, rung.Errorf(rung.KindInvalid, "no address to connect to")
	}
	addrs = addrs[:min(len(addrs), MaxDials)]
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = DialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Room for every result: an attempt that comes too late finds it and ends.
	results := make(chan attempt, len(addrs))
	started, failed := 0, 0
	next := time.NewTimer(0)
	defer next.Stop()
	var first error
	for failed < len(addrs) {
		select {
		case <-next.C:
			if started < len(addrs) {
				go d.try(ctx, addrs[started], results)
				started++
				next.Reset(Stagger)
			}
		case r := <-results:
			if r.err == nil {
				cancel()
				go discard(results, started-failed-1)
				return r.conn, r.addr, nil
			}
			if first == nil {
				first = r.err
			}
			failed++
			next.Reset(0)
		}
	}
	return nil, netip.AddrPort{}, first
}

type attempt struct {
	conn net.Conn
	addr netip.AddrPort
	err  error
}

func (d *Dialer) try(ctx context.Context, to netip.AddrPort, results chan<- attempt) {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	var refused error
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4},
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			refused = d.check(to, address)
			return refused
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if refused != nil {
		err = refused // without the dialer's wrapping: it has kind and hint
	} else if err != nil {
		err = rung.Errorf(rung.KindUnavailable, "connect: %w", err)
	}
	results <- attempt{conn: conn, addr: to, err: err}
}

// check sees what the kernel will be told.
func (d *Dialer) check(want netip.AddrPort, address string) error {
	got, err := netip.ParseAddrPort(address)
	if err != nil {
		return rung.Errorf(rung.KindInternal, "connect to %q: %w", address, err)
	}
	got = netip.AddrPortFrom(got.Addr().Unmap(), got.Port())
	if got != want {
		return rung.Errorf(rung.KindRefused, "connect to %s instead of %s", got, want)
	}
	if d.Judge == nil {
		return rung.Errorf(rung.KindInternal, "connect to %s: nobody judges it", got)
	}
	return d.Judge(got)
}

// discard closes the connections of attempts that came second. Each ends by the context that was cancelled.
func discard(results <-chan attempt, n int) {
	for range n {
		if r := <-results; r.conn != nil {
			_ = r.conn.Close() // nothing was sent on it
		}
	}
}
