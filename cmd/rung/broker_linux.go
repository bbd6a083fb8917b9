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

// secretCmd is `rung secret`; rung-broker understands the rest.
type secretCmd struct {
	Args []string `arg:"" optional:"" passthrough:"all" name:"add|list|rm|check" help:"What to do, and its arguments: rung secret add --help."`
}

// Examples implements exampler.
func (*secretCmd) Examples() string {
	return `  rung secret add GITHUB_TOKEN                           asks on the terminal, does not show it
  pass show api | rung secret add API_KEY
  rung secret add DB --exec 'vault kv get -field=password secret/db' --exec-env VAULT_ADDR
  rung secret check
`
}

// Run implements runner.
func (c *secretCmd) Run(ctx context.Context, a *app) (int, error) {
	return a.broker(ctx, append([]string{"secret"}, orHelp(c.Args)...))
}

// orHelp lets the helper tell what there is where nothing was asked.
func orHelp(args []string) []string {
	if len(args) == 0 {
		return []string{"--help"}
	}
	return args
}

// agentCmd is `rung agent`; rung-broker understands the rest.
type agentCmd struct {
	Args []string `arg:"" optional:"" passthrough:"all" name:"list|show|revoke|restore|jwks" help:"What to do, and its arguments: rung agent revoke --help."`
}

// Examples implements exampler.
func (*agentCmd) Examples() string {
	return `  rung agent revoke builder --reason 'leaked its key'
  rung agent list
  rung agent jwks > rung-keys.json
`
}

// Run implements runner.
func (c *agentCmd) Run(ctx context.Context, a *app) (int, error) {
	return a.broker(ctx, append([]string{"agent"}, orHelp(c.Args)...))
}
