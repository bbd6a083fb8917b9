package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/framing"
	"github.com/rung-dev/rung/internal/gate/secret"
)

// request is one request as either protocol's reader leaves it.
type request struct {
	method, path, query string
	force               bool // a "?" was there
	host                string
	header              http.Header
	body                io.Reader          // nil without one
	length              int64              // -1 when it is not known
	two                 bool               // it came by HTTP/2
	cancel              context.CancelFunc // of the context it is served in
	socket              *socket            // the connection, when an upgrade to websocket is asked for
}

func (r *request) line() string { return r.method + " " + r.path }

// errAborted says that an answer was begun and cannot be finished: the client has to see it break off.
var errAborted = errors.New("the answer broke off")

// exchange judges one request and answers it. An error means that the connection (HTTP/1.1) or stream (HTTP/2) has to
// end here.
func (s *server) exchange(ctx context.Context, w http.ResponseWriter, r *request) error {
	accept := r.header.Get("Accept")
	verdict, no := s.judge(ctx, r)
	if no != nil {
		if no.Severity == "" && s.carries(r) { // it did not leave, and its owner should know that it was to
			no.Severity = "high"
		}
		s.deny(w, accept, *no)
		return nil
	}
	parts := &secret.Parts{Header: r.header, Path: verdict.Path, Query: r.query}
	target := secret.Target{Host: s.Name, TLS: s.TLS}
	if err := s.Secrets.Request(target, parts); err != nil {
		s.deny(w, accept, s.leaks(r, verdict.Rule, err))
		return nil
	}
	body := &upload{}
	out, err := s.outgoing(r, &verdict, parts, body, target)
	if err != nil {
		s.deny(w, accept, stopped("request", r.line(), verdict.Rule, err))
		return nil
	}
	link, err := s.Pool.link(peer{s.Name, s.Port, s.TLS, r.socket != nil})
	if err != nil {
		return err
	}
	early := &hints{w: w, s: s}
	res, err := link.roundTrip(ctx, out, early)
	early.end()
	if err != nil {
		return s.failed(ctx, w, r, verdict.Rule, body, err)
	}
	received := res.Body
	defer func() { _, _ = res.Body.Close(), received.Close() }() // a hook may have wrapped it; what is left is not wanted
	// A server that stops in the middle of its answer is given up.
	idle := time.AfterFunc(upstreamIdle, r.cancel)
	defer idle.Stop()
	return s.answer(w, r, &verdict, res, body, idle)
}

// judge asks everything that can be asked before the secrets are touched.
func (s *server) judge(ctx context.Context, r *request) (Verdict, *refusal) {
	if !s.mine(r.host) {
		if err := s.Secrets.Name(r.host); err != nil {
			no := s.leaks(r, "", err)
			return Verdict{}, &no
		}
		return Verdict{}, &refusal{status: http.StatusMisdirectedRequest, code: "host", NetDenial: rung.NetDenial{
			Request: r.line(),
			Reason:  "the request's Host is " + shown(r.host) + ", and the connection was opened to " + s.authority,
			Hint:    "open a connection to that host by its name; what it allows is asked then",
		}}
	}
	if r.method == "TRACE" || r.method == "TRACK" {
		no := refused("method", r.line(), rung.Errorf(rung.KindRefused, "%s sends the request back, with what the gate put into it", r.method))
		return Verdict{}, &no
	}
	if err := endToEnd(r.header, r.two); err != nil {
		no := refused("field", r.line(), err)
		return Verdict{}, &no
	}
	v := s.Judge.Request(ctx, Request{
		Name: s.Name, Port: s.Port, TLS: s.TLS, Method: r.method, Path: r.path, Query: r.query,
		WebSocket: r.socket != nil, Header: r.header,
	})
	if v.Allow {
		return v, nil
	}
	no := refusal{status: http.StatusForbidden, code: v.Rule, NetDenial: rung.NetDenial{
		Layer: v.Layer, Request: r.line(), Rule: v.Rule, Reason: v.Reason, Hint: v.Hint, Severity: v.Severity,
	}}
	if v.NotFound {
		no.status = http.StatusNotFound
	}
	if v.Path != "" {
		no.Request = r.method + " " + v.Path
	}
	if no.code == "" {
		no.code = "policy"
	}
	return v, &no
}

// leaks is the refusal of a request with a placeholder in the wrong place.
func (s *server) leaks(r *request, rule string, err error) refusal {
	no := refused("secret", r.line(), err)
	no.Layer, no.Rule = "secret", rule
	if secret.IsRefused(err) {
		no.Severity = "high"
	}
	return no
}

