package session

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
)

// command runs the task's command to its end, whoever brings that about, and fills the record's exit. The error is rung's
// own failure, never the command's.
func (r *run) command(ctx context.Context) error {
	stop := make(chan struct{}, 1)
	r.cap = &capped{left: r.task.Limits.Output, stop: func() {
		select {
		case stop <- struct{}{}:
		default:
		}
	}}
	clock := time.NewTimer(r.task.Limits.Timeout)
	defer clock.Stop()
	stream, cancel := context.WithCancel(ctx)
	defer cancel()
	// The guest may be slow to say that it has started the command, or never say it: the clock runs all the same.
	late := time.AfterFunc(r.task.Limits.Timeout, cancel)
	p, err := r.guest.Start(stream, r.spec())
	if !late.Stop() && ctx.Err() == nil {
		r.exit(rung.TimedOut, rung.ExitTimeout)
		return nil
	}
	if err != nil {
		return notStarted(err, r.task.Command)
	}
	go r.feed(p)
	done := make(chan ended, 1)
	out, errs := r.sinks()
	go func() {
		exit, err := p.Wait(r.cap.writer(out), r.cap.writer(errs))
		done <- ended{exit, err}
	}()
	e := r.await(ctx, p, clock.C, stop, done)
	r.rec.Truncated = r.cap.isOver()
	return e
}

type ended struct {
	exit client.Exit
	err  error
}

func (r *run) spec() client.Cmd {
	env := map[string]string{}
	for _, kv := range r.task.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return client.Cmd{Path: r.task.Command[0], Args: r.task.Command[1:], Env: env, Stdin: r.task.Stdin != nil}
}

// notStarted gives the shell's exit codes for a command that cannot run: 127 not found, 126 found but not executable, as an
// error of the request.
func notStarted(err error, command []string) error {
	exit := 0
	switch rung.KindOf(err) {
	case rung.KindNotFound:
		exit = exitNotFound
	case rung.KindRefused:
		exit = exitNotExecutable
	}
	e := rung.Errorf(kindOf(err), "start %q: %w", command[0], err).
		WithHint("is it in the template? give its absolute path, or copy it in with --in and run it by its path below /work")
	return &exitError{e, exit}
}

// What the shell, env(1) and timeout(1) say of a command that cannot run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// exitError is an error with an exit code of its own; 0 = the kind's.
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok && e.code != 0 {
		return e.code
	}
	return rung.ExitCode(err)
}

// kindOf is the kind of what the guest says went wrong: its refusals are the sandbox's file permissions, no decision of the
// policy, which has an exit code of its own.
func kindOf(err error) rung.Kind {
	if k := rung.KindOf(err); k != rung.KindRefused {
		return k
	}
	return rung.KindInvalid
}

func (r *run) sinks() (out, errs io.Writer) {
	if r.task.Stdout != nil {
		return r.task.Stdout, r.task.Stderr
	}
	return &r.out, &r.errs
}

// await waits for the first of: the command's end, the clock, the output cap, the owner's wish, the sandbox's end.
func (r *run) await(ctx context.Context, p *client.Process, clock <-chan time.Time, stop <-chan struct{}, done <-chan ended) error {
	wishes := 0
	var grace <-chan time.Time
	for {
		select {
		case e := <-done:
			return r.exited(e, wishes)
		case <-clock:
			r.cut(ctx, p, done)
			r.exit(rung.TimedOut, rung.ExitTimeout)
			return nil
		case <-stop:
			r.cut(ctx, p, done)
			if err := r.cap.isBroken(); err != nil {
				return r.unread(err)
			}
			r.exit(rung.Limit, rung.ExitKilled)
			return nil
		case <-r.task.Interrupts:
			if wishes++; wishes > 1 {
				r.exit(rung.Killed, rung.ExitKilled)
				return nil
			}
			grace = time.After(r.Grace)
			go r.terminate(ctx, p)
		case <-grace:
			r.exit(rung.Killed, rung.ExitKilled)
			return nil
		case <-ctx.Done():
			r.exit(rung.Killed, rung.ExitKilled)
			return ctx.Err()
		}
	}
}

// exitSIGPIPE is what a command gets when nobody reads its output: 128+SIGPIPE.
const exitSIGPIPE = 128 + 13

// unread ends a run whose output the owner cannot take: like a command's own broken pipe when the reader has gone, and an
// error of its own when the output's place is full or broken.
func (r *run) unread(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		r.exit(rung.Killed, exitSIGPIPE)
		return nil
	}
	return rung.Errorf(rung.KindInvalid, "write the command's output: %w", err)
}

func (r *run) exit(reason rung.ExitReason, code int) { r.rec.ExitReason, r.rec.ExitCode = reason, code }

// terminate asks the command to end.
func (r *run) terminate(ctx context.Context, p *client.Process) {
	ctx, cancel := context.WithTimeout(ctx, r.Grace)
	defer cancel()
	_ = p.Terminate(ctx) // if it cannot be asked, the grace time ends it
}

// cut ends the command's whole tree and waits a moment for output that is on its way. It is a courtesy to the output only:
// whatever the guest does now, the sandbox's end follows.
func (r *run) cut(ctx context.Context, p *client.Process, done <-chan ended) {
	ctx, cancel := context.WithTimeout(ctx, r.Drain)
	defer cancel()
	go func() { _ = p.Kill(ctx) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// exited takes the guest's word for how its process ended; judge corrects it by what the host saw.
func (r *run) exited(e ended, wishes int) error {
	if e.err != nil {
		return r.lost(e.err)
	}
	switch {
	case e.exit.Signal() != 0:
		r.exit(rung.Signaled, 128+e.exit.Signal())
	case !e.exit.Exited:
		r.exit(rung.Signaled, rung.ExitKilled)
	default:
		r.exit(rung.Exited, e.exit.Code)
	}
	if wishes > 0 {
		r.rec.ExitReason = rung.Killed
	}
	return nil
}

// lost is the end of a run whose guest went silent: the sandbox ended, or the guest was broken by what it ran. The holder
// tells which; until it does, this is an error.
func (r *run) lost(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	end, werr := r.inst.Wait(ctx)
	if werr != nil {
		return rung.Errorf(rung.KindInternal, "the guest went silent: %w", err)
	}
	switch {
	case end.OOM:
		r.exit(rung.OOM, rung.ExitKilled)
		return nil
	case end.Reason == rung.TimedOut:
		r.exit(rung.TimedOut, rung.ExitTimeout)
		return nil
	}
	r.exit(rung.Killed, rung.ExitKilled)
	r.rec.Error = strings.TrimSpace("the sandbox ended under the command: " + end.Detail)
	return nil
}

// feed copies the owner's input to the command until either ends. A command that ends without reading is no error.
func (r *run) feed(p *client.Process) {
	if r.task.Stdin == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := r.task.Stdin.Read(buf)
		if n > 0 && writeAll(p, buf[:n]) != nil {
			return
		}
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				_ = p.CloseStdin()
			}
			return
		}
	}
}

func writeAll(w io.Writer, p []byte) error {
	_, err := w.Write(p)
	return err
}

func (c *capped) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

func (c *capped) isBroken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
