package web

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/framing"
)

// h2 serves HTTP/2 with net/http's own server, which bounds header lists, continuations and resets (CVE-2023-44487,
// CVE-2023-45288), on this one connection.
func (s *server) h2(ctx context.Context, conn net.Conn) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	l := &lone{conn: conn, over: make(chan struct{})}
	var served atomic.Int64
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if served.Add(1) >= maxRequests {
				w.Header().Set("Connection", "close") // net/http says GOAWAY and lets open streams end
			}
			s.stream(w, r)
		}),
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ConnState:      l.state,
		ErrorLog:       log.New(io.Discard, "", 0), // it repeats what clients send
		IdleTimeout:    clientIdle,
		MaxHeaderBytes: framing.MaxHead,
		Protocols:      protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerConnection: 1 << 20,
			MaxReceiveBufferPerStream: 256 << 10, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
			WriteByteTimeout: clientIdle,
		},
	}
	err := srv.Serve(l)
	if err == io.EOF {
		return nil
	}
	return err
}

// stream answers one request.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	in, err := s.incoming(w, r)
	if err != nil {
		no := refused("framing", "(not parsed)", err)
		no.status = http.StatusBadRequest
		s.deny(w, "", no)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	in.cancel = cancel
	if err := s.exchange(ctx, w, in); err != nil {
		panic(http.ErrAbortHandler) // net/http's only way to reset a stream: it recovers this value by name
	}
}

// incoming holds what net/http has parsed against the rules that HTTP/1.x requests are read by.
func (s *server) incoming(w http.ResponseWriter, r *http.Request) (*request, error) {
	path, query, force, err := framing.Target(r.Method, r.RequestURI)
	if err != nil {
		return nil, err
	}
	if err := framing.Fields(r.Header); err != nil {
		return nil, err
	}
	if host, has := r.Header["Host"]; has && host[0] != r.Host {
		return nil, rung.Errorf(rung.KindInvalid, "not an acceptable HTTP request: its :authority and its Host differ")
	}
	in := &request{
		method: r.Method, path: path, query: query, force: force, host: r.Host,
		header: r.Header, length: r.ContentLength, two: true,
	}
	if r.ContentLength != 0 {
		in.body = &streamBody{r.Body, http.NewResponseController(w)}
	}
	return in, nil
}

// streamBody gives each read its time.
type streamBody struct {
	io.Reader
	c *http.ResponseController
}

func (b *streamBody) Read(p []byte) (int, error) {
	_ = b.c.SetReadDeadline(time.Now().Add(clientIdle)) // fails on a stream that is gone, as the read will
	n, err := b.Reader.Read(p)
	if err != nil {
		_ = b.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// lone is a listener for one connection, open until that is closed.
type lone struct {
	conn net.Conn
	once sync.Once
	end  sync.Once
	over chan struct{}
}

func (l *lone) Accept() (conn net.Conn, err error) {
	l.once.Do(func() { conn = l.conn })
	if conn != nil {
		return conn, nil
	}
	<-l.over
	return nil, io.EOF
}

func (l *lone) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		_ = l.Close() // never fails
	}
}

func (l *lone) Close() error {
	l.end.Do(func() { close(l.over) })
	return nil
}

func (l *lone) Addr() net.Addr { return l.conn.LocalAddr() }
