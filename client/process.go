package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/api/wire"
)

// Cmd says what to run in the sandbox.
type Cmd struct {
	Path  string // looked up in the sandbox's PATH unless it has a slash
	Args  []string
	Env   map[string]string // on top of the sandbox's
	Dir   string            // "" is the sandbox's working directory
	User  string            // "" is the sandbox's user
	Stdin bool              // Write and CloseStdin feed it; else it reads /dev/null
	Tag   string            // another name for the process, for its starter
	// Timeout makes the guest end the process tree; 0 is none. It is a courtesy: the holder keeps the clock that counts.
	Timeout time.Duration
}

// Exit is how a process ended, as the guest tells it.
type Exit struct {
	Code     int  // -1 when a signal ended it
	Exited   bool // by itself
	Status   string
	TimedOut bool // the guest ended it at Cmd.Timeout; nothing else is known then
}

// Signal returns the number of the signal that ended the process, 0 if none did or its name is unknown.
func (e Exit) Signal() int {
	name, ok := strings.CutPrefix(e.Status, "signal: ")
	if !ok || e.Exited {
		return 0
	}
	name, _, _ = strings.Cut(name, " (")
	return signalNumber(name)
}

// Process is a process in the sandbox, with the stream of what it writes. Wait is called once; the rest may be called from
// several goroutines at once.
type Process struct {
	PID int
	// Stdout and Stderr count the bytes of each output that came before this stream's first.
	Stdout, Stderr int64

	g      *Guest
	e      *exchange
	cancel context.CancelFunc
	buf    []byte
}

// Start starts a process. It returns when the guest has started it, or failed to: the context then bounds the stream, and
// its end leaves the process running.
func (g *Guest) Start(ctx context.Context, c Cmd) (*Process, error) {
	req := wire.StartRequest{Process: &wire.ProcessConfig{Cmd: c.Path, Args: c.Args, Envs: c.Env}, Stdin: &c.Stdin}
	req.Raw = rawConfig(c)
	if c.Dir != "" {
		req.Process.Cwd = &c.Dir
	}
	if c.Tag != "" {
		req.Tag = &c.Tag
	}
	var header []wire.Field
	if c.Timeout > 0 {
		ms := max(c.Timeout.Milliseconds(), 1)
		header = append(header, wire.Field{Name: wire.HeaderTimeout, Value: strconv.FormatInt(ms, 10)})
	}
	return g.follow(ctx, "/process.Process/Start", c.User, req, header)
}

// rawConfig keeps the bytes of a command that JSON cannot carry; nil when there are none.
func rawConfig(c Cmd) *wire.RawConfig {
	valid := utf8.ValidString(c.Path)
	raw := &wire.RawConfig{Cmd: wire.Bytes(c.Path)}
	for _, a := range c.Args {
		valid = valid && utf8.ValidString(a)
		raw.Args = append(raw.Args, wire.Bytes(a))
	}
	for k, v := range c.Env {
		valid = valid && utf8.ValidString(k) && utf8.ValidString(v)
		raw.Envs = append(raw.Envs, wire.Bytes(k+"="+v))
	}
	if valid {
		return nil
	}
	return raw
}

// Attach watches a process that another call started. What the guest kept of its output is replayed from byte offset
// replay on, of both outputs; a negative replay replays nothing.
func (g *Guest) Attach(ctx context.Context, pid int, replay int64) (*Process, error) {
	id := wire.Uint32(pid)
	req := wire.ConnectRequest{Process: &wire.Selector{PID: &id}}
	var header []wire.Field
	if replay >= 0 {
		header = append(header, wire.Field{Name: wire.HeaderReplay, Value: strconv.FormatInt(replay, 10)})
	}
	return g.follow(ctx, "/process.Process/Connect", "", req, header)
}

