package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rung-dev/rung"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// writer writes one HTTP/1.x answer. It implements http.ResponseWriter and FlushError, and what is written is framed by
// it alone: RFC 9112 6.
type writer struct {
	mu     sync.Mutex // 100 (Continue) is written by whoever reads the body
	conn   net.Conn
	idle   time.Duration // that a write may take
	bw     *bufio.Writer
	header http.Header
	minor  int
	head   bool // the answer to HEAD
	close  bool // the connection ends with this answer
	// settle, if set, ends the reading of the request's body and sets close when the connection cannot be used again.
	settle func()
	begun  bool
	mode   mode
	left   int64 // in mode counted
	err    error
}

type mode int

const (
	none    mode = iota // no body may follow
	counted             // Content-Length
	chunked
	ending // the connection's end is the body's
)

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, pieceSize+1024) }}

func newWriter(conn net.Conn, idle time.Duration, minor int, head, closes bool) *writer {
	w := &writer{conn: conn, idle: idle, minor: minor, head: head, close: closes, header: http.Header{}}
	w.bw = writers.Get().(*bufio.Writer)
	w.bw.Reset(conn)
	return w
}

func (w *writer) Header() http.Header { return w.header }

// proceed tells a client that waits for it to send its body.
func (w *writer) proceed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return nil
	}
	_, _ = w.bw.WriteString("HTTP/1.1 100 Continue\r\n\r\n") // Flush returns its error
	return w.flush()
}

// WriteHeader writes the head of a final or an informational answer.
func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.begun:
		return
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		if w.minor == 1 { // RFC 9110 15.2: not to HTTP/1.0
			w.fields(status)
			w.err = w.flush()
		}
		return
	}
	w.begun = true
	w.frame(status)
	w.fields(status)
}

// frame decides how the body ends.
func (w *writer) frame(status int) {
	delete(w.header, "Transfer-Encoding")
	delete(w.header, "Connection")
	length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64)
	known := err == nil && length >= 0
	if !known {
		delete(w.header, "Content-Length")
	}
	switch {
	case status == http.StatusSwitchingProtocols:
		w.header["Connection"] = []string{"Upgrade"}
		return
	case w.head, status == http.StatusNoContent, status == http.StatusNotModified:
		w.mode = none
	case known:
		w.mode, w.left = counted, length
	case w.minor == 1:
		w.mode = chunked
		w.header["Transfer-Encoding"] = []string{"chunked"}
	default:
		w.mode, w.close = ending, true
	}
	if w.close {
		w.header["Connection"] = []string{"close"}
	}
}

// fields writes status line and fields; http.Header takes line breaks out of values and leaves invalid names out.
func (w *writer) fields(status int) {
	_, _ = w.bw.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	_ = w.header.Write(w.bw)
	_, _ = w.bw.WriteString("\r\n") // a bufio.Writer keeps its first error for Flush
}

// Write writes a piece of the body.
func (w *writer) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(p) == 0 {
		return 0, w.err
	}
	switch w.mode {
	case none:
		if w.head {
			return len(p), nil
		}
		return 0, rung.Errorf(rung.KindInvalid, "a body where none may be")
	case counted:
		if int64(len(p)) > w.left {
			return 0, rung.Errorf(rung.KindInvalid, "the body is longer than its Content-Length")
		}
		w.left -= int64(len(p))
	case chunked:
		_, _ = w.bw.WriteString(strconv.FormatInt(int64(len(p)), 16) + "\r\n")
		defer func() { _, _ = w.bw.WriteString("\r\n") }()
	}
	w.deadline()
	return w.bw.Write(p)
}

// FlushError sends what is buffered.
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.flush()
	}
	return w.err
}

func (w *writer) flush() error {
	w.deadline()
	return w.bw.Flush()
}

func (w *writer) deadline() {
	_ = w.conn.SetWriteDeadline(time.Now().Add(w.idle)) // fails on a closed connection, as the write will
}

// finish ends the answer. The error means that the client has not got all of it, or does not know its end.
func (w *writer) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.err
	case !w.begun:
		return io.ErrNoProgress
	case w.mode == counted && w.left > 0:
		_ = w.flush() // what there is; the connection breaks off behind it
		return io.ErrUnexpectedEOF
	case w.mode == chunked:
		_, _ = w.bw.WriteString("0\r\n\r\n")
	}
	w.err = w.flush()
	return w.err
}

// release gives the buffer back.
func (w *writer) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bw.Reset(nil)
	writers.Put(w.bw)
	w.bw, w.err, w.begun = nil, io.ErrClosedPipe, true
}
