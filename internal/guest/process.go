//go:build linux

package guest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/ident"
	"github.com/rung-dev/rung/internal/guest/proc"
)

// process serves the methods of process.Process.
func (s *server) process(method string, w *http1.Response, r *http1.Request) {
	switch method {
	case "Start":
		s.start(w, r)
	case "Connect":
		s.connect(w, r)
	case "StreamInput":
		s.streamInput(w, r)
	case "List":
		unary(w, r, s.list)
	case "SendInput":
		unary(w, r, s.sendInput)
	case "SendSignal":
		unary(w, r, s.sendSignal)
	case "CloseStdin":
		unary(w, r, s.closeStdin)
	case "Update":
		unary(w, r, s.update)
	default:
		unary(w, r, unimplemented)
	}
}

func unimplemented(context.Context, *wire.Empty) (any, error) {
	return nil, errorf(wire.Unimplemented, "this method is not supported")
}

func (s *server) list(context.Context, *wire.Empty) (any, error) {
	answer := wire.ListResponse{Processes: []wire.ProcessInfo{}}
	for _, p := range s.procs.List() {
		config, _ := p.Spec.Label.(*wire.ProcessConfig)
		info := wire.ProcessInfo{Config: *config, PID: wire.Uint32(p.PID)}
		if p.Spec.Tag != "" {
			info.Tag = &p.Spec.Tag
		}
		answer.Processes = append(answer.Processes, info)
	}
	return answer, nil
}

func (s *server) sendInput(ctx context.Context, req *wire.SendInputRequest) (any, error) {
	p, err := s.live(req.Process)
	if err != nil {
		return nil, err
	}
	return wire.Empty{}, feed(ctx, p, req.Input)
}

func feed(ctx context.Context, p *proc.Process, in *wire.Input) error {
	if in == nil {
		return errorf(wire.InvalidArgument, "input is missing")
	}
	if in.PTY != nil {
		if p.Spec.PTY == nil {
			return errorf(wire.InvalidArgument, "the process has no terminal")
		}
		return p.Write(ctx, in.PTY)
	}
	return p.Write(ctx, in.Stdin)
}

func (s *server) sendSignal(_ context.Context, req *wire.SendSignalRequest) (any, error) {
	p, err := s.live(req.Process)
	if err != nil {
		return nil, err
	}
	switch req.Signal {
	case wire.SIGKILL:
		err = s.procs.Kill(p)
	case wire.SIGTERM:
		err = s.procs.Terminate(p)
	default:
		err = errorf(wire.InvalidArgument, "signal %d is not supported", req.Signal)
	}
	return wire.Empty{}, err
}

func (s *server) closeStdin(_ context.Context, req *wire.ConnectRequest) (any, error) {
	p, err := s.live(req.Process)
	if err != nil {
		return nil, err
	}
	if err := p.CloseStdin(); err != nil {
		return nil, errorf(wire.FailedPrecondition, "%v", err)
	}
	return wire.Empty{}, nil
}

func (s *server) update(_ context.Context, req *wire.UpdateRequest) (any, error) {
	p, err := s.live(req.Process)
	if err != nil {
		return nil, err
	}
	if req.PTY == nil {
		return wire.Empty{}, nil
	}
	size, err := ptySize(req.PTY)
	if err != nil {
		return nil, err
	}
	if p.Spec.PTY == nil {
		return nil, errorf(wire.FailedPrecondition, "the process has no terminal")
	}
	return wire.Empty{}, p.Resize(*size)
}

func ptySize(pty *wire.PTY) (*proc.Size, error) {
	size := proc.Size{Cols: 80, Rows: 24}
	if pty.Size == nil {
		return &size, nil
	}
	if pty.Size.Cols > 1<<16-1 || pty.Size.Rows > 1<<16-1 {
		return nil, errorf(wire.InvalidArgument, "terminal size is out of range")
	}
	return &proc.Size{Cols: uint16(pty.Size.Cols), Rows: uint16(pty.Size.Rows)}, nil
}

func (s *server) live(sel *wire.Selector) (*proc.Process, error) { return find(sel, s.procs.Live) }

func (s *server) recent(sel *wire.Selector) (*proc.Process, error) { return find(sel, s.procs.Recent) }

func find(sel *wire.Selector, in func(int, string) (*proc.Process, error)) (*proc.Process, error) {
	switch {
	case sel != nil && sel.PID != nil && *sel.PID != 0:
		return in(int(*sel.PID), "")
	case sel != nil && sel.Tag != nil && *sel.Tag != "":
		return in(0, *sel.Tag)
	default:
		return nil, errorf(wire.InvalidArgument, "the selector names no process")
	}
}

