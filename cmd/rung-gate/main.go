//go:build linux

// Command rung-gate is the gate's process; see internal/gate. It is started by rung, never by a person:
//
//	rung-gate serve                serves the control socket (descriptor 3) of a runtime directory (descriptor 4)
//	rung-gate registries KIND…     prints what this host's package clients are configured to ask
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate"
)

// version is set by the linker.
var version = "dev"

func main() {
	if err := run(os.Args[1:]); err != nil {
		os.Stderr.WriteString("rung-gate: " + err.Error() + "\n")
		os.Exit(1)
	}
}

const (
	listenerFD = 3
	dirFD      = 4
)

// defaultLinger is how long a gate without sandboxes stays: starting one costs some 30 ms.
const defaultLinger = 5 * time.Minute

func run(args []string) error {
	if len(args) > 1 && args[0] == "registries" {
		return printRegistries(args[1:])
	}
	if len(args) != 1 || args[0] != "serve" {
		return errors.New("usage: rung-gate serve | rung-gate registries [--min-age AGE] KIND[:PACKAGE,…]…")
	}
	if err := bound(); err != nil {
		return err
	}
	owner, err := strconv.Atoi(os.Getenv("RUNG_GATE_OWNER"))
	if err != nil {
		return errors.New("RUNG_GATE_OWNER: not a user id; rung starts this program")
	}
	linger := defaultLinger
	if text := os.Getenv("RUNG_GATE_LINGER"); text != "" {
		if linger, err = time.ParseDuration(text); err != nil || linger <= 0 {
			return errors.New("RUNG_GATE_LINGER: not a positive duration")
		}
	}
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return err
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return errors.New("descriptor 3 is not a Unix socket")
	}
	outside, err := gate.OutsideOfHost(os.Getenv)
	if err != nil {
		return err
	}
	confined, err := confine()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return gate.Serve(ctx, gate.Config{
		Listener: listener, Dir: os.NewFile(dirFD, "dir"), Owner: owner, Linger: linger, Build: version, Confined: confined, Outside: outside,
	})
}

// bound keeps what the gate writes and leaves behind small: its only file is its log.
func bound() error {
	_ = unix.CloseRange(dirFD+1, 1<<31, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11; it starts no program anyway
	unix.CloseOnExec(listenerFD)
	unix.CloseOnExec(dirFD)
	for resource, value := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 1 << 20} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return rung.Errorf(rung.KindInternal, "rlimit %d: %w", resource, err)
		}
	}
	files := unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		files.Cur = files.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &files) // with fewer it refuses connections earlier
	}
	// Values of secrets are in this process: nobody of the same user may trace it or read its memory.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
