// Package http1 is the HTTP/1.1 server of rung-guest: net/http without the parts that a sandbox pays for at every start
// (TLS, HTTP/2, proxies; a millisecond, measured) and without anything ambiguous. See api/wire for the framing.
//
// One request at a time per connection. A handler that streams for long calls Request.Watch, which makes the client's
// departure cancel the request's context; such a connection is not used again.
package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung/api/wire"
)

// Bounds of every connection.
const (
	headTimeout = 10 * time.Second // from a request's first byte to the end of its head
	idleTimeout = 2 * time.Minute  // between requests, and between reads of a body
	maxConns    = 256

	maxDrain     = 64 << 20 // of a body that the handler did not read to its end
	drainTimeout = 10 * time.Second
)

// Handler answers one request. What it does not write is an empty 204.
type Handler func(*Response, *Request)

// Request is one request. Its Body need not be read to the end.
type Request struct {
	Method  string
	Path    string // decoded
	Query   url.Values
	Header  wire.Header
	Body    *wire.Body
	Context context.Context

	br      *bufio.Reader
	in      *reader
	cancel  context.CancelFunc
	watched bool
}

// Watch cancels the request's context when the client goes away. Call it once, after the body was read to its end.
func (r *Request) Watch() {
	r.watched = true
	r.in.within(0)
	go func() {
		r.br.Peek(1) // any byte or error: there is no pipelining after a stream
		r.cancel()
	}()
}

// Patient lifts the bound on how long the client may be silent in the middle of the body.
func (r *Request) Patient() { r.in.within(0) }

// reader reads from the connection, each read bounded by idle unless that is zero.
type reader struct {
	conn net.Conn
	idle time.Duration
}

func (r *reader) Read(p []byte) (int, error) {
	if r.idle > 0 {
		r.conn.SetReadDeadline(time.Now().Add(r.idle))
	}
	return r.conn.Read(p)
}

func (r *reader) within(idle time.Duration) {
	r.idle = idle
	r.conn.SetReadDeadline(time.Time{})
}

// Server serves connections.
type Server struct {
	Handler Handler

	mu    sync.Mutex
	conns int
}

// Serve accepts until the listener fails, and returns its error.
func (s *Server) Serve(ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		if !s.admit(1) {
			conn.Close()
			continue
		}
		go func() {
			defer s.admit(-1)
			defer conn.Close()
			s.serve(conn)
		}()
	}
}

func (s *Server) admit(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.conns >= maxConns {
		return false
	}
	s.conns += n
	return true
}

func (s *Server) serve(conn net.Conn) {
	in := &reader{conn: conn}
	br := bufio.NewReader(in)
	for s.one(in, br) {
	}
}

// one serves one request and reports whether the connection can carry another.
func (s *Server) one(in *reader, br *bufio.Reader) bool {
	conn := in.conn
	in.within(idleTimeout)
	if _, err := br.Peek(1); err != nil {
		return false
	}
	in.idle = 0
	conn.SetReadDeadline(time.Now().Add(headTimeout))
	w := &Response{conn: conn, length: -1}
	req, status := readRequest(br)
	if status != 0 {
		w.close = true
		w.Text(status, "bad request")
		return false
	}
	in.within(idleTimeout)
	req.in, req.br = in, br
	req.Context, req.cancel = context.WithCancel(context.Background())
	defer req.cancel()
	w.head = req.Method == "HEAD"
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	w.close = strings.EqualFold(req.Header.Get("Connection"), "close")
	s.Handler(w, req)
	if w.finish() != nil || req.watched {
		return false
	}
	return drain(in, req.Body) && !w.close
}

// drain reads what the handler left of the body: a client that is still sending when the connection is closed may never
// see the answer.
func drain(in *reader, body *wire.Body) bool {
	in.idle = 0
	in.conn.SetReadDeadline(time.Now().Add(drainTimeout))
	_, err := io.CopyN(io.Discard, body, maxDrain)
	return errors.Is(err, io.EOF)
}

func readRequest(br *bufio.Reader) (*Request, int) {
	start, h, err := wire.ReadHead(br)
	if err != nil {
		return nil, 400
	}
	method, rest, _ := strings.Cut(start, " ")
	target, proto, _ := strings.Cut(rest, " ")
	if proto != "HTTP/1.1" {
		return nil, 505
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(target, "/") {
		return nil, 400
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, 400
	}
	body, err := wire.NewBody(br, h)
	if err != nil {
		return nil, 400
	}
	return &Request{Method: method, Path: u.Path, Query: query, Header: h, Body: body}, 0
}
