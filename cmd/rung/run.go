package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/cmd/rung/egress"
	"github.com/rung-dev/rung/internal/session"
)

// runCmd is `rung run`.
type runCmd struct {
	Threat      string   `help:"What is known about the code: trusted, generated, untrusted, adversarial or compute (default ${default})." default:"generated" placeholder:"T"`
	Rung        string   `help:"Pin the rung: process, container, hardened, gvisor (none: see below)." placeholder:"R"`
	AcceptLower string   `help:"Accept this rung although the threat asks for a stronger one; it is recorded." placeholder:"RUNG"`
	IKnow       bool     `name:"i-know-this-is-not-a-sandbox" help:"Needed for --rung none, which runs the code with your own rights."`
	Template    string   `help:"Root file system to start from; see rung template list." default:"host" placeholder:"NAME"`
	Lang        string   `help:"Run a program: python, javascript, typescript or bash; told by FILE's extension otherwise." placeholder:"LANG"`
	Code        *string  `help:"The program itself, instead of FILE." placeholder:"TEXT"`
	Env         []string `help:"Set an environment variable inside." sep:"none" placeholder:"K=V"`
	In          []string `help:"Copy a file or directory in (never mounted), by default into /work." sep:"none" placeholder:"HOST[:PATH]"`
	Out         []string `help:"Copy a file or directory out at the end; links are refused." sep:"none" placeholder:"PATH[:HOST]"`
	JSON        bool     `name:"json" help:"Print one record instead of the output."`
	Quiet       bool     `short:"q" help:"No line about the run on standard error."`

	limitFlags   `embed:""`
	egress.Flags `embed:""`

	Args []string `arg:"" optional:"" passthrough:"partial" name:"FILE | -- CMD ARG" help:"A program file and its arguments, or a command; - reads the program from standard input."`
}

// Examples implements exampler.
func (*runCmd) Examples() string {
	return `  rung run --rung gvisor --lang python --code 'print(6*7)'
  rung run --threat trusted --in data.csv --out result.json program.py
  rung run --rung gvisor --memory 256MiB --timeout 10s script.js
  echo 'console.log(1 as number)' | rung run --rung gvisor --lang typescript -
  rung run --rung process --accept-lower process --json -- id
  rung run --rung gvisor --allow api.github.com -- curl -s https://api.github.com/zen
  rung run --rung gvisor --registry npm --secret TOKEN@api.example.com -- ./build.sh
`
}

// Run implements runner.
func (c *runCmd) Run(ctx context.Context, a *app) (int, error) {
	limits, err := c.limits()
	if err != nil {
		return 0, err
	}
	p, err := c.program(a)
	if err != nil {
		return 0, err
	}
	inputs, err := c.inputs()
	if err != nil {
		return 0, err
	}
	outputs, err := c.outputs()
	if err != nil {
		return 0, err
	}
	for _, kv := range c.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return 0, rung.Errorf(rung.KindInvalid, "--env %s: not of the form NAME=VALUE", oneLine(kv))
		}
	}
	threat, err := rung.ParseThreat(c.Threat)
	if err != nil {
		return 0, err
	}
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	t := session.Task{
		Threat: threat, Command: p.command, Env: append(c.Env, p.env...), Limits: limits,
		Inputs: append(inputs, p.inputs...), Outputs: outputs, Stdin: p.stdin,
	}
	return h.run(ctx, a, c, t)
}

// report tells one line about the run on standard error.
func (c *runCmd) report(a *app, rec *rung.Record, where string) {
	if c.Quiet || c.JSON {
		return
	}
	end := fmt.Sprintf("exit %d", rec.ExitCode)
	if why := reason(rec); why != "" {
		end = why + ", " + end
	}
	calls, uses := denials(rec)
	if calls > 0 {
		end += fmt.Sprintf(", %d denied call%s", calls, plural(calls))
	}
	if len(uses) > 0 {
		end += fmt.Sprintf(", %d network refusal%s", len(uses), plural(int64(len(uses))))
	}
	if missing := unenforced(rec.Limits); missing != "" {
		end += "; NOT enforced: " + missing
	}
	fmt.Fprintf(a.err, "rung: %s, template %s, started in %.0f ms, ran %.0f ms, %s; record: %s\n",
		rec.Rung, rec.Template, float64(rec.Timings.Create), float64(rec.Timings.Run), end, where)
	for i, d := range uses {
		if i == maxTold {
			fmt.Fprintf(a.err, "rung: %d more refusals are in the record\n", len(uses)-i)
			break
		}
		fmt.Fprintln(a.err, strings.ReplaceAll(oneLine(refusal(d)), `\"`, `"`))
	}
}

