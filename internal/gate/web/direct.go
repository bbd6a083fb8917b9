package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rung-dev/rung"
)

// direct sends requests without a body to a peer that is known to speak HTTP/1.1. net/http's Transport has two goroutines
// for each connection and hands every request and answer from one to another; here the serving goroutine writes and reads
// itself, which is half the work of a small request. Answers are read by net/http all the same.
type direct struct {
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	idle   []*upstream // the most recently used last
	sweep  *time.Timer
	closed bool
}

// upstream is one connection.
type upstream struct {
	net.Conn
	limit io.LimitedReader // of an answer's head
	br    *bufio.Reader
	bw    *bufio.Writer
	since time.Time // when it became idle
	used  bool
}

// maxEarly caps the informational answers before the final one.
const maxEarly = 16

// suits says whether direct may send r: it is repeated once when an idle connection turns out to be closed.
func suits(r *http.Request) bool {
	return r.Body == http.NoBody && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions) &&
		len(r.Header["Upgrade"]) == 0
}

// roundTrip sends r and returns the answer's head. Its body has to be closed.
func (d *direct) roundTrip(ctx context.Context, r *http.Request, early *hints) (*http.Response, error) {
	for {
		c, err := d.get(ctx)
		if err != nil {
			return nil, err
		}
		used := c.used
		stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(longAgo()) }) // wakes whoever reads or writes
		res, err := c.exchange(r, early)
		// What a server says to an idle connection before it closes it is no answer (RFC 9110 15.5.9).
		late := err == nil && used && res.StatusCode == http.StatusRequestTimeout && res.Close
		if err == nil && !late {
			res.Body = &answerBody{ReadCloser: res.Body, d: d, c: c, stop: stop, keep: !res.Close}
			if res.Body.(*answerBody).ReadCloser == http.NoBody {
				_ = res.Body.Close() // gives the connection back
				res.Body = http.NoBody
			}
			return res, nil
		}
		stop()
		_ = c.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Nothing was answered on a connection that had been idle: the server had closed it meanwhile.
		if !late && (!used || c.limit.N != maxAnswerHead) {
			return nil, err
		}
	}
}

// exchange writes a request and reads the final answer's head.
func (c *upstream) exchange(r *http.Request, early *hints) (*http.Response, error) {
	c.limit.N = maxAnswerHead
	_ = c.SetDeadline(time.Now().Add(clientIdle)) // fails on a closed connection, as the write will
	if err := c.write(r); err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(upstreamIdle))
	for range maxEarly {
		res, err := http.ReadResponse(c.br, r)
		switch {
		case err != nil && c.limit.N == 0:
			return nil, rung.Errorf(rung.KindInvalid, "the head of the server's answer has more than %d bytes", maxAnswerHead)
		case err != nil:
			return nil, err
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, rung.Errorf(rung.KindInvalid, "the server switches protocols unasked")
		case res.StatusCode >= 200:
			c.limit.N = math.MaxInt64
			_ = c.SetDeadline(time.Time{}) // the exchange's own timer bounds the body
			return res, nil
		}
		if err := early.pass(res.StatusCode, map[string][]string(res.Header)); err != nil {
			return nil, err
		}
	}
	return nil, rung.Errorf(rung.KindInvalid, "the server sends nothing but informational answers")
}

func (c *upstream) write(r *http.Request) error {
	_, _ = c.bw.WriteString(r.Method + " " + r.URL.RequestURI() + " HTTP/1.1\r\nHost: " + r.Host + "\r\n")
	var leave map[string]bool
	if v := r.Header["User-Agent"]; len(v) == 1 && v[0] == "" { // see outgoing
		leave = map[string]bool{"User-Agent": true}
	}
	_ = r.Header.WriteSubset(c.bw, leave)
	_, _ = c.bw.WriteString("\r\n") // a bufio.Writer keeps its first error for Flush
	return c.bw.Flush()
}

// get returns an idle connection or a new one.
func (d *direct) get(ctx context.Context) (*upstream, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, rung.Errorf(rung.KindConflict, "the sandbox's network has ended")
	}
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &upstream{Conn: conn, bw: bufio.NewWriter(conn)}
	c.limit.R = conn
	c.br = bufio.NewReader(&c.limit)
	return c, nil
}

// put takes a connection back, unless more was sent on it than was asked for.
func (d *direct) put(c *upstream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) == maxIdle || c.br.Buffered() > 0 {
		_ = c.Close()
		return
	}
	c.used, c.since = true, time.Now()
	d.idle = append(d.idle, c)
	if d.sweep == nil {
		d.sweep = time.AfterFunc(idleTimeout, d.expire)
	}
}

// expire closes what has been idle for too long.
func (d *direct) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.idle) && time.Since(d.idle[n].since) >= idleTimeout {
		_ = d.idle[n].Close()
		n++
	}
	d.idle = append(d.idle[:0], d.idle[n:]...)
	d.sweep = nil
	if len(d.idle) > 0 && !d.closed {
		d.sweep = time.AfterFunc(idleTimeout, d.expire)
	}
}

func (d *direct) close(forGood bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle, d.closed = nil, d.closed || forGood
	if d.sweep != nil {
		d.sweep.Stop()
		d.sweep = nil
	}
}

// answerBody gives its connection back at its end.
type answerBody struct {
	io.ReadCloser
	d           *direct
	c           *upstream
	stop        func() bool
	keep        bool
	whole, shut bool
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || err == io.EOF
	return n, err
}

// Close is called once, by the goroutine that reads.
func (b *answerBody) Close() error {
	if b.shut {
		return nil
	}
	b.shut = true
	// A cancellation that has begun may still set a deadline: the connection is of no use then.
	if b.stop() && b.keep && (b.whole || b.ReadCloser == http.NoBody) {
		b.d.put(b.c)
		return nil
	}
	return b.c.Close()
}

// dialTLS opens a connection as the transport does, for HTTP/1.1 only.
func dialTLS(ctx context.Context, conn net.Conn, c *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, headTimeout, errors.New("the TLS handshake took too long"))
	defer cancel()
	tc := tls.Client(conn, c)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return tc, nil
}
