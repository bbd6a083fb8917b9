package main

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rung-dev/rung"
)

// command is one verb. Its grammar is a struct for kong, made fresh for each invocation.
type command struct {
	name, help string
	grammar    func() runner
}

// runner is a parsed command. The int is the exit code; 0 with an error means the error's own code.
type runner interface {
	Run(ctx context.Context, a *app) (int, error)
}

func commands() []command {
	return []command{
		{"run", "run code in a sandbox of its own", func() runner { return &runCmd{} }},
		{"ladder", "which rungs this host can provide, and what gets out of each", func() runner { return &ladderCmd{} }},
		{"whereami", "which rung this very process stands on", func() runner { return &whereamiCmd{} }},
		{"template", "list, build, import, inspect and remove templates", func() runner { return &templateCmd{} }},
		{"record", "show, list and verify records of runs", func() runner { return &recordCmd{} }},
		{"log", "show, verify and export the tamper-evident event log", func() runner { return &logCmd{} }},
		{"secret", "keep secrets that sandboxes use and never see", func() runner { return &secretCmd{} }},
		{"agent", "revoke agents, and see what they run", func() runner { return &agentCmd{} }},
		{"reap", "find and remove what killed runs left behind", func() runner { return &reapCmd{} }},
		{"completion", "print a completion script for bash, zsh or fish", func() runner { return &completionCmd{} }},
		{"version", "print the versions of rung and of the programs it uses", func() runner { return &versionCmd{} }},
	}
}

// dispatch parses only the grammar of the named command: building all of them would cost every start.
func (a *app) dispatch(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 || args[0] == "help" && len(args) == 1 || args[0] == "-h" || args[0] == "--help" {
		a.usage()
		return 0, nil
	}
	name, rest := args[0], args[1:]
	if name == "help" {
		name, rest = args[1], []string{"--help"}
	}
	if name == "--version" {
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return a.exec(ctx, c, rest)
		}
	}
	return 0, rung.Errorf(rung.KindInvalid, "unknown command %q", name).WithHint("rung help")
}

func (a *app) exec(ctx context.Context, c command, args []string) (code int, err error) {
	g := c.grammar()
	helped := false
	p, err := kong.New(g, kong.Name("rung "+c.name), kong.Description(c.help+"."), kong.Writers(a.out, a.err),
		kong.Exit(func(int) { helped = true }), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.Help(helpWithExamples), kong.WithHyphenPrefixedParameters(true),
		kong.KindMapper(reflect.String, kong.MapperFunc(verbatim)))
	if err != nil {
		return 0, rung.Errorf(rung.KindInternal, "command line of %s: %w", c.name, err)
	}
	k, err := p.Parse(args)
	if helped {
		return 0, nil
	}
	if err != nil {
		return 0, rung.Errorf(rung.KindInvalid, "%w", err).WithHint("rung " + c.name + " --help")
	}
	if node := k.Selected(); node != nil && node.Target.CanAddr() {
		if sub, ok := reflect.TypeAssert[runner](node.Target.Addr()); ok {
			g = sub
		}
	}
	return g.Run(ctx, a)
}

// verbatim takes a word of the command line as it is. kong's own mapper sends it through JSON, and what is not UTF-8 does
// not come out of that as it went in.
func verbatim(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("text")
	if err != nil {
		return err
	}
	s, ok := t.Value.(string)
	if !ok {
		s = t.String()
	}
	target.SetString(s)
	return nil
}

// exampler is a command with examples for its help.
type exampler interface{ Examples() string }

func helpWithExamples(o kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(o, ctx); err != nil {
		return err
	}
	if e, ok := reflect.TypeAssert[exampler](ctx.Model.Target.Addr()); ok {
		fmt.Fprintf(ctx.Stdout, "\nExamples:\n%s", e.Examples())
	}
	return nil
}

func (a *app) usage() {
	fmt.Fprint(a.out, "rung runs code nobody reviewed on the isolation boundary it deserves.\n\nUsage: rung <command> [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(a.out, "  %-11s %s\n", c.name, c.help)
	}
	fmt.Fprint(a.out, `
Examples:
  rung run --threat trusted -- echo hello          on the best rung for vetted code
  rung run --rung gvisor --lang python prog.py     a user-space kernel around a Python program
  rung ladder                                      what this host can provide

"rung <command> --help" tells the rest. Exit codes: the command's own; 124 time-out; 125 rung's error;
126 refused by policy or not executable; 127 not found inside; 137 ended by a limit; 143 stopped with
rung; 128+n ended by signal n. Nothing leaves a sandbox that --allow, --registry or --policy does not name.
`)
}

// size is a byte count flag such as 512MiB.
type size int64

func (s *size) UnmarshalText(text []byte) error {
	n, err := rung.ParseBytes(string(text))
	*s = size(n)
	return err
}

// limitFlags are the caps of a sandbox; the defaults are rung.DefaultLimits.
type limitFlags struct {
	CPUs      *float64      `name:"cpus" help:"Processor time per wall time, in cores (default 2, or as many as there are)." placeholder:"N"`
	Memory    size          `help:"Memory and page cache; no swap (default ${default})." default:"512MiB" placeholder:"SIZE"`
	PIDs      int64         `name:"pids" help:"Processes and threads (default ${default})." default:"256" placeholder:"N"`
	Files     int64         `name:"open-files" help:"Open files per process (default ${default})." default:"1024" placeholder:"N"`
	Disk      size          `help:"Writable bytes (default ${default})." default:"1GiB" placeholder:"SIZE"`
	MaxOutput size          `help:"Bytes of stdout and stderr; one more ends the run (default ${default})." default:"10MiB" placeholder:"SIZE"`
	Timeout   time.Duration `help:"Wall clock (default ${default})." default:"60s" placeholder:"TIME"`
	Best      bool          `name:"best-effort-limits" help:"Accept limits that this host cannot enforce; the record names them."`
}

func (l *limitFlags) limits() (rung.Limits, error) {
	cpus := min(rung.DefaultLimits().CPUs, float64(runtime.NumCPU()))
	if l.CPUs != nil {
		cpus = *l.CPUs
	}
	v := rung.Limits{
		CPUs: cpus, Memory: int64(l.Memory), PIDs: l.PIDs, Files: l.Files, Disk: int64(l.Disk),
		Output: int64(l.MaxOutput), Timeout: l.Timeout, Best: l.Best,
	}
	return v, v.Validate()
}

// oneLine makes any text safe for a line of a terminal: control characters and invalid bytes become escapes.
func oneLine(s string) string {
	q := fmt.Sprintf("%q", s)
	return strings.TrimSuffix(strings.TrimPrefix(q, `"`), `"`)
}
