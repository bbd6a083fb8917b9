//go:build linux

package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/test/egress/order"
)

// hostile is one case with what must come of it.
type hostile struct {
	order.Case
	// want is the denial that must be in the record, as "layer: part of its reason"; "" where nobody is asked, and so nobody
	// can tell: said in Held.
	want string
	// byProxy is want on rung process, where there is a proxy and no interface; "-" for none, "" for the same.
	byProxy string
	// raw says that the case takes CAP_NET_RAW: where the rung does not give it, the sandbox's own kernel refuses.
	raw bool
	// pass: a rule names it, so it must cross everywhere.
	pass bool
	// noControl says why the control cannot cross.
	noControl string
	// only are the rungs that the case is about; why says it of the others.
	only []rung.Rung
	why  string
	// forbid: the token may arrive, but not together with this.
	forbid string
	// reaches are destinations whose mere first packet is a crossing, beside a literal Host.
	reaches []string
	// check finds what else would be a crossing in what the probe tells and the zone was asked; "" for nothing.
	check func(c hostile, r order.Result) string
}

// batch is a number of cases in one sandbox.
type batch struct {
	name    string
	args    []string // of rung run
	policy  string   // a policy file
	env     []string // of rung itself
	serial  bool
	files   int      // how many descriptors rung and its gate may have; 0: as many as here
	allowed []string // first packets that rules name
	cases   []hostile
	after   func(t *testing.T, r rung.Rung, out outcome) // more to look at
}

// outcome is what a run came to.
type outcome struct {
	record  rung.Record
	stderr  string
	results map[string]order.Result
	begun   map[string]int
	tokens  map[string]string
	names   map[string]int
}

// rungs under attack.
func rungs() []rung.Rung {
	return []rung.Rung{rung.Process, rung.Container, rung.Hardened, rung.GVisor}
}

// bound is how long one run may take on a slow machine.
const bound = 150 * time.Second

// command is a run of rung with everything of its own.
func (w *theWorld) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.rung, args...)
	cmd.Env = append(os.Environ(), "RUNG_STATE_DIR="+filepath.Join(w.dir, "state"), "RUNG_RUNTIME_DIR="+filepath.Join(w.dir, "run"), "RUNG_GATE_LINGER=5s")
	return cmd
}

// pinned are the flags that get a rung whatever the threat.
func pinned(r rung.Rung) []string {
	if r == rung.None {
		return []string{"run", "--rung", "none", "--i-know-this-is-not-a-sandbox"}
	}
	return []string{"run", "--threat", "trusted", "--rung", string(r), "--accept-lower", string(r)}
}

// runArgs are the arguments of a batch's run; the files it needs are written.
func (w *theWorld) runArgs(t *testing.T, r rung.Rung, b *batch) []string {
	t.Helper()
	o := order.Order{CA: string(w.ca.pem), Control: r == rung.None, Serial: b.serial}
	for _, c := range b.cases {
		if !c.on(r) {
			continue
		}
		// What must come may take long on a busy machine; what must not is waited for a little while only.
		if c.Wait == 0 && (c.pass || r == rung.None) && (c.Op == "dial" || c.Op == "stream" || c.Op == "half") && (c.TLS == nil || !c.TLS.Raw) {
			c.Wait = 8000
		}
		o.Cases = append(o.Cases, c.Case)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "order.json")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	args := append(pinned(r), "--timeout", "120s", "--in", filepath.Join(w.dir, "probe")+":probe", "--in", file+":order.json")
	if r == rung.None {
		args = append(args, "--env", "HTTPS_PROXY=http://127.0.0.1:3128")
	} else {
		args = append(args, b.args...)
		if b.policy != "" {
			policy := filepath.Join(dir, "policy.yaml")
			if err := os.WriteFile(policy, []byte(b.policy), 0o644); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--policy", policy)
		}
	}
	return args
}

// on reports whether a case is tried on a rung; the control has its own reasons.
func (c hostile) on(r rung.Rung) bool {
	if r == rung.None {
		return c.noControl == ""
	}
	return c.only == nil || slices.Contains(c.only, r)
}

// running is a run that has begun.
type running struct {
	w      *theWorld
	cmd    *exec.Cmd
	cancel context.CancelFunc
	lines  chan string // of standard output, as they come
	stderr bytes.Buffer
}

// begin starts a batch, with one record as its output, or with the probe's own as it comes.
func (w *theWorld) begin(t *testing.T, r rung.Rung, b *batch, json bool) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	args := w.runArgs(t, r, b)
	if json {
		args = append(args, "--json")
	}
	x := &running{w: w, cmd: w.command(ctx, append(args, "--", "./probe", "order.json")...), cancel: cancel, lines: make(chan string, 4096)}
	x.cmd.Env = append(x.cmd.Env, b.env...)
	if b.files > 0 { // by a shell, since a limit that was lowered stays low
		limit := fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, b.files)
		x.cmd.Path, x.cmd.Args = "/bin/sh", append([]string{"/bin/sh", "-c", limit}, x.cmd.Args...)
	}
	x.cmd.Stderr = &x.stderr
	stdout, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(x.lines)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				x.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(cancel)
	return x
}

