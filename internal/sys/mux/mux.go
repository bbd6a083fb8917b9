// Package mux carries many connections over one byte stream: the control channel between a sandbox's holder and the
// rung-guest inside. It is a thin wrapper over yamux with the roles fixed: only the holder opens connections, only the
// guest accepts them.
//
// The guest is hostile to the holder. yamux was not written for that (a peer that pings and never reads makes it start a
// goroutine per ping, for one), so the holder's session looks at every frame header before yamux does and ends the session
// at the first frame that a well-behaved guest never sends. What is left is bounded: maxStreams connections of one window
// each.
package mux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// maxStreams caps the open connections of a session, on both sides.
	maxStreams = 128
	// window is how much a peer may send on one connection ahead of its reader. It is yamux's smallest.
	window = 256 << 10
	// readStep is how much is read, and allocated, at once.
	readStep = 32 << 10
	// closeTimeout is how long a connection that only one side has closed is remembered.
	closeTimeout = 10 * time.Second
	// writeTimeout ends a write when the other process has not read from the channel at all for so long. It is generous
	// because a paused or starved sandbox is not an error.
	writeTimeout = 60 * time.Second
)

// ErrViolation is wrapped by the error of a session that ended because the peer broke the protocol.
var ErrViolation = errors.New("the guest broke the control protocol")

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = maxStreams
	c.EnableKeepAlive = false // both ends are on one machine: the channel's end is the other side's end
	c.ConnectionWriteTimeout = writeTimeout
	c.MaxStreamWindowSize = window
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = closeTimeout
	c.LogOutput = io.Discard
	return c
}

// Session is the holder's side. All methods may be called from several goroutines at once.
type Session struct {
	y     *yamux.Session
	guard *guard
	done  chan struct{}
}

// Open starts the holder's side on conn, which the session owns from then on.
func Open(conn io.ReadWriteCloser) (*Session, error) {
	g := &guard{joiner: joiner{conn: conn}, in: bufio.NewReaderSize(conn, readStep)}
	y, err := yamux.Client(g, config())
	if err != nil {
		return nil, fmt.Errorf("mux: %w", err)
	}
	s := &Session{y: y, guard: g, done: make(chan struct{})}
	go func() {
		<-y.CloseChan()
		g.fail(fmt.Errorf("%w: more than was allowed, or in the wrong order", ErrViolation)) // what is left is yamux's own verdict
		close(s.done)
	}()
	return s, nil
}

// Dial opens a connection to the guest. It does not wait for the guest: a guest that never answers shows on the first
// read, which the caller bounds. It fails when maxStreams are open.
func (s *Session) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.y.NumStreams() >= maxStreams {
		return nil, fmt.Errorf("mux: %d connections to the guest are open", maxStreams)
	}
	s.guard.opened.Add(1) // before the id is on the wire, or the guest's answer could come first
	type result struct {
		conn net.Conn
		err  error
	}
	opened := make(chan result, 1)
	go func() { // yamux takes no context, and blocks for writeTimeout when the guest does not read
		conn, err := s.y.Open()
		opened <- result{conn, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, s.explain(r.err)
		}
		return r.conn, nil
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				r.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// Done is closed when the session has ended, for whatever reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session ended: nil while it lives and after Close, io.EOF when the guest went away, an error that wraps
// ErrViolation when it broke the protocol.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.guard.reason()
	default:
		return nil
	}
}

// Close ends the session and all its connections.
func (s *Session) Close() error {
	s.guard.fail(nil)
	return s.y.Close()
}

func (s *Session) explain(err error) error {
	if why := s.guard.reason(); why != nil {
		err = why
	}
	return fmt.Errorf("mux: %w", err)
}

