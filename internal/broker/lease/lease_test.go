package lease

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker"
	"github.com/rung-dev/rung/internal/broker/agent"
	"github.com/rung-dev/rung/internal/broker/identity"
	"github.com/rung-dev/rung/internal/broker/source"
)

const value = "s3cr3t-value-0123456789"

// gate is the other end: it takes one message.
type gate struct {
	conn net.Conn // the broker's end
	got  chan []byte
}

func newGate(t *testing.T) *gate {
	t.Helper()
	here, there := net.Pipe()
	g := &gate{conn: here, got: make(chan []byte, 1)}
	go func() {
		defer close(g.got)
		defer there.Close()
		var head [4]byte
		if _, err := io.ReadFull(there, head[:]); err != nil {
			return
		}
		text := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(there, text); err == nil {
			g.got <- text
		}
	}()
	t.Cleanup(func() { here.Close() })
	return g
}

// lease waits for the gate's end and returns what it was lent; nil for nothing.
func (g *gate) lease(t *testing.T) *rung.Lease {
	t.Helper()
	g.conn.Close()
	text, ok := <-g.got
	if !ok {
		return nil
	}
	var l rung.Lease
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatal(err)
	}
	return &l
}

func stored(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	s, err := broker.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, text := range map[string]string{"TOKEN": value, "LINES": value + "\nb", "SHORT": "1234567", "LONG": strings.Repeat("x", rung.MaxSecretSent+1), "KEY": "AKID:" + value} {
		if err := s.Add(t.Context(), name, broker.FromStdin, rung.SecretValue(text), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddExec(t.Context(), "MADE", source.Exec{Argv: []string{"/bin/echo", "made-by-echo"}}, false); err != nil {
		t.Fatal(err)
	}
	return state
}

func ask(bindings ...string) Request {
	q := Request{Sandbox: "r1", Agent: "builder", TTL: time.Hour}
	for _, text := range bindings {
		b, err := rung.ParseSecretFlag(text)
		if err != nil {
			panic(err) // a test's own text
		}
		q.Bindings = append(q.Bindings, b)
	}
	return q
}

func TestGrant(t *testing.T) {
	state, g := stored(t), newGate(t)
	q := ask("TOKEN@api.example,other.example:header=X-Key", "MADE@m.example:query", "KEY@*.aws.example:sigv4=s3/r", "KEY@db.aws.example:sigv4=dynamodb/r")
	q.Audiences = []string{"https://api.example"}
	a, err := Grant(t.Context(), state, q, g.conn)
	if err != nil {
		t.Fatal(err)
	}
	l := g.lease(t)
	if l == nil || l.ID != a.Lease || l.Sandbox != "r1" || l.Agent != "builder" || !l.Expires.Equal(a.Expires) || len(l.Secrets) != 4 {
		t.Fatalf("%v", l)
	}
	if string(l.Secrets[0].Value) != value || string(l.Secrets[1].Value) != "made-by-echo" || string(l.Secrets[3].Value) != "AKID:"+value || l.Secrets[0].Header != "X-Key" {
		t.Error("the gate got other values")
	}
	if len(a.Secrets) != 3 || l.Secrets[2].Placeholder != l.Secrets[3].Placeholder {
		t.Errorf("%v", a)
	}
	seen := map[string]bool{}
	for _, p := range a.Secrets {
		if !rung.IsPlaceholder(p.Placeholder) || seen[p.Placeholder] {
			t.Errorf("%v", p)
		}
		seen[p.Placeholder] = true
	}
	public, err := json.Marshal(a)
	if err != nil || strings.Contains(string(public), "s3cr3t") || strings.Contains(string(public), "made") {
		t.Errorf("the answer has a value: %s, %v", public, err)
	}
	key, err := identity.Load(state)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := key.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c, err := identity.Verify(string(l.Identity[0].Current(now)), doc, "https://api.example", now)
	if err != nil || c.Subject != "rung://agent/builder/task/r1" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestPlaceholdersAreKept(t *testing.T) {
	state := stored(t)
	first, err := Grant(t.Context(), state, ask("TOKEN@api.example"), newGate(t).conn)
	if err != nil {
		t.Fatal(err)
	}
	q := ask("TOKEN@api.example")
	q.Placeholders = map[string]string{"TOKEN": first.Secrets[0].Placeholder}
	again, err := Grant(t.Context(), state, q, newGate(t).conn)
	if err != nil || again.Secrets[0] != first.Secrets[0] || again.Lease == first.Lease {
		t.Errorf("%v, %v, %v", first, again, err)
	}
}

func TestGrantRefuses(t *testing.T) {
	state := stored(t)
	if _, err := agent.Mark(t.Context(), state, "bad", ""); err != nil {
		t.Fatal(err)
	}
	revoked := ask("TOKEN@api.example")
	revoked.Agent = "bad"
	for name, c := range map[string]struct {
		q    Request
		kind rung.Kind
	}{
		"no such secret": {ask("NONE@api.example"), rung.KindNotFound},
		"revoked":        {revoked, rung.KindRefused},
		"a line end":     {ask("LINES@api.example"), rung.KindInvalid},
		"too short":      {ask("SHORT@api.example:body"), rung.KindInvalid},
		"too long":       {ask("LONG@api.example"), rung.KindInvalid},
		"no key pair":    {ask("TOKEN@api.example:sigv4=s3/r"), rung.KindInvalid},
	} {
		g := newGate(t)
		a, err := Grant(t.Context(), state, c.q, g.conn)
		if rung.KindOf(err) != c.kind || a.Lease != "" || strings.Contains(fmt.Sprint(err, rung.HintOf(err)), "s3cr3t") {
			t.Errorf("%s: %v, %v", name, a, err)
		}
		if l := g.lease(t); l != nil {
			t.Errorf("%s: the gate got %v", name, l)
		}
	}
}

func TestGateThatDoesNotTake(t *testing.T) {
	state := stored(t)
	here, there := net.Pipe()
	there.Close()
	if _, err := Grant(t.Context(), state, ask("TOKEN@api.example"), here); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("gone: %v", err)
	}
	mute, other := net.Pipe()
	defer other.Close()
	if _, err := Grant(t.Context(), state, ask("TOKEN@api.example"), mute); rung.KindOf(err) != rung.KindTimeout {
		t.Errorf("mute: %v", err)
	}
}

// TestRevokedWhileAsked: the source takes its time, the agent is revoked meanwhile, and the value goes nowhere.
func TestRevokedWhileAsked(t *testing.T) {
	state := stored(t)
	pipe := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := broker.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.AddExec(t.Context(), "SLOW", source.Exec{Argv: []string{"/bin/cat", pipe}}, false); err != nil {
		t.Fatal(err)
	}
	g, done := newGate(t), make(chan error, 1)
	go func() {
		_, err := Grant(t.Context(), state, ask("SLOW@api.example"), g.conn)
		done <- err
	}()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the source is being asked
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Mark(t.Context(), state, "builder", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(value); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-done; rung.KindOf(err) != rung.KindRefused {
		t.Errorf("%v", err)
	}
	if l := g.lease(t); l != nil {
		t.Errorf("the gate got %v", l)
	}
}

func TestParse(t *testing.T) {
	good, err := json.Marshal(ask("TOKEN@api.example"))
	if err != nil {
		t.Fatal(err)
	}
	if q, err := Parse(strings.NewReader(string(good))); err != nil || q.Bindings[0].Name != "TOKEN" || q.TTL != time.Hour {
		t.Errorf("%v, %v", q, err)
	}
	twice, err := json.Marshal(ask("TOKEN@api.example", "TOKEN@other.example"))
	if _, parsed := Parse(strings.NewReader(string(twice))); err != nil || !strings.Contains(fmt.Sprint(parsed), "bound twice") {
		t.Errorf("%v, %v", parsed, err)
	}
	nobody := strings.Replace(string(good), `"builder"`, `""`, 1)
	if q, err := Parse(strings.NewReader(nobody)); err != nil || q.Agent != rung.DefaultAgent {
		t.Errorf("%v, %v", q, err)
	}
	for _, bad := range []string{
		"", "{}", "[]", string(good) + "{}", strings.Replace(string(good), `"sandbox"`, `"box"`, 1),
		strings.Replace(string(good), `"r1"`, `"../r1"`, 1), strings.Replace(string(good), `"builder"`, `"/"`, 1),
		strings.Replace(string(good), `"api.example"`, `"10.0.0.1"`, 1), strings.Replace(string(good), `3600000000000`, `-1`, 1),
		strings.Replace(string(good), `3600000000000`, `360000000000000`, 1),
		strings.Replace(string(good), `"ttl_ns"`, `"audiences":["a b"],"ttl_ns"`, 1),
		strings.Replace(string(good), `"ttl_ns"`, `"placeholders":{"A":"x"},"ttl_ns"`, 1),
		strings.Repeat(" ", MaxRequest+1),
	} {
		if q, err := Parse(strings.NewReader(bad)); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%.80q: %v, %v", bad, q, err)
		}
	}
}
