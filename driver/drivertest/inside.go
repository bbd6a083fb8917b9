package drivertest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/driver"
)

// box is one live sandbox, spoken to in the plainest way: one connection per call, so that what is tested is the driver's
// control channel and not a client's pooling.
type box struct {
	driver.Instance
	id string
}

func newBox(in driver.Instance, id string) *box { return &box{in, id} }

// redial is another client of the same sandbox.
func (b *box) redial(*testing.T) *box { return newBox(b.Instance, b.id) }

// health asks one question on an open connection, which stays open.
func health(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(bound)) // where it is not supported the test's own bound holds
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: guest\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("GET /health: %s", resp.Status)
	}
	return nil
}

// post sends one request on a connection of its own and returns what is needed to read the answer.
func (b *box) post(ctx context.Context, method, contentType string, body []byte, header ...string) (net.Conn, *http.Response, error) {
	conn, err := b.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest/process.Process/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Connect-Protocol-Version", "1")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	sent := make(chan error, 1)
	go func() { sent <- req.Write(conn) }() // beside reading: the guest may answer before it has read all
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		_ = conn.Close()
		return nil, nil, errors.Join(err, <-sent)
	}
	return conn, resp, nil
}

// call is a unary method.
func (b *box) call(ctx context.Context, method string, in, out any) error {
	conn, resp, err := b.post(ctx, method, "application/json", wire.Marshal(in))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer resp.Body.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	data, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxMessage))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", method, resp.Status, data)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// process is a running command and the stream that watches it.
type process struct {
	b    *box
	pid  uint32
	conn net.Conn

	mu     sync.Mutex
	out    io.Writer    // guarded by mu
	text   bytes.Buffer // guarded by mu: what of standard output out did not take
	errSum hash.Hash    // guarded by mu
	change chan struct{}
	done   chan struct{} // closed after the end; then code and err are valid
	code   int
	err    error
}

// stream begins Start or Connect and waits for its first event.
func (b *box) stream(ctx context.Context, method string, in any, out io.Writer, header ...string) (*process, error) {
	conn, resp, err := b.post(ctx, method, "application/connect+json", wire.AppendEnvelope(nil, 0, wire.Marshal(in)), header...)
	if err != nil {
		return nil, err
	}
	p := &process{b: b, conn: conn, out: out, errSum: sha256.New(), change: make(chan struct{}, 1), done: make(chan struct{})}
	started := make(chan error, 1)
	go p.read(resp.Body, started)
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return p, nil
}

// read takes events until the stream's end.
func (p *process) read(body io.ReadCloser, started chan<- error) {
	defer close(p.done)
	defer body.Close()
	p.code, p.err = -1, errors.New("the stream ended without an end event")
	fail := func(err error) {
		p.err = err
		select {
		case started <- err:
		default:
		}
	}
	var buf []byte
	for {
		flags, msg, err := wire.ReadEnvelope(body, buf, wire.MaxMessage)
		if err != nil {
			fail(err)
			return
		}
		buf = msg
		if flags&wire.FlagEnd != 0 {
			var end wire.EndOfStream
			if err := json.Unmarshal(msg, &end); err != nil {
				fail(err)
			} else if end.Error != nil {
				fail(end.Error)
			}
			return
		}
		var m wire.EventMessage
		if err := json.Unmarshal(msg, &m); err != nil || m.Event == nil {
			fail(fmt.Errorf("event %q: %w", msg, err))
			return
		}
		p.event(m.Event, started)
	}
}

func (p *process) event(e *wire.Event, started chan<- error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Start != nil:
		p.pid = uint32(e.Start.PID)
		started <- nil
	case e.Data != nil:
		if p.out != nil {
			_, p.err = p.out.Write(e.Data.Stdout)
		} else {
			p.text.Write(e.Data.Stdout)
		}
		p.errSum.Write(e.Data.Stderr)
		select {
		case p.change <- struct{}{}:
		default:
		}
	case e.End != nil:
		p.code, p.err = e.End.ExitCode, nil
		if !e.End.Exited && strings.Contains(e.End.Status, "killed") {
			p.code = 128 + 9
		}
	}
}

