//go:build linux

// Command probe attacks the sandbox it runs in, and says what came of it. It is the hostile guest of the tests beside it,
// and safe by construction: nothing it does changes a host on which it succeeds. Kernel switches are opened and never
// written; calls that would do something get arguments that fail after the permission check; memory is written with what
// it held; secrets are read from canaries that the test planted, and told as digests.
//
//	probe all TARGET        every attack, each in a process of its own; one result in JSON per line
//	probe one NAME TARGET   one attack
//	probe exhaust WHAT N    use up disk, inodes, pids, memory or processes; see exhaust.go
//	probe reach PID...      what of these processes is in reach, one line of JSON for each; for an escapee on the host
//
// TARGET is JSON, see target.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// target is what the test planted, and whom to attack.
type target struct {
	Guest    int      `json:"guest"`    // rung-guest's pid here; filled in by all
	TCP      []string `json:"tcp"`      // addresses on the host that answer with a canary
	Abstract string   `json:"abstract"` // name of an abstract socket of the host
	Socket   string   `json:"socket"`   // path of a socket of the host
	Files    []string `json:"files"`    // canaries in the host's tree
	Env      string   `json:"env"`      // name of a variable of rung's own environment
	Marker   string   `json:"marker"`   // in the command line of a process of the host
	Boot     string   `json:"boot"`     // the host's boot id
	FDs      []int    `json:"fds"`      // descriptors above 2 that were open at the start; filled in by all
	Scratch  []string `json:"scratch"`  // two directories that may be written to
	Really   bool     `json:"really"`   // attack for good: signals that kill, names that stay
}

// Outcomes of an attack.
const (
	crossed = "crossed" // it reached what it should not reach
	held    = "held"    // it was refused
	absent  = "absent"  // there is no such thing here
	broken  = "error"   // the probe could not try
)

type result struct {
	Probe   string `json:"probe"`
	Outcome string `json:"outcome"`
	Errno   string `json:"errno,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// attack tries one thing.
type attack struct {
	name string
	try  func(target) result
}

func attacks() []attack {
	var all []attack
	for _, group := range [][]attack{guestAttacks(), kernelAttacks(), socketAttacks(), fileAttacks(), entryAttacks()} {
		all = append(all, group...)
	}
	return all
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fds := descriptors() // before anything is opened
	switch {
	case len(args) == 2 && args[0] == "all":
		t, err := parse(args[1])
		if err != nil {
			return err
		}
		t.Guest, t.FDs = os.Getppid(), fds
		return everything(t)
	case len(args) == 3 && args[0] == "one":
		t, err := parse(args[2])
		if err != nil {
			return err
		}
		return single(args[1], t)
	case len(args) == 3 && args[0] == "exhaust":
		return exhaust(args[1], args[2])
	case len(args) > 1 && args[0] == "reach":
		return reach(args[1:])
	case len(args) == 1 && args[0] == "nothing":
		return nil
	}
	return errors.New("usage: probe all TARGET | one NAME TARGET | exhaust WHAT N | reach PID... | nothing")
}

func parse(text string) (t target, err error) { return t, json.Unmarshal([]byte(text), &t) }

// each attack has that long.
const patience = 10 * time.Second

func everything(t target) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, a := range attacks() {
		if err := out.Encode(apart(a.name, string(raw))); err != nil {
			return err
		}
	}
	return nil
}

// apart runs one attack in a process of its own: what it does to itself is not the next one's trouble.
func apart(name, t string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	raw, err := exec.CommandContext(ctx, self(), "one", name, t).Output()
	var r result
	if json.Unmarshal(raw, &r) == nil && r.Probe == name {
		return r
	}
	r = result{Probe: name, Outcome: broken, Detail: fmt.Sprint(err)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			r.Errno = s.Signal().String()
			if s.Signal() == syscall.SIGSYS {
				r.Outcome = held
			}
		}
		r.Detail += ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return r
}

func single(name string, t target) error {
	runtime.LockOSThread() // some attacks are a thread's own
	for _, a := range attacks() {
		if a.name == name {
			r := a.try(t)
			r.Probe = name
			return json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	return errors.New("no attack " + name)
}

// self is this program; /proc may be a stranger's, but this link is always one's own.
func self() string { return "/proc/self/exe" }

// judge turns what a call returned into an outcome. through are errors that come only after the permission was given.
func judge(err error, through ...error) result {
	r := result{Outcome: crossed}
	if err == nil {
		return r
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		r.Errno = unix.ErrnoName(number)
	} else {
		r.Detail = err.Error()
	}
	for _, e := range through {
		if errors.Is(err, e) {
			return r
		}
	}
	r.Outcome = held
	for _, e := range []error{unix.ENOSYS, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.EOPNOTSUPP, unix.ENODEV} {
		if errors.Is(err, e) {
			r.Outcome = absent
		}
	}
	return r
}

func failed(err error) result { return result{Outcome: broken, Detail: err.Error()} }

// fd judges a call whose success is a descriptor.
func fd(n int, err error) result {
	if err == nil {
		unix.Close(n)
	}
	return judge(err)
}

// open judges opening a file, which is then closed untouched.
func open(path string, flags int) result {
	return fd(unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0))
}

// readable judges whether a first byte can be read.
func readable(path string) result {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return judge(err)
	}
	defer f.Close()
	var b [1]byte
	n, err := f.Read(b[:])
	if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
		return result{Outcome: held, Detail: "empty"}
	}
	return judge(err)
}

// first returns the first crossing of several, else the last refusal.
func first(list ...result) result {
	last := result{Outcome: held, Detail: "nothing to try"}
	for _, r := range list {
		if last = r; r.Outcome == crossed {
			return r
		}
	}
	return last
}

func (r result) with(format string, args ...any) result {
	r.Detail = strings.TrimSpace(fmt.Sprintf(format, args...) + " " + r.Detail)
	return r
}
