// Package web serves one connection out of a sandbox whose requests are judged one by one: plain HTTP, or TLS that is
// opened with a certificate of the sandbox's own authority. It speaks HTTP/1.x and HTTP/2 on both sides.
//
// Nothing is passed through. A request is read strictly (package framing; net/http's server for HTTP/2), its authority is
// held against the name the connection was opened for, it is judged, and what goes upstream is a new request made of what
// was judged: that name as Host, the verdict's path, the query as it came, the end-to-end fields. Hop-by-hop fields,
// Proxy-* and X-Rung-* fields and request trailers are left behind. Fields that would make a server take the request for
// another one (X-HTTP-Method-Override, X-Original-URL, …) are refused: no rule could see through them.
//
// An answer is written anew too: without hop-by-hop fields and Alt-Svc (HTTP/3 is not judged), each piece flushed as it
// arrives, response trailers for HTTP/2 clients only. Where a secret is bound to the host, identity encoding is asked
// for, an answer in another encoding is refused, and the values are masked.
//
// WebSocket (RFC 6455, over HTTP/1.1 only) passes frame by frame without extensions. Text of the client is searched for
// placeholders; values in the other direction are blanked within one frame, not across two.
//
// Upstream connections are shared by the requests of one sandbox to one name and port, and by nobody else: a Pool is one
// sandbox's.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/secret"
	"github.com/rung-dev/rung/internal/gate/stream"
)

const (
	// headTimeout is how long a TLS handshake or a request's head may take.
	headTimeout = 20 * time.Second
	// clientIdle is how long a client may leave a connection unused, a body unsent or an answer unread.
	clientIdle = 90 * time.Second
	// upstreamIdle is how long a server may take to answer, and between two pieces of its answer: language models think.
	upstreamIdle = 10 * time.Minute
	// maxRequests is how many requests one connection carries before it is closed.
	maxRequests = 10_000
	// maxStreams is how many of them HTTP/2 may have open at once.
	maxStreams = 100
	// maxAnswerHead caps the head of an upstream's answer.
	maxAnswerHead = 256 << 10
	// maxDrain is how much of a refused request's body is read, so that the client hears the refusal.
	maxDrain = 256 << 10
	// drainTimeout bounds that.
	drainTimeout = 2 * time.Second
	// pieceSize is how much of a body is moved at once.
	pieceSize = 32 << 10
)

// Request is what is judged.
type Request struct {
	Name      string // the connection's name, which Host equals
	Port      int
	TLS       bool
	Method    string
	Path      string // as received, without the query
	Query     string // as received, without "?"
	WebSocket bool
	Header    http.Header // the end-to-end fields, placeholders not yet swapped; not to be changed
}

// Verdict is the answer.
type Verdict struct {
	Allow    bool
	Path     string // what goes upstream in the place of Request.Path
	Rule     string // the rule that allowed, or came nearest
	Layer    string // of the denial; "http" unless set
	Reason   string // of the denial, one sentence
	Hint     string // the flag or policy line that would allow it
	Severity string
	NotFound bool // of a denial: answered 404, to a client that only asks whether something exists
	// Inject, if set, changes the request last of all, just before it is sent: a bearer token, a signature. It may
	// replace the body, with its length.
	Inject func(*http.Request) error
	// Response, if set, sees the answer before anything of it is passed on, and may wrap or replace its body (with
	// ContentLength -1 unless the length stays). A KindRefused error is answered as a denial.
	Response func(*http.Response) error
}

// Judge decides. It may wait for a person; ctx ends when the client is gone.
type Judge interface {
	Request(ctx context.Context, r Request) Verdict
}

// Upstream opens connections to judged addresses. A KindRefused error is answered as a denial.
type Upstream interface {
	Dial(ctx context.Context, name string, port int) (net.Conn, error)
}

// Sink hears what happened. It must not block.
type Sink interface {
	Denied(d rung.NetDenial)
	Served(s Served)
}

// Served is one request that got an answer from upstream.
type Served struct {
	Name   string
	Port   int
	Rule   string
	Method string
	Path   string
	Status int
}

// Session is one accepted connection.
type Session struct {
	Client net.Conn
	Read   []byte // what was already read from Client
	Name   string // normal form
	Port   int
	TLS    bool // Client speaks TLS, to be opened here
	// Leaf gives the certificate for Name; needed with TLS.
	Leaf    func(name string) (*tls.Certificate, error)
	Judge   Judge
	Pool    *Pool
	Secrets *secret.Swap // may be nil
	Sink    Sink

	head, idle time.Duration // headTimeout and clientIdle, unless a test is in a hurry
}

// Serve serves the connection until it ends, and closes it. The error is only for the log: what a client should know it
// was told.
func Serve(ctx context.Context, s Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = s.Client.Close() }() // it may be closed already
	// A context cannot interrupt a read; closing can.
	stop := context.AfterFunc(ctx, func() { _ = s.Client.Close() })
	defer stop()
	conn := net.Conn(&stream.Prefixed{Conn: s.Client, Prefix: s.Read})
	s.head, s.idle = cmp.Or(s.head, headTimeout), cmp.Or(s.idle, clientIdle)
	srv := &server{Session: s, authority: hostPort(s.Name, s.Port, s.TLS)}
	if !s.TLS {
		return srv.h1(ctx, conn)
	}
	opened, err := srv.open(ctx, conn)
	if err != nil {
		return rung.Errorf(rung.KindOf(err), "open TLS of the client of %s: %w", s.Name, err)
	}
	if opened.ConnectionState().NegotiatedProtocol == "h2" {
		return srv.h2(ctx, opened)
	}
	return srv.h1(ctx, opened)
}

// server is a session being served.
type server struct {
	Session
	authority string // what Host is upstream
}

// open ends the client's TLS here, for the judged name only.
func (s *server) open(ctx context.Context, conn net.Conn) (*tls.Conn, error) {
	c := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if name := normal(h.ServerName); name != s.Name {
				return nil, rung.Errorf(rung.KindRefused, "the TLS client asks for %.64q on a connection to %s", h.ServerName, s.Name)
			}
			return s.Leaf(s.Name)
		},
		SessionTicketsDisabled: true, // keys would outlive the connection, and the sandbox is next door
	})
	ctx, cancel := context.WithTimeout(ctx, s.head)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return c, nil
}
