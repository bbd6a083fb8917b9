// Command rung runs code nobody reviewed on the isolation boundary it deserves. All wiring of the system is written here:
// which drivers exist, where things are kept, how decisions, sandboxes and records meet.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"github.com/rung-dev/rung"
	"golang.org/x/term"
)

// version is stamped by the linker.
var version = "dev"

func main() {
	becomeHolder() // never returns when this process is a holder
	if len(os.Args) > 1 && os.Args[1] == "run" {
		// A run waits for others nearly all the time. Several threads that hand its little work around cost a tenth of it.
		runtime.GOMAXPROCS(1)
	}
	a := &app{args: os.Args[1:], in: os.Stdin, out: os.Stdout, err: os.Stderr, seed: sow(os.Args[1:])}
	code := a.run()
	a.endUnused()
	os.Exit(code)
}

// app is one invocation: tests run it in process.
type app struct {
	args     []string
	in       io.Reader
	out, err io.Writer
	answered bool         // a record was printed
	seed     func() *seed // the holder started ahead, nil if none was; waits for its start
}

func (a *app) run() int {
	// A closed reader of our output is an error to handle, not a reason to die before the sandbox is gone.
	signal.Ignore(syscall.SIGPIPE)
	code, e := a.dispatch(context.Background(), a.args)
	if e != nil {
		if code == 0 {
			code = rung.ExitCode(e)
		}
		a.answer(e, code)
		a.complain(e)
	}
	return code
}

// answer prints an error as JSON where a program reads us and nothing else was printed: a run that never started.
func (a *app) answer(err error, code int) {
	if a.answered || !slices.Contains(a.args, "--json") || len(a.args) == 0 || a.args[0] != "run" {
		return
	}
	_ = printJSON(a.out, map[string]any{ // if it cannot be written, the exit code still tells
		"error": err.Error(), "kind": rung.KindOf(err), "hint": rung.HintOf(err), "exit_code": code,
	})
}

// complain prints an error and, where there is one, what to do next.
func (a *app) complain(err error) {
	if errors.Is(err, errSilent) {
		return
	}
	fmt.Fprintf(a.err, "rung: %v\n", err)
	if hint := rung.HintOf(err); hint != "" {
		fmt.Fprintf(a.err, "rung: try: %s\n", hint)
	}
}

// errSilent ends a command whose failure has been told already.
var errSilent = errors.New("already told")

// printJSON writes one value as one line, readable by people and programs alike: no HTML escapes.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return rung.Errorf(rung.KindInternal, "write the result: %w", err)
	}
	return nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}

func plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}
