package stream_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung/internal/gate/stack"
	"github.com/rung-dev/rung/internal/gate/stream"
)

// A sandbox's connection is ended by what this package looks for.
var _ stream.Aborter = (*stack.Conn)(nil)

func pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	return server, client
}

// aborter notes that it was asked, behind a wrapper.
type aborter struct {
	net.Conn
	asked bool
}

func (a *aborter) Abort() { a.asked = true }

func TestAbort(t *testing.T) {
	server, client := pair(t)
	stream.Abort(&stream.Prefixed{Conn: server, Prefix: []byte("x")})
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client reads %v, not a reset", err)
	}
	server, _ = pair(t)
	a := &aborter{Conn: server}
	if stream.Abort(&stream.Prefixed{Conn: a}); !a.asked {
		t.Error("a wrapper does not pass an abort on")
	}
}

func TestPrefixed(t *testing.T) {
	server, client := pair(t)
	if _, err := io.WriteString(client, "def"); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseWrite(&stream.Prefixed{Conn: client}); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(bufio.NewReader(&stream.Prefixed{Conn: server, Prefix: []byte("abc")}))
	if err != nil || string(text) != "abcdef" {
		t.Errorf("%q, %v", text, err)
	}
	one, other := net.Pipe()
	defer other.Close()
	if err := stream.CloseWrite(&stream.Prefixed{Conn: one}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a pipe has no halves: %v", err)
	}
}
