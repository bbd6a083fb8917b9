package mux

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

func pair(t testing.TB) (*Session, net.Listener) {
	t.Helper()
	a, b := net.Pipe()
	s, err := Open(a)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		ln.Close()
	})
	return s, ln
}

func TestManyConnections(t *testing.T) {
	s, ln := pair(t)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := s.Dial(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			data := make([]byte, 1<<20)
			rand.Read(data)
			go conn.Write(data)
			got := make([]byte, len(data))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("echo: %v", err)
			}
		})
	}
	all.Wait()
	if s.Err() != nil {
		t.Errorf("session: %v", s.Err())
	}
}

func TestDialIsCapped(t *testing.T) {
	s, _ := pair(t)
	for range maxStreams {
		if _, err := s.Dial(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Dial(context.Background()); err == nil {
		t.Error("no cap")
	}
}

func TestEnds(t *testing.T) {
	s, ln := pair(t)
	ln.Close()
	ended(t, s)
	if err := s.Err(); err == nil || errors.Is(err, ErrViolation) {
		t.Errorf("guest left: %v", err)
	}
	if _, err := s.Dial(context.Background()); err == nil {
		t.Error("dialled an ended session")
	}
	s, ln = pair(t)
	s.Close()
	if _, err := ln.Accept(); err == nil {
		t.Error("accepted after the holder left")
	}
	if s.Err() != nil {
		t.Errorf("closed by its owner: %v", s.Err())
	}
}

func ended(t testing.TB, s *Session) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the session goes on")
	}
}

func frame(kind byte, flags uint16, stream, length uint32, body string) []byte {
	b := make([]byte, headerSize)
	b[1] = kind
	binary.BigEndian.PutUint16(b[2:], flags)
	binary.BigEndian.PutUint32(b[4:], stream)
	binary.BigEndian.PutUint32(b[8:], length)
	return append(b, body...)
}

// hostile feeds a session with one dialled connection what a hostile guest sends, and reads nothing.
func hostile(t testing.TB, raw []byte, step int) (*Session, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	s, err := Open(ours)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, theirs)
	conn, err := s.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for len(raw) > 0 {
		n := min(step, len(raw))
		if _, err := theirs.Write(raw[:n]); err != nil {
			break // the session has ended: that is what is wanted
		}
		raw = raw[n:]
	}
	t.Cleanup(func() {
		s.Close()
		theirs.Close()
	})
	return s, conn
}

func TestViolations(t *testing.T) {
	for name, raw := range map[string][]byte{
		"opens a stream":         frame(typeWindow, 1, 2, 0, ""),
		"opens ours again":       frame(typeWindow, 1, 1, 0, ""),
		"stream never opened":    frame(typeData, 0, 3, 1, "x"),
		"stream 0":               frame(typeData, 0, 0, 1, "x"),
		"ping":                   frame(2, 1, 0, 7, ""),
		"pong":                   frame(2, 2, 0, 7, ""),
		"goodbye":                frame(3, 0, 0, 0, ""),
		"unknown type":           frame(9, 0, 1, 0, ""),
		"unknown flag":           frame(typeData, 1<<9, 1, 0, ""),
		"more than a window":     frame(typeData, 0, 1, window+1, ""),
		"version":                append([]byte{1}, frame(typeData, 0, 1, 0, "")[1:]...),
		"text":                   []byte("HTTP/1.1 200 OK\r\n\r\n"),
		"good, then bad":         append(frame(typeData, flagACK, 1, 2, "ok"), frame(2, 1, 0, 0, "")...),
		"bad hidden in a body":   append(frame(typeData, flagACK, 1, 12, string(frame(2, 1, 0, 0, ""))), frame(3, 0, 0, 0, "")...),
		"window of another size": frame(typeWindow, 0, 1, 1<<31, ""),
	} {
		for _, step := range []int{1, 5, 1 << 20} {
			s, _ := hostile(t, raw, step)
			ended(t, s)
			if !errors.Is(s.Err(), ErrViolation) {
				t.Errorf("%s, %d bytes at a time: %v", name, step, s.Err())
			}
		}
	}
}

// More data than the window is yamux's own check: it too must end the session.
func TestWindowIsKept(t *testing.T) {
	raw := frame(typeData, flagACK, 1, window, string(make([]byte, window)))
	s, _ := hostile(t, append(raw, frame(typeData, 0, 1, 1, "x")...), 1<<20)
	ended(t, s)
	if s.Err() == nil {
		t.Error("no reason")
	}
}

// Whatever the guest sends, the holder does not panic, keeps to its memory, and ends when told to.
func FuzzHolder(f *testing.F) {
	f.Add(frame(typeData, flagACK, 1, 3, "abc"), 1)
	f.Add(append(frame(typeWindow, flagACK, 1, 1024, ""), frame(typeData, flagFIN, 1, 0, "")...), 7)
	f.Add(append(frame(typeWindow, flagRST, 1, 0, ""), frame(typeData, flagACK, 1, 5, "later")...), 64)
	f.Fuzz(func(t *testing.T, raw []byte, step int) {
		s, conn := hostile(t, raw, max(step&0xffff, 1))
		conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
		n, _ := io.Copy(io.Discard, conn)
		if n > int64(len(raw)) {
			t.Errorf("%d bytes of %d", n, len(raw))
		}
		conn.Write([]byte("x"))
		conn.Close()
		if s.y.NumStreams() > 1 {
			t.Errorf("%d streams", s.y.NumStreams())
		}
		s.Close()
		ended(t, s)
	})
}