// carries is whether the head of a request has a placeholder anywhere.
func (s *server) carries(r *request) bool {
	if s.Secrets.Empty() {
		return false
	}
	texts := []string{r.host, r.path, r.query}
	for name, values := range r.header {
		texts = append(append(texts, name), values...)
	}
	return s.Secrets.Holds(texts...)
}

// outgoing makes the request that goes upstream. Nothing of what came in is in it but what was judged.
func (s *server) outgoing(r *request, v *Verdict, parts *secret.Parts, body *upload, target secret.Target) (*http.Request, error) {
	u := &url.URL{Scheme: "http", Host: s.authority, Opaque: v.Path, RawQuery: parts.Query, ForceQuery: r.force}
	if s.TLS {
		u.Scheme = "https"
	}
	want := v.Path
	if r.force {
		want += "?" + parts.Query
	}
	if strings.HasPrefix(v.Path, "//") || v.Path == "*" { // Opaque would make a URL of it
		u.Opaque, u.Path = "", v.Path
	}
	if path, _, _, err := framing.Target(r.method, want); err != nil || path != v.Path || u.RequestURI() != want {
		return nil, rung.Errorf(rung.KindRefused, "the path %.64q cannot be sent as it was judged", v.Path)
	}
	out := &http.Request{
		Method: r.method, URL: u, Host: s.authority, Header: parts.Header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	if _, has := out.Header["User-Agent"]; !has {
		out.Header["User-Agent"] = []string{""} // or net/http names itself
	}
	if s.Secrets.Masks(s.Name) {
		out.Header["Accept-Encoding"] = []string{"identity"}
	}
	if r.body != nil {
		swapped, changes := s.Secrets.Body(target, r.header.Get("Content-Type"), r.body)
		body.src = swapped
		out.Body, out.ContentLength = body, r.length
		if changes {
			out.ContentLength = -1
		}
	}
	if r.socket != nil {
		if err := r.socket.handshake(out); err != nil {
			return nil, err
		}
	}
	if v.Inject != nil {
		if err := v.Inject(out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// upload is a body on its way. It keeps the reason why it ended early.
type upload struct {
	src io.Reader
	bad atomic.Pointer[error]
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.src.Read(p)
	if err != nil && err != io.EOF {
		u.bad.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (u *upload) Close() error { return nil }

func (u *upload) err() error {
	if e := u.bad.Load(); e != nil {
		return *e
	}
	return nil
}

// failed answers a request that got no answer.
func (s *server) failed(ctx context.Context, w http.ResponseWriter, r *request, rule string, body *upload, err error) error {
	accept := r.header.Get("Accept")
	if bad := body.err(); bad != nil {
		switch {
		case secret.IsRefused(bad):
			s.deny(w, accept, s.leaks(r, rule, bad))
		case framing.IsMalformed(bad):
			no := refused("framing", r.line(), bad)
			no.status = http.StatusBadRequest
			s.deny(w, accept, no)
		default: // the client stopped sending
			return bad
		}
		return nil
	}
	if ctx.Err() != nil { // the client is gone
		return ctx.Err()
	}
	if refusedBy, ok := errors.AsType[*rung.Error](err); ok && refusedBy.Kind == rung.KindRefused {
		no := refused("address", r.line(), refusedBy)
		no.Layer, no.Rule = "tcp", rule
		s.deny(w, accept, no)
		return nil
	}
	status, code, reason := failure(err)
	s.deny(w, accept, refusal{status: status, code: code, failed: true, NetDenial: rung.NetDenial{Request: r.line(), Reason: reason}})
	return nil
}

// answer passes the answer on.
func (s *server) answer(w http.ResponseWriter, r *request, v *Verdict, res *http.Response, body *upload, idle *time.Timer) error {
	accept := r.header.Get("Accept")
	if v.Response != nil {
		if err := v.Response(res); err != nil {
			s.deny(w, accept, stopped("answer", r.line(), v.Rule, err))
			return nil
		}
	}
	masks := s.Secrets.Masks(s.Name)
	if masks {
		if !s.maskable(res) {
			s.deny(w, accept, refusal{status: http.StatusBadGateway, code: "upstream-encoding", failed: true, NetDenial: rung.NetDenial{
				Request: r.line(),
				Reason:  "the server answered in " + encoding(res.Header.Get("Content-Encoding")) + ", in which secrets cannot be masked",
			}})
			return nil
		}
		if err := s.Secrets.MaskHeader(res.Header); err != nil {
			return err
		}
	}
	s.Sink.Served(Served{Name: s.Name, Port: s.Port, Rule: v.Rule, Method: r.method, Path: v.Path, Status: res.StatusCode})
	if res.StatusCode == http.StatusSwitchingProtocols {
		if r.socket == nil {
			s.deny(w, accept, refusal{status: http.StatusBadGateway, code: "upstream", failed: true, NetDenial: rung.NetDenial{
				Request: r.line(), Reason: "the server switches protocols unasked",
			}})
			return nil
		}
		idle.Stop()
		return r.socket.relay(s, w, res, v.Rule, masks)
	}
	answerFields(w.Header(), res.Header)
	s.length(w.Header(), r, res, masks)
	w.WriteHeader(res.StatusCode)
	if r.method == http.MethodHead {
		return nil
	}
	if res.ContentLength < 0 { // it may be a stream whose first piece is long in coming
		if err := http.NewResponseController(w).Flush(); err != nil {
			return errAborted
		}
	}
	from := io.Reader(res.Body)
	if masks {
		from = s.Secrets.Mask(from)
	}
	if err := move(w, from, idle); err != nil {
		if bad := body.err(); secret.IsRefused(bad) {
			s.Sink.Denied(s.leaks(r, v.Rule, bad).denial(s))
		}
		return errAborted
	}
	s.trailers(w.Header(), r, res, masks)
	return nil
}

// denial is the refusal as an event of its own, where the answer had begun already.
func (r refusal) denial(s *server) rung.NetDenial {
	d := r.NetDenial
	d.Host, d.Port, d.Count, d.First = s.Name, s.Port, 1, time.Now()
	return d
}

// encoding names a content coding (RFC 9110 18.6). One that is not registered is the server's own text, and may be a secret.
func encoding(name string) string {
	if name = strings.ToLower(name); slices.Contains([]string{"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"}, name) {
		return "the encoding " + name
	}
	return "an encoding"
}

// maskable says whether the body is as it is, or there is none.
func (s *server) maskable(res *http.Response) bool {
	for _, v := range res.Header["Content-Encoding"] {
		if !strings.EqualFold(v, "identity") && v != "" && res.Body != http.NoBody {
			return false
		}
	}
	return true
}

// length says how long the answer is, where that is known and stays.
func (s *server) length(h http.Header, r *request, res *http.Response, masks bool) {
	if r.method == http.MethodHead || res.StatusCode == http.StatusNotModified {
		if v := res.Header.Get("Content-Length"); v != "" && !masks {
			h["Content-Length"] = []string{v}
		}
		return
	}
	if res.ContentLength >= 0 && !masks && res.StatusCode != http.StatusNoContent {
		h["Content-Length"] = []string{itoa(res.ContentLength)}
	}
}

// trailers passes the answer's trailer fields to HTTP/2 clients: gRPC's status is one.
func (s *server) trailers(h http.Header, r *request, res *http.Response, masks bool) {
	if !r.two || len(res.Trailer) == 0 {
		return
	}
	if masks && s.Secrets.MaskHeader(res.Trailer) != nil { // the secrets have ended: nothing is passed on
		return
	}
	for name, values := range res.Trailer {
		if !hop(name) {
			h[http.TrailerPrefix+name] = values
		}
	}
}

// move copies piece by piece and flushes each, so that event streams arrive event by event.
func move(w http.ResponseWriter, from io.Reader, idle *time.Timer) error {
	buf := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buf)
	flusher := http.NewResponseController(w)
	for {
		n, err := from.Read(buf[:])
		idle.Reset(upstreamIdle)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err != io.EOF {
				if err := flusher.Flush(); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// hints passes informational answers (1xx) on while the final one is awaited.
type hints struct {
	mu   sync.Mutex
	w    http.ResponseWriter
	s    *server
	over bool
}

func (h *hints) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{Got1xxResponse: h.pass}
}

func (h *hints) pass(code int, fields textproto.MIMEHeader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
		return nil
	}
	if h.s.Secrets.Masks(h.s.Name) {
		if err := h.s.Secrets.MaskHeader(http.Header(fields)); err != nil {
			return err
		}
	}
	answerFields(h.w.Header(), http.Header(fields))
	h.w.WriteHeader(code)
	clear(h.w.Header())
	return nil
}

// end waits for a pass under way; none follows.
func (h *hints) end() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
}