// maxTold is how many refusals of the network are told after a run; the record has all.
const maxTold = 5

// refusal is one refused use of the network, with what would have let it through. A client inside often tells its user no
// more than that a name does not exist.
func refusal(d *rung.NetDenial) string {
	text := "rung: refused: "
	if d.Request != "" && d.Host != "" {
		text += d.Request + " on "
	}
	if at := cmp.Or(d.Host, d.Address); at != "" {
		text += at + ": "
	}
	text += d.Reason
	if d.Count > 1 {
		text += fmt.Sprintf(" (%d times)", d.Count)
	}
	if d.Hint != "" {
		text += "; to allow it: " + d.Hint
	}
	return text
}

// reason says in words why a run did not end by itself.
func reason(rec *rung.Record) string {
	switch rec.ExitReason {
	case rung.Exited:
		return ""
	case rung.Limit:
		return "output limit (" + rung.FormatBytes(rec.Limits.Output) + ")"
	case rung.OOM:
		return "oom (memory limit " + rung.FormatBytes(rec.Limits.Memory) + ")"
	case rung.TimedOut:
		return "timeout (" + rec.Limits.Timeout.String() + ")"
	}
	return string(rec.ExitReason)
}

// unenforced names the limits this run went without; the record has the reasons.
func unenforced(l rung.Limits) string {
	var names []string
	for _, text := range l.Unforced {
		name, _, _ := strings.Cut(text, ":")
		names = append(names, oneLine(name))
	}
	return strings.Join(names, ", ")
}

// denials counts the denied calls, and lists what was refused on the network.
func denials(rec *rung.Record) (calls int64, uses []*rung.NetDenial) {
	for _, d := range rec.Denied {
		if d.Network == nil {
			calls += d.Count
		} else {
			uses = append(uses, d.Network)
		}
	}
	return calls, uses
}

// inputs reads HOST[:PATH]. The last colon splits, and only when what follows looks like a path inside, so that names with
// colons can be written with an explicit path.
func (c *runCmd) inputs() (list []session.Input, err error) {
	for _, v := range c.In {
		host, inside := splitPair(v)
		if host == "" {
			return nil, rung.Errorf(rung.KindInvalid, "--in %s: no host path", oneLine(v))
		}
		if _, err := os.Stat(host); err != nil {
			return nil, rung.Errorf(rung.KindInvalid, "--in: %w", err)
		}
		list = append(list, session.Input{Host: host, Inside: inside})
	}
	return list, nil
}

func (c *runCmd) outputs() (list []session.Output, err error) {
	for _, v := range c.Out {
		inside, host := splitPair(v)
		if inside == "" {
			return nil, rung.Errorf(rung.KindInvalid, "--out %s: no path inside", oneLine(v))
		}
		// Before the run, since afterwards its work would be lost.
		dir := filepath.Dir(host)
		if st, err := os.Stat(dir); err != nil {
			return nil, rung.Errorf(rung.KindInvalid, "--out %s: %w", oneLine(v), err)
		} else if !st.IsDir() {
			return nil, rung.Errorf(rung.KindInvalid, "--out %s: %s is not a directory", oneLine(v), oneLine(dir))
		}
		list = append(list, session.Output{Inside: inside, Host: host})
	}
	return list, nil
}

func splitPair(v string) (left, right string) {
	if i := strings.LastIndexByte(v, ':'); i > 0 && i < len(v)-1 {
		return v[:i], v[i+1:]
	}
	return strings.TrimSuffix(v, ":"), ""
}

// dashed reports whether a -- stands before the positional arguments, which are the end of the command line: then they are
// a command, never a program file.
func (a *app) dashed(positional []string) bool {
	if len(positional) > 0 && positional[0] == "--" {
		return true
	}
	before := len(a.args) - len(positional) - 1
	return before >= 0 && a.args[before] == "--"
}

// stdinOf returns the command's standard input: ours, unless it was the program's source. The null device is no input: the
// command gets its own.
func stdinOf(in io.Reader) io.Reader {
	f, ok := in.(*os.File)
	if !ok {
		return in
	}
	st, err := f.Stat()
	if err != nil {
		return nil // closed before we started
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(st, null) {
		return nil
	}
	return f
}

var errNoProgram = rung.Errorf(rung.KindInvalid, "nothing to run").
	WithHint("give a program file, --code TEXT with --lang, or a command after --; see rung run --help")

const stripTimeout = 30 * time.Second
