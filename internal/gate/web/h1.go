package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/framing"
	"github.com/rung-dev/rung/internal/gate/stream"
)

// longAgo is a deadline that has passed.
func longAgo() time.Time { return time.Unix(1, 0) }

// h1 serves HTTP/1.x until the connection's end.
func (s *server) h1(ctx context.Context, conn net.Conn) error {
	br := bufio.NewReaderSize(conn, 4<<10)
	for n := 1; n <= maxRequests; n++ {
		again, err := s.next(ctx, conn, br, n == maxRequests)
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// next reads and answers one request and says whether another may follow.
func (s *server) next(ctx context.Context, conn net.Conn, br *bufio.Reader, last bool) (again bool, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(s.idle)) // fails on a closed connection, as the read will
	if _, err := br.Peek(1); err != nil {
		return false, quiet(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(s.head))
	raw, err := framing.ReadHead(br)
	if err != nil && !framing.IsMalformed(err) {
		return false, quiet(err)
	}
	var head framing.Head
	if err == nil {
		head, err = framing.Parse(raw)
	}
	if err == nil && head.Scheme != "" && (head.Scheme == "https") != s.TLS {
		err = rung.Errorf(rung.KindInvalid, "not an acceptable HTTP request: its target is of the scheme %s", head.Scheme)
	}
	if err != nil {
		s.malformed(conn, err)
		return false, err
	}
	return s.one(ctx, conn, br, &head, last)
}

// quiet makes the ordinary ends of a connection no error.
func quiet(err error) error {
	if err == io.EOF || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// malformed answers what is no request, and ends the connection: nobody knows where the next one would begin.
func (s *server) malformed(conn net.Conn, err error) {
	w := newWriter(conn, s.idle, 1, false, true)
	defer w.release()
	no := refused("framing", "(not parsed)", err)
	no.status = http.StatusBadRequest
	s.deny(w, "", no)
	if w.finish() == nil {
		linger(conn)
	}
}

// one answers one request.
func (s *server) one(ctx context.Context, conn net.Conn, br *bufio.Reader, head *framing.Head, last bool) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWriter(conn, s.idle, head.Minor, head.Method == http.MethodHead, head.Close || last)
	defer w.release()
	r := &request{
		method: head.Method, path: head.Path, query: head.Query, force: head.ForceQuery, host: head.Host,
		header: make(http.Header, len(head.Fields)), length: head.Length, cancel: cancel,
	}
	for _, f := range head.Fields {
		r.header.Add(f.Name, f.Value)
	}
	in := &download{src: head.Body(br), conn: conn, idle: s.idle, over: !head.Chunked && head.Length <= 0}
	if head.Continue {
		in.before = w.proceed
	}
	if !in.over {
		r.body = in
	}
	w.settle = func() {
		if !in.settle(head.Continue) {
			w.close = true
		}
	}
	if head.WebSocket {
		r.socket = &socket{conn: conn, br: br, header: r.header.Clone(), writer: w}
	}
	gone := &watch{conn: conn, br: br, in: in, cancel: cancel}
	if r.socket == nil {
		gone.start()
	}
	err := s.exchange(ctx, w, r)
	gone.stop()
	if r.socket != nil && r.socket.taken {
		return false, err
	}
	whole := in.settle(head.Continue)
	if !w.begunNow() {
		return false, err
	}
	if end := w.finishUnless(err); end != nil {
		return false, end
	}
	if !whole || w.close || err != nil {
		linger(conn)
		return false, err
	}
	return true, nil
}

// begunNow says whether the final answer has begun.
func (w *writer) begunNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// finishUnless ends the answer, unless it broke off.
func (w *writer) finishUnless(err error) error {
	if errors.Is(err, errAborted) {
		_ = w.FlushError() // what there is; the connection breaks off behind it
		return err
	}
	return w.finish()
}

// linger lets the client read the answer before the connection is closed: closing with bytes unread resets it.
func linger(conn net.Conn) {
	_ = stream.CloseWrite(conn) // a failure shows in the read below
	_ = conn.SetReadDeadline(time.Now().Add(drainTimeout))
	_, _ = io.CopyN(io.Discard, conn, maxDrain) // whatever ends it, the connection is closed now
}

// download is a request's body, read by whoever sends it upstream.
type download struct {
	mu     sync.Mutex
	src    io.Reader
	conn   net.Conn
	idle   time.Duration
	before func() error // called once, before the first read
	over   bool         // the body's end was seen
	shut   bool
}

func (d *download) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return 0, io.EOF
	}
	if d.shut {
		return 0, io.ErrClosedPipe
	}
	if d.before != nil {
		if err := d.before(); err != nil {
			return 0, err
		}
		d.before = nil
	}
	_ = d.conn.SetReadDeadline(time.Now().Add(d.idle)) // fails on a closed connection, as the read will
	n, err := d.src.Read(p)
	d.over = err == io.EOF
	if err != nil {
		d.shut = true
	}
	return n, err
}

// settle makes sure that nobody reads the body any more, and says whether the connection stands behind it. A rest that
// nobody wanted is read away if it is short.
func (d *download) settle(waits bool) bool {
	if !d.mu.TryLock() {
		_ = d.conn.SetReadDeadline(longAgo()) // wakes the reader
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if d.over || d.shut {
		return d.over
	}
	d.shut = true
	if waits && d.before != nil { // the client was never told to send it; it may or may not
		return false
	}
	_ = d.conn.SetReadDeadline(time.Now().Add(drainTimeout))
	_, err := io.CopyN(io.Discard, d.src, maxDrain)
	d.over = err == io.EOF
	return d.over
}

// pending says whether the body is still being read.
func (d *download) pending() bool {
	if !d.mu.TryLock() {
		return true
	}
	defer d.mu.Unlock()
	return !d.over
}

// watchAfter is how long an exchange lasts before its client is watched.
const watchAfter = time.Second

// watch cancels an exchange when its client goes away. Most are over before it looks.
type watch struct {
	conn   net.Conn
	br     *bufio.Reader
	in     *download
	cancel context.CancelFunc

	mu    sync.Mutex
	timer *time.Timer
	over  bool
	done  chan struct{} // nil until something is being read
}

func (c *watch) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(watchAfter, c.look)
}

func (c *watch) look() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	if c.in.pending() {
		c.timer.Reset(watchAfter)
		c.mu.Unlock()
		return
	}
	c.done = make(chan struct{})
	_ = c.conn.SetReadDeadline(time.Time{}) // stop ends the read
	c.mu.Unlock()
	defer close(c.done)
	if _, err := c.br.Peek(1); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.over {
			c.cancel()
		}
	}
}

// stop returns when nothing is being read any more.
func (c *watch) stop() {
	c.mu.Lock()
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
	done := c.done
	if done != nil {
		_ = c.conn.SetReadDeadline(longAgo())
	}
	c.mu.Unlock()
	if done != nil {
		<-done
	}
}
