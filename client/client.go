// Package client talks to rung-guest, the agent inside a sandbox: it starts processes in the shape of os/exec and moves
// files. It needs only a way to dial the guest, such as driver.Instance.Dial.
//
// The guest is hostile to its client: once user code has run, nothing it says is evidence, and whatever it sends is
// bounded here before memory is spent on it. What a Guest returns about a process is the guest's claim; time-outs and ends
// that matter are decided outside the sandbox. Errors are of package rung, with their kind.
//
// The package uses the framing of api/wire and not net/http, which would add a millisecond to every start of rung.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/api/wire"
)

// Guest is one rung-guest. It may be used by several goroutines at once. It keeps at most one connection from one call to
// the next, since each is a goroutine or two in three processes; Close ends it.
type Guest struct {
	// Dial opens a connection to the guest. The client bounds it with the context of the call.
	Dial func(ctx context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle *idle // guarded by mu
}

// New returns the guest that dial reaches.
func New(dial func(ctx context.Context) (net.Conn, error)) *Guest { return &Guest{Dial: dial} }

const (
	// callTimeout bounds every call that has no stream and no deadline of its own.
	callTimeout = 30 * time.Second
	// maxAnswer caps the body of an answer that is held in memory.
	maxAnswer = 32 << 20
)

// idle is a connection whose last answer was read to its end.
type idle struct {
	conn  net.Conn
	br    *bufio.Reader
	since time.Time
}

// maxIdle is how long a connection may wait for its next call: less than the guest's own patience, so that no request is
// sent to somebody who has just hung up.
const maxIdle = 30 * time.Second

// Close ends the connection that waits for another call, if there is one. The guest may be used again.
func (g *Guest) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		g.idle.conn.Close()
		g.idle = nil
	}
}

// connect takes the connection that waits, or opens one.
func (g *Guest) connect(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	g.mu.Lock()
	waiting := g.idle
	g.idle = nil
	g.mu.Unlock()
	if waiting != nil && time.Since(waiting.since) < maxIdle {
		return waiting.conn, waiting.br, nil
	}
	if waiting != nil {
		waiting.conn.Close()
	}
	conn, err := g.Dial(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("dial guest: %w", err)
	}
	return conn, bufio.NewReaderSize(conn, 64<<10), nil
}

// keep lets the connection of a call that is done wait for another, unless one waits already.
func (g *Guest) keep(e *exchange) {
	whole := e.body.Done() && e.br.Buffered() == 0 && !strings.EqualFold(e.header.Get("Connection"), "close")
	if !e.stop() || !whole {
		e.conn.Close()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		e.conn.Close()
		return
	}
	g.idle = &idle{e.conn, e.br, time.Now()}
}

// Health asks whether the guest answers.
func (g *Guest) Health(ctx context.Context) error {
	_, err := g.fetch(ctx, request{method: "GET", path: "/health"})
	return err
}

// Measure returns what a user process in the sandbox can and cannot do, as the guest measured it when it started.
func (g *Guest) Measure(ctx context.Context) (json.RawMessage, error) {
	return g.fetch(ctx, request{method: "GET", path: "/rung/v1/measure"})
}

// request is one HTTP request. The body is sent whole when it is bytes, chunked when it is a reader.
type request struct {
	method, path string // path with its query, escaped
	kind         string // content type
	user         string
	header       []wire.Field
	body         []byte
	stream       io.Reader
	last         bool // the connection is not used again; so with every stream
}

// exchange is a connection with an answer under way. Its context's end ends the connection.
type exchange struct {
	conn   net.Conn
	br     *bufio.Reader
	status int
	header wire.Header
	body   *wire.Body
	stop   func() bool
	ctx    context.Context
}

func (e *exchange) close() {
	e.stop()
	e.conn.Close()
}

// explain prefers the context's reason to what the closed connection said.
func (e *exchange) explain(err error) error { return explain(e.ctx, err) }

func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return rung.Errorf(rung.KindTimeout, "the guest did not answer in time: %w", cause)
		}
		return cause
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return rung.Errorf(rung.KindUnavailable, "the connection to the guest was cut: %w", err)
	}
	if errors.Is(err, wire.ErrTooLarge) {
		return rung.Errorf(rung.KindExhausted, "the guest's answer is too large: %w", err)
	}
	return rung.Errorf(rung.KindUnavailable, "guest: %w", err)
}

