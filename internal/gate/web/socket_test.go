package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung/internal/gate/secret"
)

const wsKey = "dGhlIHNhbXBsZSBub25jZQ=="

// wsFrame is one frame, masked as a client's.
func wsFrame(first byte, payload []byte, masked bool) []byte {
	out := []byte{first}
	bit := byte(0)
	if masked {
		bit = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		out = append(out, bit|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, bit|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, bit|127), uint64(n))
	}
	if !masked {
		return append(out, payload...)
	}
	key := []byte{1, 2, 3, 4}
	out = append(out, key...)
	for i, b := range payload {
		out = append(out, b^key[i%4])
	}
	return out
}

// echo is an upstream that sends each message back as the server's frame.
func echo(t testing.TB, accept func(key string) string, extra string) (string, func() http.Header) {
	var seen http.Header
	addr, _ := origin(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
			accept(r.Header.Get("Sec-Websocket-Key"))+"\r\n"+extra+"\r\n")
		f := &frames{from: rw.Reader, masked: true, idle: time.NewTimer(time.Hour)}
		for {
			h, err := f.head()
			if err != nil {
				return
			}
			b := make([]byte, h.length)
			if _, err := io.ReadFull(rw.Reader, b); err != nil {
				return
			}
			for i := range b {
				b[i] ^= h.mask[i%4]
			}
			if _, err := c.Write(wsFrame(h.raw[0], b, false)); err != nil {
				return
			}
		}
	})
	return addr, func() http.Header { return seen }
}

func accepted(key string) string {
	sum := sha1.Sum([]byte(key + guid))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// upgrade opens a WebSocket through the gate.
func (g *gate) upgrade(t testing.TB, fields ...string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	if g.session.TLS {
		c = tls.Client(c, &tls.Config{ServerName: name, RootCAs: g.roots(), NextProtos: []string{"http/1.1"}})
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	all := append([]string{
		"GET /ws HTTP/1.1", "Host: " + name, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: " + wsKey,
	}, fields...)
	_, _ = io.WriteString(c, lines(all...))
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, br, res
}

func TestWebSocketPasses(t *testing.T) {
	addr, seen := echo(t, accepted, "")
	var asked Request
	s, p := secrets(t, name, nil)
	g := newGate(t, addr, options{secrets: s, judge: func(_ context.Context, r Request) Verdict {
		asked = r
		return Verdict{Allow: true, Path: r.Path}
	}})
	c, br, res := g.upgrade(t, "Sec-WebSocket-Extensions: permessage-deflate", "Authorization: Bearer "+p, "Origin: https://"+name)
	if res.StatusCode != 101 || !asked.WebSocket || res.Header.Get("Sec-Websocket-Accept") != accepted(wsKey) {
		t.Fatalf("%d %v, judged %+v", res.StatusCode, res.Header, asked)
	}
	h := seen()
	if h.Get("Authorization") != "Bearer "+token || len(h["Sec-Websocket-Extensions"]) != 0 || h.Get("Origin") == "" {
		t.Errorf("the origin received %v", h)
	}
	for _, test := range []struct{ in, want string }{
		{"hello", "hello"},
		{"", ""},
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{strings.Repeat("y", 300_000), strings.Repeat("y", 300_000)},
		{"the value is " + token + ".", "the value is " + strings.Repeat("*", len(token)) + "."},
		{strings.Repeat("z", 64<<10-5) + token + strings.Repeat("z", 100_000), strings.Repeat("z", 64<<10-5) + strings.Repeat("*", len(token)) + strings.Repeat("z", 100_000)},
	} {
		if _, err := c.Write(wsFrame(0x81, []byte(test.in), true)); err != nil {
			t.Fatal(err)
		}
		want := wsFrame(0x81, []byte(test.want), false)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%.40q came back as %.60q, %v", test.in, got, err)
		}
	}
}

func TestPain11_PlaceholderInAWebSocketEndsIt(t *testing.T) {
	addr, _ := echo(t, accepted, "")
	s, p := secrets(t, "other.example", nil)
	for name, sent := range map[string][]byte{
		"one message":    wsFrame(0x81, []byte("x "+p+" y"), true),
		"two fragments":  append(wsFrame(0x01, []byte("x "+p[:20]), true), wsFrame(0x80, []byte(p[20:]+" y"), true)...),
		"binary, base64": wsFrame(0x82, []byte(base64.StdEncoding.EncodeToString([]byte("a"+p+"b"))), true),
		"ping":           wsFrame(0x89, []byte(p+"."), true),
	} {
		g := newGate(t, addr, options{secrets: s})
		c, br, res := g.upgrade(t)
		if res.StatusCode != 101 {
			t.Fatal(res.Status)
		}
		_, _ = c.Write(sent)
		got, _ := io.ReadAll(br)
		if bytes.Contains(got, []byte(p)) {
			t.Errorf("%s: it came back", name)
		}
		g.session.Pool.Close()
		_ = c.Close()
		waitFor(t, func() bool { return len(g.events.denials()) > 0 })
		if d := g.events.denials(); len(d) != 1 || d[0].Severity != "high" || d[0].Layer != "secret" {
			t.Errorf("%s: denials %+v", name, d)
		}
	}
}

// waitFor polls without sleeping longer than the scheduler's next turn.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("it did not happen")
		}
	}
}