// finish waits for the end of a run with a record.
func (x *running) finish(t *testing.T) outcome {
	t.Helper()
	defer x.cancel()
	var stdout strings.Builder
	for line := range x.lines {
		stdout.WriteString(line)
	}
	err := x.cmd.Wait()
	out := outcome{stderr: x.stderr.String()}
	if e := json.Unmarshal([]byte(stdout.String()), &out.record); e != nil {
		t.Fatalf("rung: %v; no record: %v\n%s%s", err, e, stdout.String(), out.stderr)
	}
	if out.record.ExitCode != 0 {
		t.Fatalf("the probe ended with %d (%s): %s", out.record.ExitCode, out.record.ExitReason, out.record.Stderr+out.stderr)
	}
	out.results = results(t, out.record.Stdout)
	x.w.collect(t, &out)
	return out
}

// waits returns when the sandbox has asked a stand-in that answers later.
func (x *running) waits(t *testing.T, token string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !x.w.stands.waits(token) {
		select {
		case line, ok := <-x.lines:
			t.Fatalf("the run said too early: %s %v %s", line, ok, x.stderr.String())
		case <-tick.C:
		}
	}
}

// result waits for what the probe says of one case, in a run without a record.
func (x *running) result(t *testing.T, name string) order.Result {
	t.Helper()
	for line := range x.lines { // bounded by the run's own end
		if r, ok := results(t, line)[name]; ok {
			return r
		}
	}
	t.Fatalf("the run ended without a word of %q: %s", name, x.stderr.String())
	return order.Result{}
}

// run runs a batch and collects what came of it.
func (w *theWorld) run(t *testing.T, r rung.Rung, b *batch) outcome {
	t.Helper()
	w.prepare(t, b)
	return w.begin(t, r, b, true).finish(t)
}

// prepare gives each case its token and forgets what was before.
func (w *theWorld) prepare(t *testing.T, b *batch) {
	t.Helper()
	for i := range b.cases {
		tokens++
		b.cases[i] = b.cases[i].with(fmt.Sprintf("x%sn%04d", w.nonce, tokens))
	}
	w.wire.look(t) // what is still under way belongs to the run before
	w.wire.reset()
	w.stands.reset()
	w.zone.reset()
}

var tokens int

// with puts a token into a case.
func (c hostile) with(token string) hostile {
	fill := func(s string) string {
		if c.Token != "" {
			s = strings.ReplaceAll(s, c.Token, token)
		}
		return strings.ReplaceAll(s, "{t}", token)
	}
	c.Host, c.Send = fill(c.Host), []byte(fill(string(c.Send)))
	if c.DNS != nil {
		d := *c.DNS
		d.Name, d.Option, d.Second, d.Extra = fill(d.Name), fill(d.Option), fill(d.Second), fill(d.Extra)
		c.DNS = &d
	}
	c.forbid = fill(c.forbid)
	c.Token = token
	return c
}

func (w *theWorld) collect(t *testing.T, out *outcome) {
	t.Helper()
	out.begun, out.tokens = w.wire.look(t)
	out.names = w.zone.names()
}

func results(t *testing.T, stdout string) map[string]order.Result {
	t.Helper()
	all := map[string]order.Result{}
	for line := range strings.Lines(stdout) {
		var r order.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("not a result of the probe's: %q", line)
		}
		all[r.Name] = r
	}
	return all
}

// crossing says how a case got through, "" if it did not.
func (w *theWorld) crossing(c hostile, out outcome) string {
	parts := w.stands.heardOf(c.Token)
	if c.forbid != "" {
		for _, p := range parts {
			if strings.Contains(strings.ToLower(p), strings.ToLower(c.forbid)) {
				return "arrived with " + c.forbid + ": " + p
			}
		}
		return ""
	}
	if len(parts) > 0 {
		return "arrived at " + parts[0]
	}
	if where := out.tokens[c.Token]; where != "" {
		return "seen on " + where
	}
	for name := range out.names {
		if strings.Contains(strings.ToLower(name), c.Token) {
			return "asked the resolver for " + name
		}
	}
	for _, key := range c.reaches {
		if out.begun[key] > 0 {
			return "began " + key
		}
	}
	if c.check != nil {
		return c.check(c, out.results[c.Name])
	}
	return ""
}

// denied finds a denial as a case wants it.
func denied(out outcome, want string) bool {
	layer, reason, _ := strings.Cut(want, ": ")
	return slices.ContainsFunc(out.record.Denied, func(d rung.Denied) bool {
		return d.Network != nil && d.Network.Layer == layer && strings.Contains(d.Network.Reason+" "+d.Network.Host, reason)
	})
}

func denials(out outcome) string {
	var b strings.Builder
	for _, d := range out.record.Denied {
		if n := d.Network; n != nil {
			fmt.Fprintf(&b, "\n  %s: %s [%s %s:%d %s] x%d", n.Layer, n.Reason, n.Host, n.Address, n.Port, n.Request, n.Count)
		}
	}
	return b.String()
}

// wanted is the denial that a case must leave on a rung, "" for none.
func (c hostile) wanted(r rung.Rung) string {
	switch {
	case r == rung.Process && c.byProxy == "-", r == rung.Process && c.raw, c.raw && r != rung.Container:
		return ""
	case r == rung.Process && c.byProxy != "":
		return c.byProxy
	}
	return c.want
}
