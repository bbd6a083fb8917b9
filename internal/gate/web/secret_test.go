package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rung-dev/rung/internal/gate/secret"
)

const token = `sk-live/+a"b\c 41&e=f`

// secrets binds the token to a host and returns its placeholder.
func secrets(t testing.TB, host string, change func(*secret.Binding)) (*secret.Swap, string) {
	t.Helper()
	s := secret.New()
	t.Cleanup(s.Close)
	b := secret.Binding{Name: "KEY", Value: secret.Value(token), Hosts: []string{host}, Plain: true}
	if change != nil {
		change(&b)
	}
	p, err := s.Add(b)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func TestSecretIsSentAndComesBackMasked(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		addr, roots := origin(t, tlsToo, originH2, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			user, pass, _ := r.BasicAuth()
			if pass == "" && r.Header.Get("X-Key") != token || pass != "" && pass != token || user != "" && user != "u" {
				t.Errorf("the origin received %v", r.Header)
			}
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("Accept-Encoding %q", got)
			}
			w.Header().Set("Location", "https://b.example/?k="+url.QueryEscape(token))
			w.Header().Set("Set-Cookie", "k="+token)
			_, _ = fmt.Fprintf(w, "%s|%s|%s|%s|%q", token, url.QueryEscape(token), r.Header.Get("Authorization"), body,
				base64.StdEncoding.EncodeToString([]byte("x"+token)))
		})
		s, p := secrets(t, name, func(b *secret.Binding) { b.Body, b.Query = true, true })
		g := newGate(t, addr, options{tls: tlsToo, roots: roots, secrets: s})
		for _, basic := range []bool{false, true} {
			r, _ := http.NewRequest("POST", g.url("/?k="+p), strings.NewReader("k="+p))
			r.Header.Set("Accept-Encoding", "gzip")
			if basic {
				r.SetBasicAuth("u", p)
			} else {
				r.Header.Set("X-Key", p)
			}
			res, err := g.client(t, clientH2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			all := read(t, res) + fmt.Sprint(res.Header)
			for _, spelled := range []string{token, url.QueryEscape(token), base64.StdEncoding.EncodeToString([]byte(token))[4:20]} {
				if strings.Contains(all, spelled) {
					t.Errorf("%q is in %q", spelled, all)
				}
			}
			if !strings.HasPrefix(all, p+"|"+p+"|") {
				t.Errorf("answered %q", all)
			}
		}
	})
}

func TestPain07_11_PlaceholderElsewhereIsHighSeverity(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		addr, roots := origin(t, tlsToo, originH2, func(_ http.ResponseWriter, r *http.Request) {
			if b, err := io.ReadAll(r.Body); err == nil {
				t.Errorf("the origin received a whole request: %v %q", r.Header, b)
			}
		})
		s, p := secrets(t, "other.example", nil)
		encoded := base64.StdEncoding.EncodeToString([]byte("xx" + p))
		for where, r := range map[string]func(g *gate) *http.Request{
			"header":         func(g *gate) *http.Request { return post(g, "/", "X-Any", p, "") },
			"base64 header":  func(g *gate) *http.Request { return post(g, "/", "X-Any", encoded, "") },
			"authorization":  func(g *gate) *http.Request { return post(g, "/", "Authorization", "Bearer "+p, "") },
			"path":           func(g *gate) *http.Request { return post(g, "/x/"+p, "", "", "") },
			"query":          func(g *gate) *http.Request { return post(g, "/?x="+p, "", "", "") },
			"body":           func(g *gate) *http.Request { return post(g, "/", "", "", "x="+p) },
			"body in base64": func(g *gate) *http.Request { return post(g, "/", "", "", encoded) },
			"host": func(g *gate) *http.Request {
				r := post(g, "/", "", "", "")
				r.Host = p + ".evil.example"
				return r
			},
			"large body": func(g *gate) *http.Request { return post(g, "/", "", "", strings.Repeat("x", 300_000)+p+"yy") },
		} {
			g := newGate(t, addr, options{tls: tlsToo, roots: roots, secrets: s})
			res, err := g.client(t, clientH2).Do(r(g))
			if err != nil {
				t.Errorf("%s: %v", where, err)
				continue
			}
			body := read(t, res)
			if res.StatusCode != 403 || res.Header.Get("X-Rung-Denied") != "secret" || !strings.Contains(body, `the secret "KEY"`) || where != "host" && !strings.Contains(body, "--secret KEY@"+name) {
				t.Errorf("%s: %d %q", where, res.StatusCode, body)
			}
			d := g.events.denials()
			if len(d) != 1 || d[0].Severity != "high" || d[0].Layer != "secret" {
				t.Errorf("%s: denials %+v", where, d)
			}
		}
	})
}

