package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rung-dev/rung"
)

// ways are the combinations of protocols on both sides.
func ways(t *testing.T, test func(t *testing.T, tlsToo, clientH2, originH2 bool)) {
	for _, w := range []struct {
		name                   string
		tlsToo, client, origin bool
	}{
		{"plain", false, false, false},
		{"h1 to h1", true, false, false},
		{"h1 to h2", true, false, true},
		{"h2 to h1", true, true, false},
		{"h2 to h2", true, true, true},
	} {
		t.Run(w.name, func(t *testing.T) { test(t, w.tlsToo, w.client, w.origin) })
	}
}

func TestRequestsPass(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		addr, roots := origin(t, tlsToo, originH2, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("X-Proto", r.Proto)
			w.Header().Set("Alt-Svc", `h3=":443"`)
			w.Header().Set("X-Rung-Denied", "forged")
			_, _ = fmt.Fprintf(w, "%s %s %s %d %s %q %q", r.Method, r.RequestURI, r.Host, r.ContentLength, body, r.UserAgent(), r.Header["Accept-Encoding"])
		})
		g := newGate(t, addr, options{tls: tlsToo, roots: roots})
		c := g.client(t, clientH2)
		for _, test := range []struct {
			method, path, body string
			chunked            bool
		}{
			{"GET", "/a%20b?x=%2f&y", "", false},
			{"POST", "/", "hello", false},
			{"PUT", "/up?", "hello hello", true},
			{"POST", "/empty", "", false},
			{"DELETE", "/x", "", false},
			{"POST", "/large", strings.Repeat("0123456789", 30_000), true},
		} {
			var body io.Reader
			length := len(test.body)
			if test.body != "" || test.method == "POST" {
				body = strings.NewReader(test.body)
			}
			if test.chunked {
				body, length = io.MultiReader(body), -1
			}
			r, err := http.NewRequest(test.method, g.url(test.path), body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("User-Agent", "agent/1")
			res, err := c.Do(r)
			if err != nil {
				t.Fatalf("%s %s: %v", test.method, test.path, err)
			}
			want := fmt.Sprintf("%s %s %s %d %s %q []", test.method, test.path, name, length, test.body, "agent/1")
			if got := read(t, res); got != want {
				t.Errorf("got %.200q, want %.200q", got, want)
			}
			wantProto := "HTTP/1.1"
			if originH2 {
				wantProto = "HTTP/2.0"
			}
			if res.Header.Get("X-Proto") != wantProto || (res.ProtoMajor == 2) != clientH2 {
				t.Errorf("%s from the origin, %s to the client", res.Header.Get("X-Proto"), res.Proto)
			}
			if len(res.Header["Alt-Svc"])+len(res.Header["X-Rung-Denied"]) != 0 {
				t.Errorf("fields that are not the origin's to send: %v", res.Header)
			}
		}
		if n := len(g.dialer.dials); n > 2 { // one for requests with bodies, one for the others
			t.Errorf("%d upstream connections for one client", n)
		}
		if n := len(g.events.answers()); n != 6 {
			t.Errorf("%d answers heard of", n)
		}
	})
}

