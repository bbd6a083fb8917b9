package gate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/gate/flow"
	"github.com/rung-dev/rung/internal/gate/framing"
	"github.com/rung-dev/rung/internal/gate/registry"
	"github.com/rung-dev/rung/internal/gate/rule"
	"github.com/rung-dev/rung/internal/gate/web"
)

// judge decides about single requests of a session.
type judge struct{ *session }

// Request implements web.Judge.
func (j judge) Request(ctx context.Context, r web.Request) web.Verdict {
	if err := j.meter.Request(); err != nil {
		return web.Verdict{Layer: "budget", Reason: err.Error()}
	}
	if err := j.leases.ready(); err != nil {
		return web.Verdict{Layer: "secret", Reason: err.Error()}
	}
	normal, d := j.policy.Request(rule.Request{Host: r.Name, Port: r.Port, TLS: r.TLS, Method: r.Method, Path: r.Path, WebSocket: r.WebSocket})
	v := web.Verdict{Allow: d.Allow, Path: normal, Rule: d.RuleName, Reason: d.Reason, Hint: d.Hint}
	if !d.Allow || d.Rule == nil {
		return v
	}
	if d.Rule.Registry != nil {
		v = j.packages(ctx, r, normal, v, *d.Rule)
	}
	if v.Allow && d.Rule.Approve {
		v = j.approve(ctx, r, v)
	}
	if v.Allow {
		v = j.inject(r, d.Rule.Identity, v)
	}
	return v
}

// registry returns the judge of a rule; each is made once.
func (s *session) registry(r rung.EgressRule) (*registry.Judge, error) {
	if j, ok := s.judges.Load(r.Name); ok {
		return j.(*registry.Judge), nil
	}
	j, err := s.registries.Judge(r)
	if err != nil {
		return nil, err
	}
	kept, _ := s.judges.LoadOrStore(r.Name, j)
	return kept.(*registry.Judge), nil
}

// packages judges a request to a package registry, and watches what comes back.
func (j judge) packages(ctx context.Context, r web.Request, path string, v web.Verdict, er rung.EgressRule) web.Verdict {
	pj, err := j.registry(er)
	if err != nil {
		return web.Verdict{Rule: v.Rule, Layer: "registry", Reason: err.Error()}
	}
	pv := pj.Request(r.Method, path, r.Query)
	if pv.Pending {
		pv = pj.Settle(ctx, pv, fetcher(j))
	}
	if !pv.Allow {
		return web.Verdict{Rule: v.Rule, Layer: "registry", Reason: pv.Reason, Hint: pv.Hint, NotFound: pv.NotFound}
	}
	v.Path = pv.Path
	v.Response = func(a *http.Response) error {
		a.Body = pj.Tee(pv, a.StatusCode, a.Header, a.Body, j.ledger.Package)
		return nil
	}
	return v
}

func (j judge) approve(ctx context.Context, r web.Request, v web.Verdict) web.Verdict {
	q := control.Approval{Host: r.Name, Port: r.Port, Request: r.Method + " " + v.Path, Rule: v.Rule}
	if j.approvals.granted(ctx, q) {
		return v
	}
	return web.Verdict{Rule: v.Rule, Reason: "the rule asks for its owner's approval, and nobody gave it"}
}

// inject adds to the verdict what is put into the request last of all: a token of the task's identity, a signature.
func (j judge) inject(r web.Request, audience string, v web.Verdict) web.Verdict {
	signs := j.leases.signs(r.Name)
	if !signs && audience == "" {
		return v
	}
	if !r.TLS {
		return web.Verdict{Rule: v.Rule, Layer: "secret", Reason: "what identifies this task is sent over TLS only", Hint: "use https"}
	}
	var token rung.SecretValue
	if audience != "" {
		var err error
		if token, err = j.identity(audience, r.Name); err != nil {
			return web.Verdict{Rule: v.Rule, Layer: "secret", Reason: err.Error(), Hint: rung.HintOf(err)}
		}
	}
	v.Inject = func(req *http.Request) error {
		if token != nil {
			req.Header.Set("Authorization", "Bearer "+string(token))
			token.Zero()
		}
		if !signs {
			return nil
		}
		return j.sign(req, r.Name)
	}
	return v
}

func (j judge) sign(req *http.Request, host string) error {
	one := j.leases.signer(host)
	if one == nil {
		return rung.Errorf(rung.KindConflict, "the sandbox's secrets have ended")
	}
	defer one.Value.Zero()
	credentials, err := rung.ParseAWSCredentials(one.Value)
	if err != nil {
		return err
	}
	return j.signer.Sign(req.Context(), req, credentials, *one.SigV4, time.Now())
}

// sink takes what package web tells.
type sink struct{ *session }

// Denied implements web.Sink.
func (s sink) Denied(d rung.NetDenial) { s.ledger.Deny(d) }

// Served implements web.Sink. Destinations are noted by connection.
func (sink) Served(web.Served) {}

// fetcher asks registries for documents on the gate's own behalf.
type fetcher struct{ *session }

// fetchTimeout bounds one document.
const fetchTimeout = 30 * time.Second

// Fetch implements registry.Fetcher.
func (f fetcher) Fetch(ctx context.Context, s registry.Source) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	scheme := "http"
	if s.TLS {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://%s:%d%s", scheme, s.Host, s.Port, s.Path), nil)
	if err != nil {
		cancel()
		return nil, rung.Errorf(rung.KindInternal, "ask %s: %w", s.Host, err)
	}
	if s.Accept != "" {
		req.Header.Set("Accept", s.Accept)
	}
	a, err := f.pool.RoundTrip(req, s.Host, s.Port, s.TLS)
	if err != nil {
		cancel()
		return nil, rung.Errorf(rung.KindUnavailable, "ask %s: %w", s.Host, err)
	}
	if a.StatusCode != http.StatusOK {
		a.Body.Close()
		cancel()
		return nil, rung.Errorf(rung.KindUnavailable, "ask %s: %s", s.Host, a.Status)
	}
	return &fetched{a.Body, cancel}, nil
}

// fetched ends its time limit with the body.
type fetched struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (f *fetched) Close() error {
	defer f.cancel()
	return f.ReadCloser.Close()
}

// choose finds which of the names that an address was resolved for a plain HTTP connection is for, by its first head. What
// was read is given back. A head that names none of them goes to the first, whose judgement refuses it.
func choose(c net.Conn, names []flow.Target, first []byte) (flow.Target, []byte) {
	if len(names) == 1 {
		return names[0], first
	}
	_ = c.SetReadDeadline(time.Now().Add(chooseTimeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	seen := &recorder{r: io.MultiReader(strings.NewReader(string(first)), c)}
	head, err := framing.ReadHead(bufio.NewReaderSize(seen, 4<<10))
	if err != nil {
		return names[0], seen.all
	}
	parsed, err := framing.Parse(head)
	if err != nil {
		return names[0], seen.all
	}
	host, _, err := net.SplitHostPort(parsed.Host)
	if err != nil {
		host = parsed.Host
	}
	if name, err := rule.WireName(host); err == nil {
		if i := slices.IndexFunc(names, func(t flow.Target) bool { return t.Name == name }); i >= 0 {
			return names[i], seen.all
		}
	}
	return names[0], seen.all
}

const chooseTimeout = 20 * time.Second

// recorder keeps what was read through it; the head's cap bounds it.
type recorder struct {
	r   io.Reader
	all []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.all = append(r.all, p[:n]...)
	return n, err
}