// do sends a request and reads the head of its answer. A connection that ends without a word of an answer, as one may that
// has been kept too long, is replaced by a new one, once.
func (g *Guest) do(ctx context.Context, r request) (*exchange, error) {
	e, err := g.try(ctx, r)
	if err != nil && r.stream == nil && ctx.Err() == nil && unheard(err) {
		g.Close()
		e, err = g.try(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	if e.status < 200 || e.status > 299 {
		defer e.close()
		return nil, e.failure()
	}
	return e, nil
}

// unheard reports whether the connection ended before the guest said anything.
func unheard(err error) bool {
	for _, cut := range []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrClosedPipe} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

func (g *Guest) try(ctx context.Context, r request) (*exchange, error) {
	conn, br, err := g.connect(ctx)
	if err != nil {
		return nil, err
	}
	e := &exchange{conn: conn, br: br, ctx: ctx}
	e.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err := e.roundTrip(r); err != nil {
		e.close()
		return nil, e.explain(err)
	}
	return e, nil
}

func (e *exchange) roundTrip(r request) error {
	sent := make(chan error, 1)
	if r.stream == nil {
		if err := e.send(r); err != nil {
			return err
		}
		sent <- nil
	} else { // the guest may answer, with an error, before it has read everything
		go func() { sent <- e.send(r) }()
	}
	start, h, err := wire.ReadHead(e.br)
	if err == nil && strings.HasPrefix(start, "HTTP/1.1 100 ") {
		start, h, err = wire.ReadHead(e.br)
	}
	if err != nil {
		select { // a broken upload explains a missing answer better
		case failed := <-sent:
			return errors.Join(failed, err)
		default:
			return err
		}
	}
	proto, rest, _ := strings.Cut(start, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(code, 10, 10)
	if proto != "HTTP/1.1" || err != nil || len(code) != 3 {
		return errors.New("malformed answer")
	}
	e.status, e.header = int(status), h
	e.body, err = wire.NewBody(e.br, h)
	return err
}

func (e *exchange) send(r request) error {
	buf := make([]byte, 0, 512+len(r.body))
	buf = append(buf, r.method...)
	buf = append(buf, ' ')
	buf = append(buf, r.path...)
	buf = append(buf, " HTTP/1.1\r\nHost: guest\r\n"...)
	if r.last {
		buf = append(buf, "Connection: close\r\n"...)
	}
	field := func(name, value string) {
		buf = append(buf, name...)
		buf = append(buf, ": "...)
		buf = append(buf, value...)
		buf = append(buf, "\r\n"...)
	}
	if r.kind != "" {
		field("Content-Type", r.kind)
	}
	if r.user != "" {
		field("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(r.user+":")))
	}
	for _, f := range r.header {
		field(f.Name, f.Value)
	}
	if r.stream != nil {
		field("Transfer-Encoding", "chunked")
	} else if r.method != "GET" {
		field("Content-Length", strconv.Itoa(len(r.body)))
	}
	buf = append(buf, "\r\n"...)
	if r.stream == nil {
		_, err := e.conn.Write(append(buf, r.body...))
		return err
	}
	return e.sendStream(buf, r.stream)
}

// sendStream sends chunks, each with one write; the head goes with the first.
func (e *exchange) sendStream(buf []byte, body io.Reader) error {
	data := make([]byte, 64<<10)
	for {
		n, err := body.Read(data)
		if n > 0 {
			buf = wire.AppendChunk(buf, data[:n])
		}
		if err == io.EOF {
			buf = append(buf, wire.LastChunk...)
		} else if err != nil {
			e.conn.Close() // not an end: the guest must not take it for one
			return err
		}
		if _, werr := e.conn.Write(buf); werr != nil || err == io.EOF {
			return werr
		}
		buf = buf[:0]
	}
}

// fetch does a request whose answer is held in memory.
func (g *Guest) fetch(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, err := g.do(ctx, r)
	if err != nil {
		return nil, err
	}
	body, err := e.all()
	if err != nil {
		defer e.close()
		return nil, e.explain(err)
	}
	g.keep(e)
	return body, nil
}

func (e *exchange) all() ([]byte, error) {
	if n := e.body.Length(); n > maxAnswer {
		return nil, wire.ErrTooLarge
	}
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(e.body, maxAnswer+1))
	if err == nil && n > maxAnswer {
		err = wire.ErrTooLarge
	}
	return buf.Bytes(), err
}

// call does a unary call.
func (g *Guest) call(ctx context.Context, method, user string, req, answer any, header ...wire.Field) error {
	body, err := g.fetch(ctx, request{
		method: "POST", path: method, kind: "application/json", user: user, header: header, body: wire.Marshal(req),
	})
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return rung.Errorf(rung.KindUnavailable, "the guest's answer cannot be read: %w", err)
	}
	return nil
}

// failure reads an answer that is an error.
func (e *exchange) failure() error {
	body, err := io.ReadAll(io.LimitReader(e.body, 64<<10))
	if err != nil {
		return e.explain(err)
	}
	var unary wire.Error
	if json.Unmarshal(body, &unary) == nil && unary.Code != "" {
		return guestError(&unary)
	}
	var file wire.FileError
	if json.Unmarshal(body, &file) != nil || file.Message == "" {
		file.Message = "status " + strconv.Itoa(e.status)
	}
	return guestError(&wire.Error{Code: wire.CodeOf(e.status), Message: file.Message})
}

// guestError turns a code into a kind. The message is the guest's and is shown quoted where it is not plain text: it must
// not write to a terminal.
func guestError(e *wire.Error) error {
	kind := rung.KindInternal
	switch e.Code {
	case wire.InvalidArgument, wire.Unauthenticated:
		kind = rung.KindInvalid
	case wire.NotFound:
		kind = rung.KindNotFound
	case wire.AlreadyExists:
		kind = rung.KindExists
	case wire.PermissionDenied:
		kind = rung.KindRefused
	case wire.ResourceExhausted:
		kind = rung.KindExhausted
	case wire.FailedPrecondition:
		kind = rung.KindConflict
	case wire.Unimplemented:
		kind = rung.KindUnsupported
	case wire.Unavailable:
		kind = rung.KindUnavailable
	case wire.DeadlineExceeded:
		kind = rung.KindTimeout
	}
	return rung.Errorf(kind, "guest: %s", printable(e.Message))
}

func printable(s string) string {
	if s = s[:min(len(s), 1000)]; strconv.CanBackquote(s) {
		return s
	}
	return strconv.Quote(s)
}
