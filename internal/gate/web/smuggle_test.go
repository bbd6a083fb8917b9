package web

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// smuggled are requests that hide a second one from some reader. Whatever is done with them, upstream never gets to see
// the hidden one as a request, and never more than one.
var smuggled = map[string]string{
	"CL.CL":               lines("POST /a HTTP/1.1", "Host: api.example", "Content-Length: 0", "Content-Length: 33") + lines("GET /hidden HTTP/1.1", "X: y"),
	"CL list":             lines("POST /a HTTP/1.1", "Host: api.example", "Content-Length: 0, 33") + lines("GET /hidden HTTP/1.1", "X: y"),
	"CL.TE":               lines("POST /a HTTP/1.1", "Host: api.example", "Content-Length: 38", "Transfer-Encoding: chunked") + "0\r\n\r\n" + lines("GET /hidden HTTP/1.1", "X: y"),
	"TE.CL":               lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked", "Content-Length: 4") + "1c\r\n" + lines("GET /hidden HTTP/1.1") + "\r\n0\r\n\r\n",
	"TE.TE":               lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked", "Transfer-Encoding: x") + "0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"TE with a tab":       lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding:\t\x0bchunked", "Content-Length: 5") + "0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"TE space colon":      lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding : chunked", "Content-Length: 5") + "0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"TE underscore":       lines("POST /a HTTP/1.1", "Host: api.example", "Transfer_Encoding: chunked", "Content-Length: 5") + "0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"TE in 1.0":           lines("POST /a HTTP/1.0", "Host: api.example", "Transfer-Encoding: chunked") + "0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"obs-fold":            lines("POST /a HTTP/1.1", "Host: api.example", "X: y", " Content-Length: 30") + lines("GET /hidden HTTP/1.1"),
	"bare LF":             "POST /a HTTP/1.1\nHost: api.example\nContent-Length: 0\n\nGET /hidden HTTP/1.1\n\n",
	"bare CR":             lines("GET /a HTTP/1.1", "Host: api.example", "X: y\rContent-Length: 30") + lines("GET /hidden HTTP/1.1"),
	"NUL":                 lines("GET /a HTTP/1.1", "Host: api.example", "X: y\x00z") + lines("GET /hidden HTTP/1.1"),
	"chunk extension":     lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "2;\nxx\r\n30\r\n0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"chunk overflow":      lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "10000000000000000\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"chunk without CRLF":  lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "2\r\nxx0\r\n\r\n" + lines("GET /hidden HTTP/1.1"),
	"chunk bare LF":       lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "2\nxx\n0\n\n" + lines("GET /hidden HTTP/1.1"),
	"trailer":             lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked", "Connection: close") + "0\r\nContent-Length: 30\r\nTransfer-Encoding: x\r\n\r\n",
	"bad trailer":         lines("POST /a HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "0\r\nGET /hidden HTTP/1.1\r\n\r\n",
	"two hosts":           lines("GET /a HTTP/1.1", "Host: api.example", "Host: b.example"),
	"absolute mismatch":   lines("GET http://b.example/hidden HTTP/1.1", "Host: api.example"),
	"space in the target": lines("GET /a HTTP/1.1 /hidden HTTP/1.1", "Host: api.example"),
	"h2c":                 lines("GET /a HTTP/1.1", "Host: api.example", "Upgrade: h2c", "Connection: Upgrade", "HTTP2-Settings: AAMAAABkAAQAAP__"),
	"CONNECT":             lines("CONNECT api.example:80 HTTP/1.1", "Host: api.example:80") + lines("GET /hidden HTTP/1.1"),
	"GET with a body":     lines("GET /a HTTP/1.1", "Host: api.example", "Content-Length: 24", "Connection: close") + lines("GET /hidden HTTP/1.1"),
	"hidden in the body":  lines("POST /a HTTP/1.1", "Host: api.example", "Content-Length: 0", "Connection: close") + lines("GET /hidden HTTP/1.1", "Host: api.example"),
	"connection drops CL": lines("POST /a HTTP/1.1", "Host: api.example", "Content-Length: 24", "Connection: Content-Length") + lines("GET /hidden HTTP/1.1"),
	"expect":              lines("POST /a HTTP/1.1", "Host: api.example", "Content-Length: 24", "Expect: x") + lines("GET /hidden HTTP/1.1"),
	"CR LF in the target": lines("GET /a%0d%0aX:y HTTP/1.1", "Host: api.example", "Connection: close"),
}

// heads reads what upstream got as a lenient server would and returns the request lines.
func heads(t *testing.T, raw string) []string {
	t.Helper()
	br := bufio.NewReader(strings.NewReader(raw))
	var out []string
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return out
		}
		out = append(out, r.Method+" "+r.RequestURI)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return out[:len(out)-1] // it never ended: no server acts on it
		}
	}
}