func TestPain04_BytesUpstreamAreWhatWasJudged(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"fields": {
			lines("GET http://API.example/x/../y?q=a+b HTTP/1.1", "host: api.EXAMPLE", "accept:  */*", "Connection: close, X-Hop", "X-Hop: 1", "Keep-Alive: 1",
				"TE: trailers", "Proxy-Authorization: x", "Proxy-Connection: x", "X-Rung-Denied: x", "X-A: 1", "x-a: 2"),
			lines("GET /judged?q=a+b HTTP/1.1", "Host: api.example", "Accept: */*", "X-A: 1", "X-A: 2"),
		},
		"1.0":      {lines("GET / HTTP/1.0", "Host: api.example"), lines("GET /judged HTTP/1.1", "Host: api.example")},
		"length":   {lines("POST / HTTP/1.1", "Host: api.example", "Content-Length: 4", "Connection: close") + "body", lines("POST /judged HTTP/1.1", "Host: api.example", "Content-Length: 4") + "body"},
		"encoding": {lines("POST / HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked", "Connection: close") + "0002\r\nbo\r\n2\r\ndy\r\n0\r\nX-Trailer: 1\r\n\r\n", lines("POST /judged HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"},
		"nothing behind the length": {
			lines("POST / HTTP/1.1", "Host: api.example", "Content-Length: 4", "Connection: close") + "bodyGET /smuggled HTTP/1.1\r\n\r\n",
			lines("POST /judged HTTP/1.1", "Host: api.example", "Content-Length: 4") + "body",
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := record(t, okAnswer, func(b []byte) bool { return len(heads(t, string(b))) > 0 })
			g := newGate(t, up.addr, options{judge: func(_ context.Context, r Request) Verdict {
				return Verdict{Allow: true, Path: "/judged"}
			}})
			res := g.raw(t, test.in, 2)
			if len(res) != 1 || res[0].StatusCode != 200 {
				t.Fatalf("answers %v", res)
			}
			if d := cmp.Diff(test.want, up.bytes()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestPain17_DenialIsUnderstandable(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		addr, roots := origin(t, tlsToo, originH2, func(http.ResponseWriter, *http.Request) { t.Error("a refused request went upstream") })
		g := newGate(t, addr, options{tls: tlsToo, roots: roots, judge: func(_ context.Context, r Request) Verdict {
			return Verdict{Path: "/normal", Rule: "api read-only", Reason: "the method POST is not allowed", Hint: "methods: [GET, POST]"}
		}})
		c := g.client(t, clientH2)
		for accept, kind := range map[string]string{"": "text/plain; charset=utf-8", "application/json": "application/json"} {
			r, _ := http.NewRequest("POST", g.url("/x/../normal?token=1"), strings.NewReader("some body"))
			r.Header.Set("Accept", accept)
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body := read(t, res)
			if res.StatusCode != 403 || res.Header.Get("X-Rung-Denied") != "api read-only" || res.Header.Get("Content-Type") != kind {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
			for _, word := range []string{"POST /normal", "the method POST is not allowed", "methods: [GET, POST]", "Retrying will not help", "api read-only"} {
				if !strings.Contains(body, word) {
					t.Errorf("%q is not in %q", word, body)
				}
			}
			if strings.Contains(body, "token=1") {
				t.Errorf("the query is in %q", body)
			}
		}
		if n := len(g.dialer.dials); n != 0 {
			t.Errorf("%d upstream connections", n)
		}
		d := g.events.denials()
		if len(d) != 2 || d[0].Host != name || d[0].Request != "POST /normal" || d[0].Layer != "http" || d[0].Count != 1 || d[0].Port == 0 {
			t.Errorf("denials %+v", d)
		}
	})
}

// The go client asks for parents and children of a module, and takes 403 for the end where 404 lets it go on.
func TestDenialOfAQuestionWhetherSomethingExists(t *testing.T) {
	g := newGate(t, "", options{judge: func(context.Context, Request) Verdict {
		return Verdict{Rule: "go registry", Reason: "not on the list", NotFound: true}
	}})
	res, err := g.client(t, false).Get(g.url("/example.test/@v/list"))
	if err != nil {
		t.Fatal(err)
	}
	if body := read(t, res); res.StatusCode != 404 || res.Header.Get("X-Rung-Denied") != "go registry" || !strings.Contains(body, "not on the list") {
		t.Errorf("%d %v %q", res.StatusCode, res.Header, body)
	}
	if d := g.events.denials(); len(d) != 1 || d[0].Reason != "not on the list" {
		t.Errorf("denials %+v", d)
	}
}

func TestPain09_31_33_34_35_FrontingByHostIsRefused(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		addr, roots := origin(t, tlsToo, originH2, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
		g := newGate(t, addr, options{tls: tlsToo, roots: roots})
		c := g.client(t, clientH2)
		port := map[bool]string{false: ":80", true: ":443"}[tlsToo]
		for host, ok := range map[string]bool{
			"": true, "API.example": true, name + ".": true, name + port: true, "b.example": false, name + ":8080": false,
			"127.0.0.1": false, name + ".b.example": false, "x." + name: false, "[::1]": false,
		} {
			r, _ := http.NewRequest("GET", g.url("/"), nil)
			r.Host = host
			res, err := c.Do(r)
			if err != nil {
				t.Fatalf("%q: %v", host, err)
			}
			if body := read(t, res); ok && (res.StatusCode != 200 || body != name) || !ok && (res.StatusCode != 421 || res.Header.Get("X-Rung-Denied") != "host") {
				t.Errorf("%q: %d %q", host, res.StatusCode, body)
			}
		}
		for _, d := range g.dialer.dials {
			if d != name+port {
				t.Errorf("dialled %s: Host must never decide it (pain 35)", d)
			}
		}
	})
}

func TestPain03_RefusedBeforeTheJudge(t *testing.T) {
	up := record(t, okAnswer, headOnly)
	judged := func(_ context.Context, r Request) Verdict {
		t.Errorf("%s %s was judged", r.Method, r.Path)
		return Verdict{}
	}
	g := newGate(t, up.addr, options{judge: judged})
	for name, raw := range map[string]string{
		"trace":           lines("TRACE / HTTP/1.1", "Host: api.example"),
		"method override": lines("POST / HTTP/1.1", "Host: api.example", "X-HTTP-Method-Override: DELETE", "Content-Length: 0"),
		"url override":    lines("GET / HTTP/1.1", "Host: api.example", "X-Original-URL: /admin"),
		"underscored":     lines("GET / HTTP/1.1", "Host: api.example", "X_Rewrite_URL: /admin"),
		"forwarded host":  lines("GET / HTTP/1.1", "Host: api.example", "X-Forwarded-Host: b.example"),
		"https over http": lines("GET https://api.example/ HTTP/1.1", "Host: api.example"),
		"h2c":             lines("GET / HTTP/1.1", "Host: api.example", "Upgrade: h2c", "HTTP2-Settings: AA", "Connection: Upgrade, HTTP2-Settings"),
		"h2c at once":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"connect":         lines("CONNECT b.example:443 HTTP/1.1", "Host: b.example:443"),
	} {
		res := g.raw(t, raw, 1)
		if len(res) != 1 || res[0].StatusCode != 400 && res[0].StatusCode != 403 || res[0].Header.Get("X-Rung-Denied") == "" {
			t.Errorf("%s: %v", name, res)
		}
	}
	if got := up.bytes(); got != "" {
		t.Errorf("upstream received %q", got)
	}
}

func TestPathThatCannotBeSentAsJudged(t *testing.T) {
	for path, ok := range map[string]bool{"/a%2Fb": true, "//a": true, "/a\"<>|^`{}": true, "a": false, "": false, "/a b": false, "/a?b": false, "/a#b": false, "/\x00": false, "http://b.example/": false} {
		up := record(t, okAnswer, headOnly)
		g := newGate(t, up.addr, options{judge: func(context.Context, Request) Verdict { return Verdict{Allow: true, Path: path} }})
		res := g.raw(t, lines("GET / HTTP/1.1", "Host: api.example", "Connection: close"), 1)
		if len(res) != 1 || (res[0].StatusCode == 200) != ok {
			t.Errorf("%q: %v", path, res)
		}
		if ok && !strings.HasPrefix(up.bytes(), "GET "+path+" HTTP/1.1\r\n") || !ok && up.bytes() != "" {
			t.Errorf("%q: upstream received %q", path, up.bytes())
		}
	}
}

func TestAnswersWithoutBodies(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		addr, roots := origin(t, tlsToo, originH2, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/head":
				w.Header().Set("Content-Length", "1234")
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.Header().Set("Etag", `"x"`)
				w.WriteHeader(304)
			case "/hints":
				w.Header().Set("Link", "</a>")
				w.WriteHeader(103)
				w.WriteHeader(200)
			}
		})
		g := newGate(t, addr, options{tls: tlsToo, roots: roots})
		c := g.client(t, clientH2)
		for path, want := range map[string]int{"/head": 200, "/204": 204, "/304": 304, "/hints": 200} {
			method := "GET"
			if path == "/head" {
				method = "HEAD"
			}
			r, _ := http.NewRequest(method, g.url(path), nil)
			res, err := c.Do(r)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if body := read(t, res); body != "" || res.StatusCode != want || path == "/head" && res.ContentLength != 1234 {
				t.Errorf("%s: %d %q, length %d", path, res.StatusCode, body, res.ContentLength)
			}
		}
	})
}

