package web

import (
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rung-dev/rung"
)

const (
	// maxPeers caps the names and ports with idle connections; the least recently used one's are closed.
	maxPeers = 128
	// maxIdle is how many idle connections are kept for one of them, for idleTimeout.
	maxIdle     = 128
	idleTimeout = 30 * time.Second
	// maxSessions is how many TLS sessions are kept for one of them, to resume.
	maxSessions = 8
)

// Pool holds the upstream connections of one sandbox.
type Pool struct {
	up    Upstream
	roots *x509.CertPool

	mu     sync.Mutex
	closed bool
	peers  map[peer]*list.Element
	recent *list.List // of *link
}

// peer is whom connections lead to and how.
type peer struct {
	name string
	port int
	tls  bool
	h1   bool // HTTP/1.1 only: an upgrade needs it
}

// link is the way to one peer.
type link struct {
	peer
	transport *http.Transport
	direct    *direct
	one       atomic.Bool // the peer was seen to speak HTTP/1.x
}

// roundTrip sends a request and returns the head of its answer.
func (l *link) roundTrip(ctx context.Context, r *http.Request, early *hints) (*http.Response, error) {
	if l.one.Load() && suits(r) {
		return l.direct.roundTrip(ctx, r, early)
	}
	res, err := l.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, early.trace())))
	if err == nil {
		l.one.Store(res.ProtoMajor == 1)
	}
	return res, err
}

func (l *link) close(forGood bool) {
	l.transport.CloseIdleConnections()
	l.direct.close(forGood)
}

// NewPool makes the pool of one sandbox. roots verify upstream certificates; nil means the host's.
func NewPool(up Upstream, roots *x509.CertPool) *Pool {
	return &Pool{up: up, roots: roots, peers: map[peer]*list.Element{}, recent: list.New()}
}

// Close closes what is idle; connections in use end with their requests.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for e := p.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*link).close(true)
	}
	clear(p.peers)
	p.recent.Init()
}

func (p *Pool) link(to peer) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, rung.Errorf(rung.KindConflict, "the sandbox's network has ended")
	}
	if e, ok := p.peers[to]; ok {
		p.recent.MoveToFront(e)
		return e.Value.(*link), nil
	}
	l := p.newLink(to)
	p.peers[to] = p.recent.PushFront(l)
	if p.recent.Len() > maxPeers {
		oldest := p.recent.Remove(p.recent.Back()).(*link)
		delete(p.peers, oldest.peer)
		oldest.close(false) // a request under way may still use it
	}
	return l, nil
}

func (p *Pool) newLink(to peer) *link {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(to.tls && !to.h1)
	// The name and port are the judged ones, whatever a request says.
	dial := func(ctx context.Context) (net.Conn, error) {
		c, err := p.up.Dial(ctx, to.name, to.port)
		if err != nil {
			return nil, err
		}
		return patient{c}, nil
	}
	secure := &tls.Config{
		RootCAs: p.roots, ServerName: to.name, MinVersion: tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(maxSessions),
	}
	l := &link{peer: to, direct: &direct{dial: dial}}
	l.one.Store(!to.tls) // HTTP/2 is only ever chosen by ALPN
	if to.tls {
		one := secure.Clone()
		one.NextProtos = []string{"http/1.1"}
		l.direct.dial = func(ctx context.Context) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return dialTLS(ctx, c, one)
		}
	}
	l.transport = &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		TLSClientConfig:        secure,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: clientIdle},
		DisableCompression:     true, // what the client asked for is what is asked for
		TLSHandshakeTimeout:    headTimeout,
		ResponseHeaderTimeout:  upstreamIdle,
		MaxResponseHeaderBytes: maxAnswerHead,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
	}
	return l
}

// failure says what went wrong upstream, in words for the client.
func failure(err error) (status int, code, reason string) {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &verify):
		return http.StatusBadGateway, "upstream-certificate", "the server's certificate is not acceptable: " + verify.Err.Error()
	case errors.As(err, &record), errors.As(err, &alert):
		return http.StatusBadGateway, "upstream-tls", "no TLS connection to the server: " + err.Error()
	case errors.As(err, &dns):
		return http.StatusBadGateway, "upstream-name", "the server's name does not resolve: " + err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), rung.KindOf(err) == rung.KindTimeout:
		return http.StatusGatewayTimeout, "upstream-timeout", "the server did not answer in time: " + err.Error()
	}
	return http.StatusBadGateway, "upstream", "no answer from the server: " + err.Error()
}

// patient is a connection that is given up when the other end does not read.
type patient struct{ net.Conn }

func (p patient) Write(b []byte) (int, error) {
	_ = p.SetWriteDeadline(time.Now().Add(clientIdle)) // fails on a closed connection, as the write will
	return p.Conn.Write(b)
}

// RoundTrip sends a request of the gate's own over the pool's connections, to a name that was judged. The caller closes the
// answer's body. Redirects are not followed.
func (p *Pool) RoundTrip(req *http.Request, name string, port int, secure bool) (*http.Response, error) {
	l, err := p.link(peer{name: name, port: port, tls: secure})
	if err != nil {
		return nil, err
	}
	return l.transport.RoundTrip(req)
}