func (g *Guest) follow(ctx context.Context, method, user string, req any, header []wire.Field) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{g: g, cancel: cancel}
	late := time.AfterFunc(callTimeout, cancel) // of the first answer only
	defer late.Stop()
	var err error
	p.e, err = g.do(ctx, request{
		method: "POST", path: method, kind: "application/connect+json", user: user, header: header,
		body: wire.AppendEnvelope(nil, 0, wire.Marshal(req)), last: true,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	if err := p.begin(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// begin reads the start event, or the error that came instead.
func (p *Process) begin() error {
	msg, end, err := p.next()
	if err != nil {
		return err
	}
	if end {
		if err := endError(msg); err != nil {
			return err
		}
		return rung.Errorf(rung.KindUnavailable, "the guest ended the stream before the process began")
	}
	var m wire.EventMessage
	if err := json.Unmarshal(msg, &m); err != nil || m.Event == nil || m.Event.Start == nil || m.Event.Start.PID == 0 {
		return rung.Errorf(rung.KindUnavailable, "the guest's stream does not begin with a process")
	}
	p.PID = int(m.Event.Start.PID)
	if at := m.Event.Start.Offset; at != nil {
		p.Stdout, p.Stderr = at.Stdout, at.Stderr
	}
	return nil
}

// next reads one message; end is the stream's own.
func (p *Process) next() (msg []byte, end bool, err error) {
	flags, msg, err := wire.ReadEnvelope(p.e.body, p.buf, wire.MaxMessage)
	if err != nil {
		return nil, false, p.e.explain(err)
	}
	p.buf = msg
	return msg, flags&wire.FlagEnd != 0, nil
}

func endError(msg []byte) error {
	var end wire.EndOfStream
	if err := json.Unmarshal(msg, &end); err != nil {
		return rung.Errorf(rung.KindUnavailable, "the guest's answer cannot be read: %w", err)
	}
	if end.Error == nil {
		return nil
	}
	return guestError(end.Error)
}

// Wait copies the output until the process has ended. An error of a writer ends the stream, not the process. A terminal's
// output goes to stdout.
func (p *Process) Wait(stdout, stderr io.Writer) (Exit, error) {
	defer p.Close()
	exit, seen := Exit{}, false
	for {
		msg, end, err := p.next()
		if err != nil {
			return exit, err
		}
		if end {
			err := endError(msg)
			if err != nil && rung.KindOf(err) == rung.KindTimeout {
				return Exit{Code: -1, TimedOut: true}, nil
			}
			if err == nil && !seen {
				err = rung.Errorf(rung.KindUnavailable, "the guest ended the stream without an end of the process")
			}
			return exit, err
		}
		done, err := event(msg, stdout, stderr)
		if err != nil {
			return exit, err
		}
		if done != nil {
			if done.Exited && (done.ExitCode < 0 || done.ExitCode > 255) {
				// Taken as it is, it would become another one when somebody exits with it: 256 is success then.
				return exit, rung.Errorf(rung.KindUnavailable, "the guest tells an impossible exit code %d", done.ExitCode)
			}
			exit, seen = Exit{Code: done.ExitCode, Exited: done.Exited, Status: done.Status}, true
		}
	}
}

// What the hot path looks for: exactly what rung-guest writes. Anything else goes through encoding/json.
const (
	stdoutEvent = `{"event":{"data":{"stdout":"`
	stderrEvent = `{"event":{"data":{"stderr":"`
	dataEnd     = `"}}}`
)

// event handles one message and returns the end event, if it is one.
func event(msg []byte, stdout, stderr io.Writer) (*wire.EndEvent, error) {
	if len(msg) >= len(stdoutEvent)+len(dataEnd) && string(msg[len(msg)-len(dataEnd):]) == dataEnd {
		data := msg[len(stdoutEvent) : len(msg)-len(dataEnd)]
		switch string(msg[:len(stdoutEvent)]) {
		case stdoutEvent:
			return nil, decodeTo(stdout, data)
		case stderrEvent:
			return nil, decodeTo(stderr, data)
		}
	}
	var m wire.EventMessage
	if err := json.Unmarshal(msg, &m); err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "the guest's answer cannot be read: %w", err)
	}
	if m.Event == nil {
		return nil, nil
	}
	if d := m.Event.Data; d != nil {
		if _, err := stdout.Write(append(d.Stdout, d.PTY...)); err != nil {
			return nil, err
		}
		if _, err := stderr.Write(d.Stderr); err != nil {
			return nil, err
		}
	}
	return m.Event.End, nil
}

// decodeTo decodes in place: base64 never grows, and the reader does not need the text again.
func decodeTo(w io.Writer, data []byte) error {
	n, err := base64.StdEncoding.Decode(data, data)
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "the guest's output cannot be read: %w", err)
	}
	_, err = w.Write(data[:n])
	return err
}

// Close ends the stream; the process goes on.
func (p *Process) Close() error {
	p.cancel()
	p.e.close()
	return nil
}

// maxInput is the most that one call carries to standard input.
const maxInput = 64 << 10

// Write feeds standard input. It returns when the bytes are in the process's pipe: a process that does not read holds it
// back for as long as callTimeout per 64 KiB, or the context of Start, whichever ends first.
func (p *Process) Write(b []byte) (int, error) {
	id, n := wire.Uint32(p.PID), 0
	for n < len(b) {
		part := b[n:min(n+maxInput, len(b))]
		req := wire.SendInputRequest{Process: &wire.Selector{PID: &id}, Input: &wire.Input{Stdin: part}}
		if err := p.g.call(p.e.ctx, "/process.Process/SendInput", "", req, nil); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// CloseStdin is end of file on standard input.
func (p *Process) CloseStdin() error {
	id := wire.Uint32(p.PID)
	return p.g.call(p.e.ctx, "/process.Process/CloseStdin", "", wire.ConnectRequest{Process: &wire.Selector{PID: &id}}, nil)
}

// Terminate asks the process group to end (SIGTERM).
func (p *Process) Terminate(ctx context.Context) error { return p.g.Signal(ctx, p.PID, false) }

// Kill ends the process and all its descendants (SIGKILL) and returns when the process is gone.
func (p *Process) Kill(ctx context.Context) error { return p.g.Signal(ctx, p.PID, true) }

// Signal ends a process: at once with its whole tree, or by asking its group to.
func (g *Guest) Signal(ctx context.Context, pid int, kill bool) error {
	id, sig := wire.Uint32(pid), wire.SIGTERM
	if kill {
		sig = wire.SIGKILL
	}
	return g.call(ctx, "/process.Process/SendSignal", "", wire.SendSignalRequest{Process: &wire.Selector{PID: &id}, Signal: sig}, nil)
}

// Running lists the processes that clients started and that have not ended.
func (g *Guest) Running(ctx context.Context) ([]wire.ProcessInfo, error) {
	var answer wire.ListResponse
	err := g.call(ctx, "/process.Process/List", "", wire.Empty{}, &answer)
	return answer.Processes, err
}