// Listen starts the guest's side on conn, which the listener owns from then on. Accept returns io.EOF-like errors once the
// channel has ended.
func Listen(conn io.ReadWriteCloser) (net.Listener, error) {
	y, err := yamux.Server(&joiner{conn: conn}, config())
	if err != nil {
		return nil, fmt.Errorf("mux: %w", err)
	}
	return listener{y}, nil
}

type listener struct{ *yamux.Session }

func (l listener) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "mux" }
func (addr) String() string  { return "control" }

// joiner turns yamux's two writes per data frame into one, which halves the system calls and wakes the reader once.
// yamux writes from one goroutine, and always the body right after the header of a data frame with a length.
type joiner struct {
	conn io.ReadWriteCloser
	buf  []byte
}

func (j *joiner) Read(p []byte) (int, error) { return j.conn.Read(p) }
func (j *joiner) Close() error               { return j.conn.Close() }

func (j *joiner) Write(p []byte) (int, error) {
	if len(j.buf) == 0 && len(p) == headerSize && header(p).kind() == typeData && header(p).length() > 0 {
		j.buf = append(j.buf, p...)
		return len(p), nil
	}
	if len(j.buf) == 0 {
		return j.conn.Write(p)
	}
	j.buf = append(j.buf, p...)
	n, err := j.conn.Write(j.buf)
	j.buf = j.buf[:0]
	if cap(j.buf) > window {
		j.buf = nil
	}
	return min(max(n-headerSize, 0), len(p)), err
}

// guard is the connection as the holder's yamux sees it: what the guest sends is checked frame by frame, and a frame is
// passed on when it is complete. yamux holds a stream's lock while it waits for the rest of a frame, so a guest that
// announces data and never sends it would otherwise block that stream's readers past every deadline.
type guard struct {
	joiner
	opened atomic.Uint32 // connections dialled so far; their ids are 1, 3, 5, …

	in    *bufio.Reader // read by one goroutine only, as is what follows
	frame []byte        // the last complete frame
	ready []byte        // what is left of it

	mu  sync.Mutex
	why error
	set bool
}

func (g *guard) Write(p []byte) (int, error) {
	n, err := g.joiner.Write(p)
	if err != nil {
		g.fail(err)
	}
	return n, err
}

func (g *guard) Read(p []byte) (int, error) {
	if len(g.ready) == 0 {
		if err := g.next(); err != nil {
			g.fail(err)
			return 0, err
		}
	}
	n := copy(p, g.ready)
	g.ready = g.ready[n:]
	return n, nil
}

func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.set {
		g.set, g.why = true, err
	}
}

func (g *guard) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// next reads one frame. Its buffer grows with what has arrived, up to a window.
func (g *guard) next() error {
	var h header
	if _, err := io.ReadFull(g.in, h[:]); err != nil {
		return err
	}
	if err := g.judge(h); err != nil {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	g.frame = append(g.frame[:0], h[:]...)
	for left := h.body(); left > 0; {
		n := min(left, readStep)
		from := len(g.frame)
		g.frame = slices.Grow(g.frame, n)[:from+n]
		if _, err := io.ReadFull(g.in, g.frame[from:]); err != nil {
			return io.ErrUnexpectedEOF
		}
		left -= n
	}
	g.ready = g.frame
	return nil
}

// judge looks at one header. A rung-guest sends data and window updates on connections that were opened to it, nothing else:
// it opens none, never pings, never says goodbye.
func (g *guard) judge(h header) error {
	switch id := h.stream(); {
	case h[0] != 0:
		return fmt.Errorf("version %d", h[0])
	case h.kind() > typeWindow:
		return fmt.Errorf("frame type %d", h.kind())
	case h.flags()&^(flagACK|flagFIN|flagRST) != 0:
		return fmt.Errorf("flags %#x", h.flags())
	case id%2 == 0 || uint64(id) >= 2*uint64(g.opened.Load()):
		return fmt.Errorf("connection %d was never opened", id)
	case h.length() > window:
		return fmt.Errorf("length %d", h.length())
	}
	return nil
}
