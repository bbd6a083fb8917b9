package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
)

const (
	// Timeout is how long a program may take to tell a value.
	Timeout = 30 * time.Second
	// grace is how long its pipes may stay open after it was ended: by a child that left its process group.
	grace     = time.Second
	maxStderr = 4 << 10
	maxShown  = 300
)

// Exec is a program whose output is a value. It runs without a shell and a terminal.
type Exec struct {
	Argv []string `json:"argv"`          // Argv[0] is an absolute path
	Env  []string `json:"env,omitempty"` // names of variables it gets besides PATH and HOME
}

// NewExec reads a command line and finds the program now, so that a later PATH does not choose another one.
func NewExec(command string, env []string) (Exec, error) {
	argv, err := Split(command)
	if err != nil {
		return Exec{}, err
	}
	path, err := exec.LookPath(argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return Exec{}, rung.Errorf(rung.KindInvalid, "--exec: %w", err)
	}
	argv[0] = path
	for _, name := range env {
		if name == "" || strings.ContainsAny(name, "=\x00 \t\n") {
			return Exec{}, rung.Errorf(rung.KindInvalid, "--exec-env takes the name of a variable; its value is taken from the environment each time")
		}
	}
	return Exec{Argv: argv, Env: env}, nil
}

// Run returns what the program prints to standard output, without one newline at its end.
func (e Exec) Run(ctx context.Context) (rung.SecretValue, error) {
	if len(e.Argv) == 0 || !filepath.IsAbs(e.Argv[0]) {
		return nil, rung.Errorf(rung.KindInvalid, "the source names no program")
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	out, errs := &bounded{limit: rung.MaxSecretValue + 2}, &bounded{limit: maxStderr, drop: true}
	defer func() { clear(errs.data[:cap(errs.data)]) }()
	out.full = cancel
	cmd := exec.CommandContext(ctx, e.Argv[0], e.Argv[1:]...)
	cmd.Env = e.environ()
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, errs
	// A session of its own: no terminal to ask on, and one group to end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	if err == nil && !out.over {
		return checked(out.data)
	}
	why := e.explain(ctx, err, out, errs)
	clear(out.data)
	return nil, why
}

func (e Exec) explain(ctx context.Context, err error, out, errs *bounded) error {
	name := filepath.Base(e.Argv[0])
	said := redact(string(errs.data), append(e.values(), string(out.data)))
	if said != "" {
		said = "; it says: " + said
	}
	switch {
	case out.over:
		return rung.Errorf(rung.KindInvalid, "%s printed more than the %s that a value may have", name, rung.FormatBytes(rung.MaxSecretValue))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return rung.Errorf(rung.KindTimeout, "%s did not end within %v%s", name, Timeout, said).
			WithHint("it has no terminal: sign in before, so that it need not ask")
	case errors.Is(err, exec.ErrWaitDelay):
		return rung.Errorf(rung.KindInvalid, "%s left a child behind that holds its output open", name)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return rung.Errorf(rung.KindUnavailable, "%s: %v%s", name, exit.ProcessState, said)
	}
	return rung.Errorf(rung.KindUnavailable, "%s cannot be run: %w", name, err)
}

func (e Exec) environ() []string {
	env := []string{}
	for _, name := range append([]string{"PATH", "HOME"}, e.Env...) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// values are the texts that must not be shown whatever the program says.
func (e Exec) values() (list []string) {
	for _, name := range e.Env {
		list = append(list, os.Getenv(name))
	}
	return list
}

// tokenLike is a word that may be a credential: long, and no word of a language.
var tokenLike = regexp.MustCompile(`[A-Za-z0-9+/_=.~%-]{16,}`)

// redact makes what a program said fit to be shown: one short printable line without what is, or may be, a value.
func redact(text string, values []string) string {
	text = tokenLike.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789=%") || len(word) > 40 {
			return "[redacted]"
		}
		return word
	})
	for _, v := range values {
		for line := range strings.SplitSeq(v, "\n") {
			if line = strings.TrimSpace(line); len(line) >= 3 {
				text = strings.ReplaceAll(text, line, "[redacted]")
			}
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	q := fmt.Sprintf("%q", text)
	return q[1 : len(q)-1]
}

// bounded keeps the first bytes written to it. What is more is dropped, or ends the program.
type bounded struct {
	data  []byte
	limit int
	drop  bool
	over  bool
	full  func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.data == nil {
		b.data = make([]byte, 0, b.limit) // growing would leave copies behind
	}
	n := min(len(p), b.limit-len(b.data))
	b.data = append(b.data, p[:n]...)
	if n < len(p) && !b.drop {
		b.over = true
		b.full()
		return n, errTooLong
	}
	return len(p), nil
}

// Shown is the command for lists: its program only, since arguments may tell more than they should.
func (e Exec) Shown() string { return string(bytes.ToValidUTF8([]byte(e.Argv[0]), nil)) }
