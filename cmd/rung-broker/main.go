// Command rung-broker keeps secrets and lends them to the gate. It is a program of its own so that no other of rung's links
// what decrypts, and so that a value is in a process that ends within the second. rung starts it for `rung secret` and
// `rung agent`, and for the lease of each run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rung-dev/rung"
)

// bound is the longest anything here takes; what waits for a person has none.
const bound = 2 * time.Minute

func main() {
	a := &app{args: os.Args[1:], in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if err := harden(); err != nil {
		a.complain(err)
		os.Exit(rung.ExitCode(err))
	}
	os.Exit(a.run())
}

// app is one invocation.
type app struct {
	args     []string
	in       io.Reader
	out, err io.Writer
	told     io.Writer // of what was done, for rung's log; nil when nobody listens
	state    string    // directory
	runtime  string    // directory
}

// grammar is everything that rung-broker understands.
type grammar struct {
	Secret secretCmd `cmd:"" help:"Keep secrets, which sandboxes use and never see."`
	Agent  agentCmd  `cmd:"" help:"Revoke agents, and see what they run."`
	Lease  leaseCmd  `cmd:"" hidden:"" help:"Lend secrets to a gate; for rung itself."`
}

// runner is a parsed command.
type runner interface {
	Run(ctx context.Context, a *app) error
}

func (a *app) run() int {
	signal.Ignore(syscall.SIGPIPE) // a closed reader is an error to tell, and a half-done write to undo
	err := a.dispatch()
	if err == nil {
		return 0
	}
	a.complain(err)
	return rung.ExitCode(err)
}

func (a *app) dispatch() error {
	if a.state = os.Getenv("RUNG_STATE_DIR"); !filepath.IsAbs(a.state) {
		return rung.Errorf(rung.KindInvalid, "RUNG_STATE_DIR is not an absolute path; rung sets it").WithHint("rung secret --help")
	}
	a.runtime = os.Getenv("RUNG_RUNTIME_DIR")
	if os.Getenv("RUNG_TOLD_FD") == strconv.Itoa(toldFD) {
		a.told = os.NewFile(toldFD, "told")
	}
	helped := false
	p, err := kong.New(&grammar{}, kong.Name("rung"), kong.Writers(a.out, a.err), kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}))
	if err != nil {
		return rung.Errorf(rung.KindInternal, "command line: %w", err)
	}
	k, err := p.Parse(a.args)
	if helped {
		return nil
	}
	if err != nil && len(a.args) > 1 && a.args[0] == "secret" && a.args[1] == "add" {
		return misunderstood(err)
	}
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "%w", err).WithHint("rung secret --help, rung agent --help")
	}
	cmd, ok := reflect.TypeAssert[runner](k.Selected().Target.Addr())
	if !ok {
		return rung.Errorf(rung.KindInternal, "%s does nothing", k.Command())
	}
	return cmd.Run(context.Background(), a)
}

// complain prints an error and, where there is one, what to do next.
func (a *app) complain(err error) {
	if errors.Is(err, errSilent) {
		return
	}
	if len(a.args) > 0 && a.args[0] == "lease" { // rung tells its user, in its own words
		fmt.Fprintf(a.err, "rung-broker: %v\n", err)
		return
	}
	fmt.Fprintf(a.err, "rung: %v\n", err)
	if hint := rung.HintOf(err); hint != "" {
		fmt.Fprintf(a.err, "rung: try: %s\n", hint)
	}
}

// errSilent ends a command whose failure has been told already.
var errSilent = errors.New("already told")

// toldFD is a pipe to rung, which writes the event log: this program does not link it. A lease's socket has the same number,
// since no command has both.
const toldFD = leaseFD

// tell says what was done, never a value.
func (a *app) tell(kind, action, name, reason string, fields map[string]any) {
	if a.told == nil {
		return
	}
	_ = json.NewEncoder(a.told).Encode(map[string]any{ // rung misses an event when it is gone, and nobody is there to hear so
		"kind": kind, "action": action, "name": name, "reason": reason, "fields": fields,
	})
}

func (a *app) json(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return rung.Errorf(rung.KindInternal, "write the result: %w", err)
	}
	return nil
}