func TestEventsArriveOneByOne(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		next := make(chan int)
		addr, roots := origin(t, tlsToo, originH2, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			for i := range next {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
		})
		g := newGate(t, addr, options{tls: tlsToo, roots: roots})
		res, err := g.client(t, clientH2).Get(g.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(res.Body)
		for i := range 5 {
			next <- i // only now does the origin write the next one
			line, err := br.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%q, %v", line, err)
			}
			_, _ = br.ReadString('\n')
		}
		close(next)
		if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

func TestGRPCStreamsBothWays(t *testing.T) {
	addr, roots := origin(t, true, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Te") != "trailers" {
			t.Error("no TE: trailers")
		}
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 10)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set("Grpc-Status", "0")
	})
	g := newGate(t, addr, options{tls: true, roots: roots})
	pr, pw := io.Pipe()
	r, _ := http.NewRequest("POST", g.url("/svc/Method"), pr)
	r.Header.Set("Te", "trailers")
	res, err := g.client(t, true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two", "three"} {
		if _, err := io.WriteString(pw, word); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(word))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	_ = pw.Close()
	if _, err := io.ReadAll(res.Body); err != nil || res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("trailers %v, %v", res.Trailer, err)
	}
}

func TestAnswerThatBreaksOffBreaksOff(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n5\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			up := record(t, answer, headOnly)
			up.hangUp.Store(true)
			g := newGate(t, up.addr, options{})
			res, err := g.client(t, false).Get(g.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); err == nil || string(body) != "some" && string(body) != "somex" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}

