package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/cmd/rung/egress"
	"github.com/rung-dev/rung/internal/audit"
)

// broker runs rung-broker, the helper that alone links what decrypts. It gets our streams, and its exit code is ours. What
// it did becomes events.
func (a *app) broker(ctx context.Context, args []string) (int, error) {
	state, runtime, err := places()
	if err != nil {
		return 0, err
	}
	cmd, err := egress.Host{StateDir: state, RuntimeDir: runtime}.Broker(ctx, args...)
	if err != nil {
		return 0, err
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return 0, rung.Errorf(rung.KindExhausted, "rung-broker: %w", err)
	}
	defer told.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = a.in, a.out, a.err, []*os.File{tell}
	cmd.Env = append(cmd.Env, "RUNG_TOLD_FD=3")
	// An interrupt reaches the helper as well, which has the terminal to set right before it ends: we end after it.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	err = cmd.Start()
	tell.Close()
	if err != nil {
		return 0, rung.Errorf(rung.KindInternal, "rung-broker: %w", err)
	}
	logged := note(state, told)
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if w, isWait := exit.Sys().(syscall.WaitStatus); isWait && w.Signaled() {
			return 128 + int(w.Signal()), logged
		}
		return exit.ExitCode(), logged // it has told why
	}
	if err != nil {
		return 0, rung.Errorf(rung.KindInternal, "rung-broker: %w", err)
	}
	return 0, logged
}

// deed is what rung-broker did, one JSON object for each.
type deed struct {
	Kind   string         `json:"kind"`
	Action string         `json:"action"`
	Name   string         `json:"name"`
	Reason string         `json:"reason"`
	Fields map[string]any `json:"fields"`
}

// maxDeeds bounds what is read of rung-broker: as many secrets as one command line names.
const maxDeeds = 1 << 20

// note logs what is told on a pipe until it ends.
func note(state string, told io.Reader) error {
	var failed error
	for dec := json.NewDecoder(io.LimitReader(told, maxDeeds)); ; {
		var d deed
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			return failed
		} else if err != nil {
			return errors.Join(failed, rung.Errorf(rung.KindInternal, "what rung-broker did: %w", err))
		}
		store, err := audit.Open(state)
		if err == nil {
			err = errors.Join(store.Append(audit.Did(d.Kind, d.Action, d.Name, d.Reason, d.Fields)), store.Close())
		}
		if err != nil {
			failed = errors.Join(failed, rung.Errorf(rung.KindUnavailable, "it is done, but the event could not be logged: %w", err))
		}
	}
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
