package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

func TestEnvelope(t *testing.T) {
	stream := AppendEnvelope(AppendEnvelope(nil, 0, []byte("one")), FlagEnd, nil)
	r := bytes.NewReader(stream)
	flags, msg, err := ReadEnvelope(r, nil, 10)
	if flags != 0 || string(msg) != "one" || err != nil {
		t.Errorf("%d %q %v", flags, msg, err)
	}
	flags, msg, err = ReadEnvelope(r, msg, 10)
	if flags != FlagEnd || len(msg) != 0 || err != nil {
		t.Errorf("%d %q %v", flags, msg, err)
	}
	if _, _, err := ReadEnvelope(r, nil, 10); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	for cut := 1; cut < 8; cut++ {
		if _, _, err := ReadEnvelope(bytes.NewReader(stream[:cut]), nil, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if _, _, err := ReadEnvelope(bytes.NewReader(stream), nil, 2); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, _, err := ReadEnvelope(strings.NewReader("\x01\x00\x00\x00\x00"), nil, 2); err == nil {
		t.Error("a compressed envelope was accepted")
	}
}

// An announced length costs no memory before the bytes are there.
func TestEnvelopeMemory(t *testing.T) {
	head := []byte{0, 0, 0xff, 0xff, 0xff}
	got := testing.AllocsPerRun(10, func() {
		_, buf, _ := ReadEnvelope(bytes.NewReader(head), nil, MaxMessage)
		if cap(buf) > 2*step {
			t.Errorf("%d bytes were allocated", cap(buf))
		}
	})
	if got > 10 {
		t.Errorf("%v allocations", got)
	}
}

func TestChunks(t *testing.T) {
	var all []byte
	all = AppendChunk(all, []byte("hello "))
	all = AppendChunk(all, nil)
	all = append(AppendChunk(all, bytes.Repeat([]byte("x"), 70000)), LastChunk...)
	got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(all)))
	if err != nil || len(got) != 70006 {
		t.Errorf("net/http reads %d bytes, %v", len(got), err)
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]string{
		`"+/8="`: "\xfb\xff", `"-_8="`: "\xfb\xff", `"-_8"`: "\xfb\xff", `"+/8"`: "\xfb\xff", `""`: "", `null`: "",
	} {
		var b Bytes
		if err := json.Unmarshal([]byte(in), &b); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", in, b, err)
		}
	}
	var b Bytes
	for _, in := range []string{`"a"`, `"a b="`, `5`, `[1]`} {
		if err := json.Unmarshal([]byte(in), &b); err == nil {
			t.Errorf("%s was accepted", in)
		}
	}
}

func TestCodes(t *testing.T) {
	for _, c := range []Code{InvalidArgument, Unauthenticated, PermissionDenied, NotFound, AlreadyExists, ResourceExhausted, Unimplemented, Unavailable, DeadlineExceeded} {
		if got := CodeOf(c.HTTPStatus()); got != c {
			t.Errorf("%s comes back as %s", c, got)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(AppendEnvelope(AppendEnvelope(nil, 0, []byte(`{"event":{}}`)), FlagEnd, []byte("{}")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var buf []byte
		total := 0
		for r := bufio.NewReader(bytes.NewReader(raw)); ; {
			_, msg, err := ReadEnvelope(r, buf, 1<<20)
			if err != nil {
				break
			}
			if total += EnvelopeHeader + len(msg); total > len(raw) {
				t.Fatal("more came out than went in")
			}
			buf = msg
		}
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		br := bufio.NewReader(bytes.NewReader(raw))
		start, h, err := ReadHead(br)
		if err != nil {
			return
		}
		if strings.ContainsAny(start, "\r\n\x00") || len(h) > maxFields {
			t.Fatalf("%q %d", start, len(h))
		}
		for _, f := range h {
			if strings.ContainsAny(f.Name+f.Value, "\r\n\x00") || f.Name == "" {
				t.Fatalf("%q", f)
			}
		}
		body, err := NewBody(br, h)
		if err != nil {
			return
		}
		if n, _ := io.Copy(io.Discard, body); n > int64(len(raw)) {
			t.Fatal("more came out than went in")
		}
	})
}
