package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/stack"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// served is a link that is being served.
type served struct {
	flush func() // tells the ledger what was counted and not told yet
	end   func()
}

// connect serves what the holder sent until end is called.
func (s *session) connect(kind byte, file *os.File) (served, error) {
	switch kind {
	case tap.LinkTAP, tap.LinkFrames:
		return s.serveFrames(kind, file)
	case tap.LinkListener:
		return s.serveProxy(file)
	}
	file.Close()
	return served{}, rung.Errorf(rung.KindInvalid, "a link of unknown kind %q", kind)
}

func (s *session) serveFrames(kind byte, file *os.File) (served, error) {
	if err := unix.SetNonblock(int(file.Fd()), true); err != nil {
		file.Close()
		return served{}, rung.Errorf(rung.KindInternal, "link: %w", err)
	}
	// Known to the runtime's poller only from here on: a descriptor that came by message is a blocking one to it.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	file.Close()
	if err != nil {
		return served{}, rung.Errorf(rung.KindExhausted, "link: %w", err)
	}
	file = os.NewFile(uintptr(fd), "link")
	link, err := stack.NewPacketLink(file)
	if kind == tap.LinkFrames {
		link, err = stack.NewStreamLink(file)
	}
	if err != nil {
		file.Close()
		return served{}, err
	}
	st, err := stack.New(link, handler{s})
	if err != nil {
		return served{}, err
	}
	return served{st.Flush, st.Close}, nil
}

// handler answers for one sandbox's stack.
type handler struct{ *session }

// Accept implements stack.Handler.
func (h handler) Accept(ctx context.Context, dst netip.AddrPort) error {
	layer, err := "tcp", error(nil)
	if dst.Addr() == tap.GatewayV4() || dst.Addr() == tap.GatewayV6() {
		err = errors.New("this is the gate itself: only its DNS, on port 53, answers")
	} else if err = h.leases.ready(); err != nil {
		layer = "secret"
	}
	if err != nil {
		h.ledger.Deny(rung.NetDenial{Layer: layer, Address: dst.Addr().String(), Port: int(dst.Port()), Reason: err.Error()})
		return err
	}
	return h.flow.Accept(ctx, dst)
}

// TCP implements stack.Handler.
func (h handler) TCP(ctx context.Context, c *stack.Conn) {
	defer h.survive("tcp")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(h.ctx, cancel)
	defer stop()
	h.flow.TCP(ctx, c, netip.AddrPortFrom(c.Dst.Addr().Unmap(), c.Dst.Port()))
}

// DNS implements stack.Handler.
func (h handler) DNS(ctx context.Context, query []byte, tcp bool) []byte {
	defer h.survive("dns")
	return h.dns.Answer(ctx, query, tcp)
}

// Denied implements stack.Handler.
func (h handler) Denied(d rung.NetDenial) { h.ledger.Deny(d) }

// survive keeps a fault that one sandbox's traffic brought out from ending the traffic of all others: the connection or
// question it was in is lost, and refused. What was judged already stays judged; nothing passes by it.
func (s *session) survive(layer string) {
	if r := recover(); r != nil {
		fmt.Fprintf(os.Stderr, "rung-gate: %s: fault: %v\n%s\n", s.id, r, debug.Stack())
		s.ledger.Deny(rung.NetDenial{Layer: layer, Reason: "a fault of the gate ended this; its log tells where", Severity: "high"})
	}
}

// maxProxied bounds the connections to a sandbox's proxy that are served at once; further ones wait in the socket's queue.
const maxProxied = 512

// serveProxy accepts on a socket that listens inside.
func (s *session) serveProxy(file *os.File) (served, error) {
	l, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return served{}, rung.Errorf(rung.KindInvalid, "the proxy's socket: %w", err)
	}
	slots := make(chan struct{}, maxProxied)
	go func() {
		for {
			select {
			case slots <- struct{}{}:
			case <-s.ctx.Done():
				return
			}
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors: others must close first
				<-slots
				select {
				case <-time.After(10 * time.Millisecond):
					continue
				case <-s.ctx.Done():
					return
				}
			}
			go func() {
				defer func() { <-slots }()
				defer s.survive("tcp")
				stop := context.AfterFunc(s.ctx, func() { c.Close() })
				defer stop()
				defer c.Close()
				s.flow.Proxy(s.ctx, c)
			}()
		}
	}()
	return served{func() {}, func() { l.Close() }}, nil
}
