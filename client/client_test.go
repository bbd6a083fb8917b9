package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/api/wire"
)

// liar is a guest that answers every connection with the same bytes.
func liar(answer []byte) *Guest {
	return New(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		go func() {
			theirs.Write(answer)
			theirs.Close()
		}()
		return ours, nil
	})
}

func stream(envelopes ...[]byte) []byte {
	out := []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, e := range envelopes {
		out = wire.AppendChunk(out, e)
	}
	return append(out, wire.LastChunk...)
}

func message(flags byte, text string) []byte { return wire.AppendEnvelope(nil, flags, []byte(text)) }

const startEvent = `{"event":{"start":{"pid":7}}}`

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return c
}

func TestStreamForms(t *testing.T) {
	g := liar(stream(
		message(0, startEvent),
		message(0, `{"event":{"data":{"stdout":"aGVsbG8="}}}`),
		message(0, `{ "event" : { "data" : { "stdout" : "IHRo" } } , "new" : 1 }`),
		message(0, `{"event":{"keepalive":{}}}`),
		message(0, `{"event":{"data":{"stderr":"ZXJy"}}}`),
		message(0, `{"event":{"data":{"pty":"ZXJl"}}}`),
		message(0, `{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}`),
		message(wire.FlagEnd, `{}`),
	))
	p, err := g.Start(ctx(t), Cmd{Path: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	exit, err := p.Wait(&out, &errs)
	if err != nil || out.String() != "hello there" || errs.String() != "err" || exit.Code != -1 || exit.Signal() != 9 || p.PID != 7 {
		t.Errorf("%q %q %+v %v", out.String(), errs.String(), exit, err)
	}
}

func TestHostileStreams(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte
		kind   rung.Kind
	}{
		"nothing":            {nil, rung.KindUnavailable},
		"no HTTP":            {[]byte("hello\r\n\r\n"), rung.KindUnavailable},
		"endless head":       {[]byte("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 100_000)), rung.KindUnavailable},
		"endless line":       {[]byte("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20)), rung.KindUnavailable},
		"no start":           {stream(message(0, `{"event":{"end":{}}}`)), rung.KindUnavailable},
		"no JSON":            {stream(message(0, `<html>`)), rung.KindUnavailable},
		"pid 0":              {stream(message(0, `{"event":{"start":{}}}`)), rung.KindUnavailable},
		"large envelope":     {stream([]byte{0, 0xff, 0xff, 0xff, 0xff}), rung.KindExhausted},
		"compressed":         {stream(message(1, startEvent)), rung.KindUnavailable},
		"end at once":        {stream(message(wire.FlagEnd, `{}`)), rung.KindUnavailable},
		"error at once":      {stream(message(wire.FlagEnd, `{"error":{"code":"not_found","message":"\u001b[2Jx"}}`)), rung.KindNotFound},
		"no end":             {stream(message(0, startEvent)), rung.KindUnavailable},
		"no end event":       {stream(message(0, startEvent), message(wire.FlagEnd, `{}`)), rung.KindUnavailable},
		"bad base64":         {stream(message(0, startEvent), message(0, `{"event":{"data":{"stdout":"!"}}}`)), rung.KindUnavailable},
		"bad end":            {stream(message(0, startEvent), message(wire.FlagEnd, `[`)), rung.KindUnavailable},
		"cut":                {stream(message(0, startEvent), message(0, `{"event":{"data":{"stdout":"aGVsbG8="}}}`))[:120], rung.KindUnavailable},
		"unary error":        {[]byte("HTTP/1.1 404 X\r\nContent-Length: 33\r\n\r\n" + `{"code":"not_found","message":"m"}`), rung.KindNotFound},
		"page as an error":   {[]byte("HTTP/1.1 502 X\r\nContent-Length: 6\r\n\r\n<html>"), rung.KindUnavailable},
		"both framings":      {[]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), rung.KindUnavailable},
		"status out of form": {[]byte("HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"), rung.KindUnavailable},
	} {
		p, err := liar(c.answer).Start(ctx(t), Cmd{Path: "x"})
		if err == nil {
			_, err = p.Wait(io.Discard, io.Discard)
		}
		if err == nil || rung.KindOf(err) != c.kind && name != "unary error" {
			t.Errorf("%s: %v (%s), want %s", name, err, rung.KindOf(err), c.kind)
		}
		if err != nil && strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%s: an escape sequence in the error: %q", name, err.Error())
		}
	}
}

func TestSilentGuest(t *testing.T) {
	g := New(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		return ours, nil
	})
	c, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Start(c, Cmd{Path: "x"}); rung.KindOf(err) != rung.KindTimeout {
		t.Errorf("start: %v", err)
	}
	if err := g.Health(c); rung.KindOf(err) != rung.KindTimeout {
		t.Errorf("health: %v", err)
	}
	canceled, stop := context.WithCancel(context.Background())
	stop()
	if _, err := g.Start(canceled, Cmd{Path: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{"/a/../b", "relative", "/other/x", "/dir", "/dir/", "/dir/a//b", "/dir/\x00", "", "/dirx/y", "/dir/."} {
		body := wire.Marshal(wire.ListDirResponse{Entries: []*wire.EntryInfo{{Path: name, Type: wire.TypeFile}}})
		answer := append([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"), wire.AppendChunk(nil, body)...)
		if list, err := liar(append(answer, wire.LastChunk...)).Files("").List(ctx(t), "/dir", 1); err == nil {
			t.Errorf("%q was accepted: %+v", name, list)
		}
	}
}

func TestShortFile(t *testing.T) {
	r, err := liar([]byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")).Files("").Open(ctx(t), "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err == nil || string(b) != "abc" {
		t.Errorf("%q %v", b, err)
	}
}

// A failing source must not look like a complete file to the guest.
func TestFailingUpload(t *testing.T) {
	got := make(chan []byte, 1)
	g := New(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			b, _ := io.ReadAll(theirs)
			got <- b
		}()
		return ours, nil
	})
	source := io.MultiReader(strings.NewReader("abc"), failing{})
	if err := g.Files("").Create(ctx(t), "/x", source, 0); err == nil {
		t.Error("no error")
	}
	if b := <-got; bytes.HasSuffix(b, []byte(wire.LastChunk)) {
		t.Errorf("the body was ended: %q", b)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func FuzzAnswer(f *testing.F) {
	f.Add(stream(message(0, startEvent), message(0, `{"event":{"data":{"stdout":"aGVsbG8="}}}`), message(0, `{"event":{"end":{"exited":true}}}`), message(wire.FlagEnd, `{}`)))
	f.Fuzz(func(t *testing.T, answer []byte) {
		p, err := liar(answer).Start(ctx(t), Cmd{Path: "x"})
		if err != nil {
			return
		}
		var out bytes.Buffer
		p.Wait(&out, &out)
		if out.Len() > len(answer) {
			t.Fatal("more came out than went in")
		}
	})
}
