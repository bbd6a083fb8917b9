package web

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// tape is a client connection that says one text and hears nothing.
type tape struct {
	net.Conn
	*bytes.Reader
}

func (t tape) Read(b []byte) (int, error)       { return t.Reader.Read(b) }
func (t tape) Write(b []byte) (int, error)      { return len(b), nil }
func (t tape) Close() error                     { return nil }
func (t tape) SetReadDeadline(time.Time) error  { return nil }
func (t tape) SetWriteDeadline(time.Time) error { return nil }

// lenient is an upstream that reads requests as net/http does and keeps the lines of those that were whole.
type lenient struct {
	mu  sync.Mutex
	got []string
	wg  sync.WaitGroup
}

func (l *lenient) Dial(context.Context, string, int) (net.Conn, error) {
	ours, theirs := net.Pipe()
	l.wg.Go(func() {
		defer func() { _ = theirs.Close() }()
		br := bufio.NewReader(theirs)
		for {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			l.mu.Lock()
			l.got = append(l.got, r.Method+" "+strings.TrimSuffix(r.RequestURI, "?")+" "+r.Host)
			l.mu.Unlock()
			if _, err := io.WriteString(theirs, okAnswer); err != nil {
				return
			}
		}
	})
	return ours, nil
}

// FuzzServe: whatever a client says, upstream reads the requests that were judged, in their order, and no other.
func FuzzServe(f *testing.F) {
	for _, raw := range smuggled {
		f.Add([]byte(raw))
	}
	f.Add([]byte(lines("GET /1?a HTTP/1.1", "Host: api.example") + lines("PUT /2 HTTP/1.1", "Host: api.example", "Content-Length: 2") + "xx" +
		lines("POST /3 HTTP/1.1", "Host: api.example", "Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n" + lines("GET /4 HTTP/1.1", "Host: api.example")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		up := &lenient{}
		pool := NewPool(up, nil)
		var judged []string
		err := Serve(context.Background(), Session{
			Client: tape{Reader: bytes.NewReader(raw)}, Name: name, Port: 80, Pool: pool, Sink: &events{},
			Judge: judge(func(_ context.Context, r Request) Verdict {
				judged = append(judged, r.Method+" "+strings.TrimSuffix(r.Path+"?"+r.Query, "?")+" "+name)
				return Verdict{Allow: true, Path: r.Path}
			}),
		})
		pool.Close()
		up.wg.Wait()
		rest := judged
		for _, got := range up.got {
			i := slices.Index(rest, got)
			if i < 0 {
				t.Fatalf("judged %q, upstream read %q (%v)", judged, up.got, err)
			}
			rest = rest[i+1:]
		}
	})
}
