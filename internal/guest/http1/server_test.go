package http1

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung/api/wire"
)

// talk sends raw bytes to a server with an echoing handler and returns everything it answers.
func talk(t testing.TB, raw []byte) string {
	t.Helper()
	client, server := net.Pipe()
	s := &Server{Handler: echo}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer server.Close()
		s.serve(server)
	}()
	go func() {
		client.Write(raw)
		<-time.After(50 * time.Millisecond) // then the client is silent: an answer that needs more is not coming
		client.Close()
	}()
	out, _ := io.ReadAll(client)
	<-done
	return string(out)
}

func echo(w *Response, r *Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		w.Text(400, err.Error())
		return
	}
	w.Send(200, []byte(r.Method+" "+r.Path+" "+string(body)))
}

func TestFraming(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"get", "GET /a%20b HTTP/1.1\r\nHost: x\r\n\r\n", "200 GET /a b "},
		{"length", "POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "200 POST /p abc"},
		{"chunked", "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: x\r\n\r\n", "200 POST /p abcde"},
		{"pipeline", "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", "200 GET /a 200 GET /b "},
		{"both framings", "POST /p HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"two lengths", "POST /p HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "400"},
		{"signed length", "POST /p HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc", "400"},
		{"length list", "POST /p HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc", "400"},
		{"coding", "POST /p HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "400"},
		{"bare LF", "GET /a HTTP/1.1\nHost: x\n\n", "400"},
		{"folded", "GET /a HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "400"},
		{"space in name", "GET /a HTTP/1.1\r\nA : b\r\n\r\n", "400"},
		{"bad chunk", "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n", "400"},
		{"chunk without end", "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", "400"},
		{"version", "GET /a HTTP/1.0\r\n\r\n", "505"},
		{"http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
		{"absolute", "GET http://x/a HTTP/1.1\r\n\r\n", "400"},
		{"long head", "GET /a HTTP/1.1\r\nA: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", "400"},
		{"many fields", "GET /a HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 101) + "\r\n", "400"},
		{"nothing", "", ""},
	} {
		var got strings.Builder
		for out := bufio.NewReader(strings.NewReader(talk(t, []byte(c.raw)))); ; {
			resp, err := http.ReadResponse(out, nil)
			if err != nil {
				break
			}
			body, _ := io.ReadAll(resp.Body)
			got.WriteString(resp.Status[:3])
			if resp.StatusCode == 200 {
				got.WriteString(" " + string(body))
			}
		}
		if got.String() != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got.String(), c.want)
		}
	}
}

// net/http must agree on every request that is accepted here: where they differ, one of them could be smuggled past.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST /p?q=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, status := readRequest(bufio.NewReader(bytes.NewReader(raw)))
		if status != 0 {
			return
		}
		body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
		if err != nil {
			return
		}
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // stricter than we are: nothing is smuggled past somebody who refuses
		}
		want, err := io.ReadAll(io.LimitReader(theirs.Body, 1<<20))
		if err != nil || theirs.Method != req.Method {
			return
		}
		if !bytes.Equal(body, want) {
			t.Errorf("bodies differ: %q, net/http has %q", body, want)
		}
	})
}

func TestWatchSeesTheClientLeave(t *testing.T) {
	client, server := net.Pipe()
	gone := make(chan struct{})
	s := &Server{Handler: func(w *Response, r *Request) {
		w.Last()
		r.Watch()
		w.Stream(func(buf []byte) []byte { return wire.AppendChunk(buf, []byte("x")) })
		<-r.Context.Done()
		close(gone)
	}}
	go s.serve(server)
	io.WriteString(client, "GET / HTTP/1.1\r\n\r\n")
	client.Read(make([]byte, 1000))
	client.Close()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Fatal("the handler was not told")
	}
}
