//go:build linux

package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"run": func(ts *testscript.TestScript, neg bool, args []string) {
			plain(ts, neg, append([]string{"run"}, args...))
		},
		"asuser": func(ts *testscript.TestScript, neg bool, args []string) {
			plain(ts, neg, append([]string{"asuser"}, args...))
		},
		"exits":      cmdExits,
		"start":      cmdStart,
		"finish":     cmdFinish,
		"signal":     cmdSignal,
		"await":      cmdAwait,
		"alive":      cmdAlive,
		"gone":       cmdGone,
		"killholder": cmdKillHolder,
		"json":       cmdJSON,
		"leftovers":  cmdLeftovers,
		"delegate":   cmdDelegate,
		"apart":      cmdApart,
	}
}

// argv turns run, and a word for a user, at the front into what they stand for.
func argv(ts *testscript.TestScript, args []string) []string {
	s := of(ts)
	switch {
	case len(args) == 0:
		ts.Fatalf("a command is missing")
	case args[0] == "run" && s.rung == "":
		ts.Fatalf("run is for stories in testdata/each")
	}
	full, err := s.argv(args)
	ts.Check(err)
	return full
}

func (s *story) argv(args []string) ([]string, error) {
	if _, ok := people[args[0]]; ok {
		p, err := s.person(args[0])
		if err != nil {
			return nil, err
		}
		return p.as(args[1:]), nil
	}
	if args[0] != "run" {
		return args, nil
	}
	full := append(append([]string{"rung", "run"}, s.flags()...), args[1:]...)
	if s.asUser {
		return s.argv(append([]string{"asuser"}, full...))
	}
	return full, nil
}

func plain(ts *testscript.TestScript, neg bool, args []string) {
	full := argv(ts, args)
	err := ts.Exec(full[0], full[1:]...)
	if neg && err == nil {
		ts.Fatalf("unexpected success")
	} else if !neg && err != nil {
		ts.Fatalf("%v", err)
	}
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE CMD ARG…")
	}
	full := argv(ts, args[1:])
	if code := exitCode(ts, ts.Exec(full[0], full[1:]...)); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, not %s", code, args[0])
	}
}

func exitCode(ts *testscript.TestScript, err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if w := exit.Sys().(syscall.WaitStatus); w.Signaled() {
			return 128 + int(w.Signal())
		}
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

// background is a command that a story has started.
type background struct {
	cmd  *exec.Cmd
	done chan error
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME CMD ARG…")
	}
	s, name, full := of(ts), args[0], argv(ts, args[1:])
	cmd := exec.Command(full[0], full[1:]...)
	if filepath.Base(full[0]) == full[0] {
		cmd.Path = lookPath(ts, full[0])
	}
	cmd.Err, cmd.Dir = nil, ts.MkAbs(".")
	for _, k := range []string{"PATH", "HOME", "WORK", "RUN", "RUNG_STATE_DIR", "RUNG_RUNTIME_DIR"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	out, err := os.OpenFile(ts.MkAbs(name+".out"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	ts.Check(err)
	defer out.Close()
	errs, err := os.OpenFile(ts.MkAbs(name+".err"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	ts.Check(err)
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	ts.Check(cmd.Start())
	b := &background{cmd: cmd, done: make(chan error, 1)}
	go func() { b.done <- cmd.Wait() }()
	s.background[name] = b
}

func lookPath(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode()&0o111 != 0 && !st.IsDir() {
			return p
		}
	}
	ts.Fatalf("%s: not found", name)
	return ""
}

// stop ends what a failed story left running.
func (s *story) stop() {
	for _, b := range s.background {
		_ = b.cmd.Process.Kill()
		select {
		case <-b.done:
		case <-time.After(5 * time.Second):
		}
	}
}

func (s *story) named(ts *testscript.TestScript, name string) *background {
	b := s.background[name]
	if b == nil {
		ts.Fatalf("nothing named %s runs", name)
	}
	return b
}

// patience bounds every wait of a story; a test machine under load is slow, a hang is for ever.
const patience = 30 * time.Second

func cmdFinish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: finish NAME CODE")
	}
	s := of(ts)
	b := s.named(ts, args[0])
	var err error
	select {
	case err = <-b.done:
		delete(s.background, args[0])
	case <-time.After(patience):
		ts.Fatalf("%s does not end", args[0])
	}
	ts.Logf("[%s.err]\n%s", args[0], ts.ReadFile(args[0]+".err"))
	if code := exitCode(ts, err); strconv.Itoa(code) != args[1] {
		ts.Fatalf("%s: exit code %d, not %s", args[0], code, args[1])
	}
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
		"KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal INT|TERM|HUP|KILL|STOP|CONT NAME")
	}
	ts.Check(of(ts).named(ts, args[1]).cmd.Process.Signal(signals[args[0]]))
}

// poll asks until it is answered yes or the time is up, slower every time.
func poll(limit time.Duration, ask func() bool) bool {
	deadline := time.Now().Add(limit)
	wait := time.NewTimer(0)
	defer wait.Stop()
	for step := time.Millisecond; ; step = min(step*2, 50*time.Millisecond) {
		if ask() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		wait.Reset(step)
		<-wait.C
	}
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var last []byte
	if !poll(patience, func() bool {
		last, _ = os.ReadFile(ts.MkAbs(args[0]))
		return re.Match(last)
	}) {
		ts.Fatalf("%s never matched %s:\n%s", args[0], args[1], last)
	}
}

// cmdJSON compares one value of a JSON document. A path is names and indices with dots between.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH EXPECTED")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &v); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	v, ok := at(v, args[1])
	if !ok {
		ts.Fatalf("%s has no %s", args[0], args[1])
	}
	text, isString := v.(string)
	if !isString {
		raw, err := json.Marshal(v)
		ts.Check(err)
		text = string(raw)
	}
	if err := compare(text, args[2]); err != nil {
		ts.Fatalf("%s %s: %v", args[0], args[1], err)
	}
}

func at(v any, path string) (any, bool) {
	for step := range strings.SplitSeq(path, ".") {
		switch t := v.(type) {
		case map[string]any:
			next, ok := t[step]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(t) {
				return nil, false
			}
			v = t[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func compare(got, want string) error {
	short := got[:min(len(got), 500)]
	switch {
	case want == "?":
		return nil
	case strings.HasPrefix(want, "~"):
		re, err := regexp.Compile(want[1:])
		if err != nil {
			return err
		}
		if !re.MatchString(got) {
			return fmt.Errorf("%q does not match %s", short, want[1:])
		}
	case strings.HasPrefix(want, "!"):
		if got == want[1:] {
			return fmt.Errorf("is %q", short)
		}
	case strings.HasPrefix(want, ">"):
		g, err1 := strconv.ParseFloat(got, 64)
		w, err2 := strconv.ParseFloat(want[1:], 64)
		if err1 != nil || err2 != nil || g <= w {
			return fmt.Errorf("%s is not greater than %s", short, want[1:])
		}
	case got != want:
		return fmt.Errorf("%q, not %q", short, want)
	}
	return nil
}
