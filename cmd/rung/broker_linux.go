package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rung-dev/rung"
)

// broker runs rung-broker, the helper that alone links what decrypts. It gets our streams, and its exit code is ours.
func (a *app) broker(ctx context.Context, args []string) (int, error) {
	cmd, err := brokerCommand(ctx, args...)
	if err != nil {
		return 0, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	// An interrupt reaches the helper as well, which has the terminal to set right before it ends: we end after it.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if w, isWait := exit.Sys().(syscall.WaitStatus); isWait && w.Signaled() {
			return 128 + int(w.Signal()), nil
		}
		return exit.ExitCode(), nil // it has told why
	}
	if err != nil {
		return 0, rung.Errorf(rung.KindInternal, "rung-broker: %w", err)
	}
	return 0, nil
}

// brokerCommand is rung-broker with those arguments, in our environment without what changes how a Go program behaves or
// dies: a trace of its stacks is nothing for a log.
func brokerCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	helper := findProgram("rung-broker")
	if helper == "" {
		return nil, rung.Errorf(rung.KindUnavailable, "rung-broker, which keeps secrets and revokes agents, is not found").
			WithHint("put it beside rung or in PATH; `make` builds it into bin/")
	}
	state, runtime, err := places()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, helper, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"GOTRACEBACK", "GODEBUG", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "RUNG_STATE_DIR", "RUNG_RUNTIME_DIR"}, name)
	})
	cmd.Env = append(cmd.Env, "RUNG_STATE_DIR="+state, "RUNG_RUNTIME_DIR="+runtime)
	return cmd, nil
}