// streamInput feeds one process from a stream of messages.
func (s *server) streamInput(w *http1.Response, r *http1.Request) {
	err := callable(r, "application/connect+json")
	if err == nil {
		r.Patient()
		err = s.feedAll(r)
	}
	w.Set("Content-Type", "application/connect+json")
	w.Stream(func(buf []byte) []byte {
		from := len(buf)
		buf = wire.ChunkStart(buf)
		if err == nil {
			buf = wire.AppendEnvelope(buf, 0, []byte("{}"))
		}
		return wire.ChunkEnd(appendEnd(buf, err), from)
	})
}

func (s *server) feedAll(r *http1.Request) error {
	var p *proc.Process
	var buf []byte
	for in := bufio.NewReader(r.Body); ; {
		flags, msg, err := wire.ReadEnvelope(in, buf, wire.MaxMessage)
		if errors.Is(err, io.EOF) || err == nil && flags&wire.FlagEnd != 0 {
			return nil
		}
		if err != nil {
			return errorf(wire.InvalidArgument, "read request: %v", err)
		}
		buf = msg
		var req wire.StreamInputRequest
		if err := decode(msg, &req); err != nil {
			return err
		}
		switch {
		case req.Start != nil && p == nil:
			p, err = s.live(req.Start.Process)
		case req.Data != nil && p != nil:
			err = feed(r.Context, p, req.Data.Input)
		case req.Keepalive == nil:
			err = errorf(wire.InvalidArgument, "the first message must be start, the others data or keepalive")
		}
		if err != nil {
			return err
		}
	}
}

// spec turns a request into what to start.
func (s *server) spec(r *http1.Request, req *wire.StartRequest) (*proc.Spec, error) {
	u, err := s.user(r, "")
	if err != nil {
		return nil, err
	}
	config := req.Process
	if config == nil || config.Cmd == "" {
		return nil, errorf(wire.InvalidArgument, "cmd is missing")
	}
	spec := &proc.Spec{
		Path: config.Cmd, Args: config.Args, User: u, Dir: s.cfg.Workdir, Timeout: timeout(r), Label: config,
		Env:   s.environ(u, config.Envs),
		Stdin: req.Stdin == nil || *req.Stdin,
	}
	if req.Raw != nil {
		s.raw(spec, req.Raw)
	}
	if config.Cwd != nil && *config.Cwd != "" {
		spec.Dir = homePath(u, *config.Cwd)
	}
	if req.Tag != nil {
		spec.Tag = *req.Tag
	}
	if req.PTY != nil {
		if spec.PTY, err = ptySize(req.PTY); err != nil {
			return nil, err
		}
	}
	return spec, plain(spec)
}

// raw replaces what JSON could not carry. The listing keeps what resembles it.
func (s *server) raw(spec *proc.Spec, raw *wire.RawConfig) {
	envs := map[string]string{}
	for _, kv := range raw.Envs {
		k, v, _ := strings.Cut(string(kv), "=")
		envs[k] = v
	}
	spec.Path, spec.Args, spec.Env = string(raw.Cmd), nil, s.environ(spec.User, envs)
	for _, a := range raw.Args {
		spec.Args = append(spec.Args, string(a))
	}
}

// plain refuses what an exec cannot carry.
func plain(spec *proc.Spec) error {
	for _, list := range [][]string{{spec.Path, spec.Dir}, spec.Args, spec.Env} {
		for _, v := range list {
			if strings.ContainsRune(v, 0) {
				return errorf(wire.InvalidArgument, "NUL in a command, directory or variable")
			}
		}
	}
	return nil
}

// homePath makes a path absolute: relative ones and those of "~" are the user's home's.
func homePath(u ident.User, p string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		p = "./" + p[1:]
	}
	if !strings.HasPrefix(p, "/") {
		p = u.Home + "/" + p
	}
	return path.Clean(p)
}

// environ layers the variables: the user's own, the sandbox's, the call's. Later ones win.
func (s *server) environ(u ident.User, call map[string]string) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name}
	env = append(env, s.cfg.Env...)
	for k, v := range call {
		if k != "" && !strings.ContainsAny(k, "=\x00") {
			env = append(env, k+"="+v)
		}
	}
	return lastWins(env)
}

// lastWins keeps the last value of each name: a program that looks only at the first would otherwise see the wrong one.
func lastWins(env []string) []string {
	at := make(map[string]int, len(env))
	out := env[:0:0]
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}