// begin starts a command; nil out keeps standard output in the process.
func (b *box) begin(ctx context.Context, out io.Writer, stdin bool, args []string) (*process, error) {
	return b.stream(ctx, "Start", wire.StartRequest{
		Process: &wire.ProcessConfig{Cmd: args[0], Args: args[1:]}, Stdin: &stdin,
	}, out)
}

func (b *box) start(t *testing.T, args ...string) *process {
	t.Helper()
	return b.startTo(t, nil, args...)
}

func (b *box) startTo(t *testing.T, out io.Writer, args ...string) *process {
	t.Helper()
	p, err := b.begin(within(t, bound), out, true, args)
	if err != nil {
		t.Fatalf("start %v: %v", args, err)
	}
	t.Cleanup(p.cut)
	return p
}

// command runs to the end, feeding stdin from a reader; nil is no standard input.
func (b *box) command(ctx context.Context, stdin io.Reader, stdout io.Writer, args []string) (int, error) {
	p, err := b.begin(ctx, stdout, stdin != nil, args)
	if err != nil {
		return 0, err
	}
	defer p.cut()
	fed := make(chan error, 1)
	go func() { fed <- p.feed(ctx, stdin) }()
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if p.err != nil {
		return 0, p.err
	}
	return p.code, <-fed
}

// feed copies all of stdin into the process and closes its end.
func (p *process) feed(ctx context.Context, stdin io.Reader) error {
	if stdin == nil {
		return nil
	}
	chunk := make([]byte, 256<<10)
	for {
		n, err := io.ReadFull(stdin, chunk)
		if n > 0 {
			if err := p.send(ctx, chunk[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return p.b.call(ctx, "CloseStdin", wire.ConnectRequest{Process: p.selector()}, nil)
		}
	}
}

func (p *process) send(ctx context.Context, data []byte) error {
	return p.b.call(ctx, "SendInput", wire.SendInputRequest{Process: p.selector(), Input: &wire.Input{Stdin: data}}, nil)
}

func (p *process) selector() *wire.Selector {
	pid := wire.Uint32(p.pid)
	return &wire.Selector{PID: &pid}
}

func (p *process) input(t *testing.T, text string) {
	t.Helper()
	if err := p.send(within(t, bound), []byte(text)); err != nil {
		t.Fatalf("input: %v", err)
	}
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	err := p.b.call(within(t, bound), "SendSignal", wire.SendSignalRequest{Process: p.selector(), Signal: wire.SIGKILL}, nil)
	if err != nil {
		t.Fatalf("kill: %v", err)
	}
}

// cut closes the connection in the middle of whatever it carries, as a killed client does.
func (p *process) cut() { _ = p.conn.Close() }

// attach watches a process that somebody else started, from the first byte of its output.
func (b *box) attach(t *testing.T, pid uint32) *process {
	t.Helper()
	n := wire.Uint32(pid)
	p, err := b.stream(within(t, bound), "Connect", wire.ConnectRequest{Process: &wire.Selector{PID: &n}}, nil, wire.HeaderReplay, "0")
	if err != nil {
		t.Fatalf("attach to %d: %v", pid, err)
	}
	t.Cleanup(p.cut)
	return p
}

func (b *box) lists(t *testing.T, pid uint32) bool {
	t.Helper()
	var list wire.ListResponse
	if err := b.call(within(t, bound), "List", wire.Empty{}, &list); err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, p := range list.Processes {
		if uint32(p.PID) == pid {
			return true
		}
	}
	return false
}

// waitOutput waits until standard output is exactly want.
func (p *process) waitOutput(t *testing.T, want string) {
	t.Helper()
	ctx := within(t, bound)
	for {
		p.mu.Lock()
		got := p.text.String()
		p.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-p.change:
		case <-p.done:
			t.Fatalf("the process ended with %d, %v and said %q, not %q", p.code, p.err, got, want)
		case <-ctx.Done():
			t.Fatalf("the process said %q, not %q", got, want)
		}
	}
}

// end waits for the end and returns the exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-within(t, 2*bound).Done():
		t.Fatal("the process does not end")
	}
	if p.err != nil {
		t.Fatalf("the process's stream: %v", p.err)
	}
	return p.code
}

func (p *process) wait(t *testing.T) (string, int) {
	t.Helper()
	code := p.end(t)
	return p.text.String(), code
}

func (p *process) stderrSum() []byte { return p.errSum.Sum(nil) }