func TestUpstreamFailuresAreNamed(t *testing.T) {
	_, roots := origin(t, true, true, func(http.ResponseWriter, *http.Request) {})
	strange, _ := origin(t, true, true, func(http.ResponseWriter, *http.Request) {})
	notTLS, _ := origin(t, false, false, func(http.ResponseWriter, *http.Request) {})
	silent := record(t, "", func([]byte) bool { return false })
	huge := record(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", maxAnswerHead)+"\r\n\r\n", headOnly)
	for name, test := range map[string]struct {
		addr   string
		tls    bool
		err    error
		status int
		code   string
	}{
		"certificate": {addr: strange, tls: true, status: 502, code: "upstream-certificate"},
		"not TLS":     {addr: notTLS, tls: true, status: 502, code: "upstream-tls"},
		"refused":     {err: rung.Errorf(rung.KindRefused, "10.0.0.1 is private").WithHint("--allow 10.0.0.1/32"), status: 403, code: "address"},
		"timeout":     {err: rung.Errorf(rung.KindTimeout, "no answer"), status: 504, code: "upstream-timeout"},
		"hangs up":    {addr: silent.addr, status: 502, code: "upstream"},
		"huge head":   {addr: huge.addr, status: 502, code: "upstream"},
		"closed port": {addr: "127.0.0.1:1", status: 502, code: "upstream"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "hangs up" {
				silent.hangUp.Store(true)
			}
			g := newGate(t, test.addr, options{tls: test.tls, roots: roots, dialErr: test.err})
			res, err := g.client(t, false).Get(g.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			code := res.Header.Get("X-Rung-Error") + res.Header.Get("X-Rung-Denied")
			if body := read(t, res); res.StatusCode != test.status || code != test.code || !strings.Contains(body, "reason: ") {
				t.Errorf("%d %s %q", res.StatusCode, code, body)
			}
			if denied := len(g.events.denials()); (denied == 1) != (test.status == 403) {
				t.Errorf("%d denials", denied)
			}
		})
	}
}

func TestClientThatLeavesEndsTheRequest(t *testing.T) {
	ways(t, func(t *testing.T, tlsToo, clientH2, originH2 bool) {
		ended, begun := make(chan struct{}), make(chan struct{})
		addr, roots := origin(t, tlsToo, originH2, func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		g := newGate(t, addr, options{tls: tlsToo, roots: roots})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-begun
			cancel()
		}()
		r, _ := http.NewRequestWithContext(ctx, "GET", g.url("/"), nil)
		if _, err := g.client(t, clientH2).Do(r); err == nil {
			t.Error("an answer")
		}
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the origin still works for nobody")
		}
	})
}

func TestInjectAndResponseHooks(t *testing.T) {
	addr, roots := origin(t, true, true, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	})
	refuse := false
	g := newGate(t, addr, options{tls: true, roots: roots, judge: func(_ context.Context, r Request) Verdict {
		return Verdict{
			Allow: true, Path: r.Path, Rule: "hooked",
			Inject: func(r *http.Request) error {
				r.Header.Set("Authorization", "Bearer minted")
				return nil
			},
			Response: func(res *http.Response) error {
				if refuse {
					return rung.Errorf(rung.KindRefused, "too young").WithHint("min_age: 0d")
				}
				res.Body, res.ContentLength = io.NopCloser(io.MultiReader(res.Body, strings.NewReader("!"))), -1
				return nil
			},
		}
	}})
	for _, refuse = range []bool{false, true} {
		res, err := g.client(t, true).Get(g.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		if body := read(t, res); !refuse && body != "Bearer minted!" || refuse && (res.StatusCode != 403 || !strings.Contains(body, "min_age: 0d")) {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	}
}
