package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/authority"
	"github.com/rung-dev/rung/internal/gate/secret"
)

const name = "api.example"

// patience bounds what a test waits for.
const patience = 10 * time.Second

// judge is a Judge of one function; nil allows everything as it is.
type judge func(context.Context, Request) Verdict

func (j judge) Request(ctx context.Context, r Request) Verdict {
	if j == nil {
		return Verdict{Allow: true, Path: r.Path, Rule: "test"}
	}
	return j(ctx, r)
}

// dialer is an Upstream that leads to one address, or nowhere.
type dialer struct {
	to    string
	err   error
	mu    sync.Mutex
	dials []string
}

func (d *dialer) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	d.mu.Lock()
	d.dials = append(d.dials, name+":"+strconv.Itoa(port))
	d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	var n net.Dialer
	return n.DialContext(ctx, "tcp", d.to)
}

// events is a Sink that keeps everything.
type events struct {
	mu     sync.Mutex
	denied []rung.NetDenial
	served []Served
}

func (e *events) Denied(d rung.NetDenial) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.denied = append(e.denied, d)
}

func (e *events) Served(s Served) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.served = append(e.served, s)
}

func (e *events) denials() []rung.NetDenial {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]rung.NetDenial(nil), e.denied...)
}

func (e *events) answers() []Served {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Served(nil), e.served...)
}

// gate is a listener whose connections are served as those of one name.
type gate struct {
	session Session
	dialer  *dialer
	ca      *authority.CA
	events  *events
	addr    string
	ended   sync.WaitGroup
}

// options of a gate.
type options struct {
	tls     bool
	port    int
	judge   judge
	secrets *secret.Swap
	roots   *x509.CertPool
	dialErr error
}

func newGate(t testing.TB, upstream string, o options) *gate {
	t.Helper()
	ca, err := authority.New("test")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.port == 0 {
		o.port = 80
		if o.tls {
			o.port = 443
		}
	}
	g := &gate{dialer: &dialer{to: upstream, err: o.dialErr}, ca: ca, events: &events{}, addr: l.Addr().String()}
	pool := NewPool(g.dialer, o.roots)
	g.session = Session{Name: name, Port: o.port, TLS: o.tls, Leaf: ca.Leaf, Judge: o.judge, Pool: pool, Secrets: o.secrets, Sink: g.events}
	ctx, cancel := context.WithCancel(context.Background())
	g.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := g.session
			s.Client = c
			g.ended.Go(func() { _ = Serve(ctx, s) }) // a client is told what matters
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		pool.Close()
		g.ended.Wait()
	})
	return g
}

// roots trusts the sandbox's authority.
func (g *gate) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(g.ca.Certificate())
	return p
}

// client goes through the gate whatever the URL says.
func (g *gate) client(t testing.TB, h2 bool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(!h2)
	p.SetHTTP2(h2)
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", g.addr)
		},
		TLSClientConfig: &tls.Config{RootCAs: g.roots()}, Protocols: p, DisableCompression: true, MaxIdleConnsPerHost: 200,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (g *gate) url(path string) string {
	if g.session.TLS {
		return "https://" + name + path
	}
	return "http://" + name + path
}

// origin is an upstream with a certificate for name.
func origin(t testing.TB, tlsToo, h2 bool, h http.HandlerFunc) (addr string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	roots = x509.NewCertPool()
	if !tlsToo {
		s.Start()
	} else {
		ca, err := authority.New("origin")
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := ca.Leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
		s.EnableHTTP2 = h2
		s.StartTLS()
		roots.AddCert(ca.Certificate())
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), roots
}

// recorder is an upstream that keeps the raw bytes of each connection and answers each with one fixed text per request
// head it sees.
type recorder struct {
	mu   sync.Mutex
	raw  bytes.Buffer
	addr string
	// hangUp closes a connection behind the first answer, or behind the first bytes when none is due.
	hangUp atomic.Bool
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// record answers once the bytes end as a request that was received whole does.
func record(t testing.TB, answer string, whole func([]byte) bool) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return recordOn(t, l, answer, whole)
}

func recordOn(t testing.TB, l net.Listener, answer string, whole func([]byte) bool) *recorder {
	r := &recorder{addr: l.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() { r.serve(c, answer, whole) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return r
}

func (r *recorder) serve(c net.Conn, answer string, whole func([]byte) bool) {
	defer func() { _ = c.Close() }()
	var mine []byte
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		mine = append(mine, buf[:n]...)
		r.mu.Lock()
		r.raw.Write(buf[:n])
		r.mu.Unlock()
		if whole(mine) {
			_, _ = io.WriteString(c, answer)
			mine = nil
		}
		if err != nil || r.hangUp.Load() {
			return
		}
	}
}

func (r *recorder) bytes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.String()
}

// headOnly is a request without a body.
func headOnly(b []byte) bool { return bytes.HasSuffix(b, []byte("\r\n\r\n")) }

// raw sends bytes to the gate and returns the answers, as many as can be read until the connection ends or goes quiet.
func (g *gate) raw(t testing.TB, text string, answers int) []*http.Response {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	var out []*http.Response
	for range answers {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				return out
			}
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
		out = append(out, res)
		if res.Close {
			rest, _ := io.ReadAll(br)
			if len(rest) > 0 {
				t.Errorf("%q follows the last answer", rest)
			}
			break
		}
	}
	return out
}

func read(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return string(b)
}

func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

// tlsRecorder is an HTTP/1.1 upstream behind TLS that keeps the raw bytes it decrypts.
type tlsRecorder struct {
	*recorder
	roots *x509.CertPool
}

func recordTLS(t *testing.T) tlsRecorder {
	t.Helper()
	ca, err := authority.New("origin")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*leaf}})
	if err != nil {
		t.Fatal(err)
	}
	return tlsRecorder{recordOn(t, l, okAnswer, func(b []byte) bool { return len(heads(t, string(b))) > 0 }), roots}
}