func TestWebSocketFramesThatNoExtensionExplains(t *testing.T) {
	addr, _ := echo(t, accepted, "")
	for name, sent := range map[string][]byte{
		"not masked":         wsFrame(0x81, []byte("x"), false),
		"compressed":         wsFrame(0xc1, []byte("x"), true),
		"unknown opcode":     wsFrame(0x83, []byte("x"), true),
		"long ping":          wsFrame(0x89, make([]byte, 126), true),
		"fragmented ping":    wsFrame(0x09, nil, true),
		"enormous":           append([]byte{0x81, 0xff}, bytes.Repeat([]byte{0xff}, 12)...),
		"HTTP in its middle": []byte(lines("GET /hidden HTTP/1.1", "Host: api.example")),
	} {
		g := newGate(t, addr, options{})
		c, br, _ := g.upgrade(t)
		_, _ = c.Write(sent)
		if got, err := io.ReadAll(br); len(got) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestWebSocketHandshakeIsChecked(t *testing.T) {
	wrong, _ := echo(t, func(string) string { return accepted("x") }, "")
	extended, _ := echo(t, accepted, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
	plain, _ := origin(t, false, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) })
	for addr, status := range map[string]int{wrong: 502, extended: 502, plain: 418} {
		g := newGate(t, addr, options{})
		if _, _, res := g.upgrade(t); res.StatusCode != status {
			t.Errorf("%d, want %d", res.StatusCode, status)
		}
	}
	good, _ := echo(t, accepted, "")
	g := newGate(t, good, options{judge: func(_ context.Context, r Request) Verdict {
		return Verdict{Allow: !r.WebSocket, Path: r.Path, Reason: "no rule allows websockets there"}
	}})
	if _, _, res := g.upgrade(t); res.StatusCode != 403 {
		t.Errorf("not allowed: %d", res.StatusCode)
	}
	for _, raw := range []string{
		lines("GET / HTTP/1.1", "Host: api.example", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 8", "Sec-WebSocket-Key: "+wsKey),
		lines("GET / HTTP/1.1", "Host: api.example", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x"),
	} {
		if res := newGate(t, good, options{}).raw(t, raw, 1); len(res) != 1 || res[0].StatusCode != 403 {
			t.Errorf("%q: %v", raw, res)
		}
	}
}

// FuzzFrames: whatever one side sends, nothing is passed on that was not sent, and no more of it.
func FuzzFrames(f *testing.F) {
	f.Add(wsFrame(0x81, []byte("aaab-aaac"), false))
	f.Add(append(wsFrame(0x01, []byte("x"), false), wsFrame(0x80, []byte("YWFhYi1hYWFj"), false)...))
	s := secret.New()
	if _, err := s.Add(secret.Binding{Name: "K", Value: secret.Value("aaab-aaac"), Hosts: []string{name}}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, masked := range []bool{false, true} {
			var out bytes.Buffer
			in := &frames{from: bufio.NewReader(bytes.NewReader(raw)), to: &out, masked: masked, idle: time.NewTimer(time.Hour), blank: s.Blank}
			_ = in.run()
			if !bytes.HasPrefix(raw, out.Bytes()[:min(2, out.Len())]) || out.Len() > len(raw) {
				t.Fatalf("%x became %x", raw, out.Bytes())
			}
		}
	})
}
