package client

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"testing"
)

// served is a guest that answers so many requests on each connection and then hangs up without a word, and counts the
// connections.
func served(perConn int, answer string) (g *Guest, dials *int) {
	dials = new(int)
	return New(func(context.Context) (net.Conn, error) {
		*dials++
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			br := bufio.NewReader(theirs)
			for range perConn {
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				var body bytes.Buffer
				_, _ = body.ReadFrom(req.Body)
				_, _ = theirs.Write([]byte(answer))
			}
		}()
		return ours, nil
	}), dials
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

func TestConnectionIsKept(t *testing.T) {
	g, dials := served(100, fine)
	for range 3 {
		if _, err := g.Measure(ctx(t)); err != nil {
			t.Fatal(err)
		}
		if err := g.Files("").Create(ctx(t), "/x", bytes.NewReader([]byte("content")), 0); err != nil {
			t.Fatal(err)
		}
	}
	if *dials != 1 {
		t.Errorf("%d connections for six calls", *dials)
	}
	g.Close()
	if err := g.Health(ctx(t)); err != nil || *dials != 2 {
		t.Errorf("after Close: %v, %d connections", err, *dials)
	}
}

// What says that it closes is not kept, nor what an answer has more bytes after than it announced.
func TestConnectionIsNotKept(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", fine + fine} {
		g, dials := served(100, answer)
		for range 2 {
			if _, err := g.Measure(ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		if *dials != 2 {
			t.Errorf("%q: %d connections for two calls", answer, *dials)
		}
	}
}

// A kept connection that turns out to be closed costs another one, not the call.
func TestClosedConnectionIsReplaced(t *testing.T) {
	g, dials := served(1, fine)
	for range 3 {
		if _, err := g.Measure(ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	if *dials != 3 {
		t.Errorf("%d connections for three calls", *dials)
	}
	g, dials = served(0, "")
	if _, err := g.Measure(ctx(t)); err == nil || *dials != 2 {
		t.Errorf("a guest that always hangs up: %v after %d connections", err, *dials)
	}
}