func post(g *gate, path, field, value, body string) *http.Request {
	r, _ := http.NewRequest("POST", g.url(path), strings.NewReader(body))
	if field != "" {
		r.Header.Set(field, value)
	}
	return r
}

func TestPain39_SecretOverPlainHTTP(t *testing.T) {
	up := record(t, okAnswer, headOnly)
	s, p := secrets(t, name, func(b *secret.Binding) { b.Plain = false })
	g := newGate(t, up.addr, options{secrets: s})
	res, err := g.client(t, false).Do(post(g, "/", "Authorization", p, ""))
	if err != nil {
		t.Fatal(err)
	}
	if body := read(t, res); res.StatusCode != 403 || !strings.Contains(body, "use https") || up.bytes() != "" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestAnswerThatCannotBeMaskedIsRefused(t *testing.T) {
	addr, roots := origin(t, true, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "anything")
	})
	for host, status := range map[string]int{name: 502, "other.example": 200} {
		s, _ := secrets(t, host, nil)
		g := newGate(t, addr, options{tls: true, roots: roots, secrets: s})
		res, err := g.client(t, true).Get(g.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != status || status == 502 && res.Header.Get("X-Rung-Error") != "upstream-encoding" {
			t.Errorf("%s: %d %v", host, res.StatusCode, res.Header)
		}
	}
}

func TestSecretsThatEndEndTheirAnswers(t *testing.T) {
	next := make(chan string)
	addr, roots := origin(t, true, true, func(w http.ResponseWriter, _ *http.Request) {
		for text := range next {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	})
	s, _ := secrets(t, name, nil)
	g := newGate(t, addr, options{tls: true, roots: roots, secrets: s})
	go func() { next <- "first\n" }()
	res, err := g.client(t, false).Get(g.url("/"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	next <- token + "\n"
	close(next)
	if rest, err := io.ReadAll(res.Body); err == nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestConnectionsAreOneSandboxs(t *testing.T) {
	addr, roots := origin(t, true, true, func(http.ResponseWriter, *http.Request) {})
	a, b := newGate(t, addr, options{tls: true, roots: roots}), newGate(t, addr, options{tls: true, roots: roots})
	for range 3 {
		for _, g := range []*gate{a, b} {
			res, err := g.client(t, true).Get(g.url("/")) // a client and a connection of its own each time
			if err != nil {
				t.Fatal(err)
			}
			read(t, res)
		}
	}
	if len(a.dialer.dials) != 1 || len(b.dialer.dials) != 1 {
		t.Errorf("%d and %d upstream connections", len(a.dialer.dials), len(b.dialer.dials))
	}
	a.session.Pool.Close()
	if _, err := a.session.Pool.link(peer{name, 443, true, false}); err == nil {
		t.Error("a closed pool gives connections")
	}
}

func TestPoolIsBounded(t *testing.T) {
	p := NewPool(&dialer{}, nil)
	for i := range 3 * maxPeers {
		if _, err := p.link(peer{fmt.Sprintf("h%d.example", i), 443, true, false}); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.peers) != maxPeers || p.recent.Len() != maxPeers {
		t.Errorf("%d and %d peers are kept", len(p.peers), p.recent.Len())
	}
}

func TestPain10_TLSOfAnotherNameIsNotOpened(t *testing.T) {
	g := newGate(t, "127.0.0.1:1", options{tls: true})
	c := g.client(t, false)
	res, err := c.Get("https://b.example/")
	if err == nil {
		t.Errorf("%d for a name that the connection was not opened for", res.StatusCode)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", g.url("/"), nil)
	if _, err := c.Do(r); err == nil {
		t.Error("an answer to nobody")
	}
}