func TestPain05_UpstreamReceivesOneRequestOrNone(t *testing.T) {
	for name, raw := range smuggled {
		t.Run(name, func(t *testing.T) {
			up := record(t, okAnswer, func(b []byte) bool { return len(heads(t, string(b))) > 0 })
			var judged []string
			g := newGate(t, up.addr, options{judge: func(_ context.Context, r Request) Verdict {
				judged = append(judged, r.Method+" "+r.Path)
				return Verdict{Allow: true, Path: r.Path}
			}})
			res := g.raw(t, raw, 2)
			got := heads(t, up.bytes())
			if len(res) != 1 || len(got) > 1 || len(got) == 1 && (len(judged) != 1 || judged[0] != got[0]) {
				t.Errorf("%d answers, judged %q, upstream read %q of %q", len(res), judged, got, up.bytes())
			}
			if len(got) == 0 && (res[0].StatusCode < 400 || len(g.events.denials()) != 1) {
				t.Errorf("answered %d, denials %v", res[0].StatusCode, g.events.denials())
			}
			if len(got) == 1 && strings.Contains(got[0], "hidden") {
				t.Errorf("the hidden one: %q", got)
			}
		})
	}
}

func TestPipelinedRequestsAreJudgedOneByOne(t *testing.T) {
	up := record(t, okAnswer, headOnly)
	g := newGate(t, up.addr, options{judge: func(_ context.Context, r Request) Verdict {
		return Verdict{Allow: r.Path != "/no", Path: r.Path, Reason: "no"}
	}})
	one := func(path string, more ...string) string {
		return lines(append([]string{"GET " + path + " HTTP/1.1", "Host: api.example"}, more...)...)
	}
	res := g.raw(t, one("/1")+one("/no")+one("/2", "Connection: close")+one("/never"), 4)
	if len(res) != 3 || res[0].StatusCode != 200 || res[1].StatusCode != 403 || res[2].StatusCode != 200 {
		t.Errorf("answers %v", res)
	}
	if got := heads(t, up.bytes()); strings.Join(got, " ") != "GET /1 GET /2" {
		t.Errorf("upstream received %q", got)
	}
}

func TestExpectContinue(t *testing.T) {
	addr, _ := origin(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	allow := true
	g := newGate(t, addr, options{judge: func(_ context.Context, r Request) Verdict { return Verdict{Allow: allow, Path: r.Path, Reason: "no"} }})
	for _, allow = range []bool{true, false} {
		c, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, lines("PUT / HTTP/1.1", "Host: api.example", "Content-Length: 4", "Expect: 100-continue"))
		br := bufio.NewReader(c)
		line, err := br.ReadString('\n')
		if want := map[bool]string{true: "HTTP/1.1 100 Continue\r\n", false: "HTTP/1.1 403 Forbidden\r\n"}[allow]; line != want || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		if allow {
			_, _ = br.ReadString('\n')
			_, _ = io.WriteString(c, "body")
			res, err := http.ReadResponse(br, nil)
			if err != nil || read(t, res) != "body" {
				t.Errorf("%v, %v", res, err)
			}
		}
		_ = c.Close()
	}
}

func TestRefusedUploadHearsTheRefusal(t *testing.T) {
	g := newGate(t, "127.0.0.1:1", options{judge: func(context.Context, Request) Verdict { return Verdict{Reason: "no uploads"} }})
	for _, size := range []int{10, maxDrain / 2, 4 * maxDrain} {
		res, err := g.client(t, false).Post(g.url("/"), "", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if body := read(t, res); res.StatusCode != 403 || !strings.Contains(body, "no uploads") {
			t.Errorf("%d bytes: %d %q", size, res.StatusCode, body)
		}
	}
}

func TestSlowAndSilentClientsAreLeft(t *testing.T) {
	addr, _ := origin(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for range 1000 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	for name, send := range map[string]string{
		"silent":         "",
		"half a head":    "GET / HTTP/1.1\r\nHost: api.ex",
		"half a body":    lines("POST / HTTP/1.1", "Host: api.example", "Content-Length: 10") + "half",
		"half a chunk":   lines("POST / HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "a\r\nhalf",
		"reads nothing":  lines("GET / HTTP/1.1", "Host: api.example"),
		"never finishes": lines("GET / HTTP/1.1", "Host: api.example", "Content-Length: 10"),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, addr, options{})
			client, server := net.Pipe()
			s := g.session
			s.Client, s.head, s.idle = server, 50*time.Millisecond, 50*time.Millisecond
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = Serve(context.Background(), s)
			}()
			_ = client.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(client, send)
			select {
			case <-done:
			case <-time.After(patience):
				t.Error("the connection is still held")
			}
			_ = client.Close()
		})
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	g := newGate(t, "127.0.0.1:1", options{tls: true})
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	s := g.session
	s.Client = server
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, s) }()
	cancel()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("Serve goes on")
	}
}
