package main

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/cmd/rung/egress"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/driver/oci"
	"github.com/rung-dev/rung/driver/process"
	"github.com/rung-dev/rung/internal/audit"
	"github.com/rung-dev/rung/internal/broker/agent"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/policy"
	"github.com/rung-dev/rung/internal/session"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/measure"
)

// becomeHolder runs this process as a holder if it was started as one. Whoever started rung may have left descriptors open;
// they end here at the latest, before any program is started.
func becomeHolder() {
	if holder.Called() {
		holder.Main(map[string]holder.Build{oci.Kind: oci.Hold, process.Kind: process.Hold, process.KindNone: process.HoldNone})
	}
	_ = unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11; older kernels rely on the runtimes' own sweep
}

type seed = holder.Seed

// sow starts a holder ahead where the command line says that one will be needed: beside the rest of our start.
func sow(args []string) func() *seed {
	if len(args) < 2 || args[0] != "run" || os.Geteuid() != 0 {
		return func() *seed { return nil }
	}
	done := make(chan *seed, 1)
	go func() {
		s, err := holder.Ahead(likelyLink(args))
		if err != nil {
			s = nil // the sandbox's own start will say why
		}
		done <- s
	}()
	return sync.OnceValue(func() *seed { return <-done })
}

// likelyLink guesses from the words of a command line what kind of link its sandbox will have. A wrong guess costs two
// milliseconds and nothing else.
func likelyLink(args []string) holder.LinkKind {
	for _, word := range []string{"none", "process", "compute", "adversarial", "--egress=none", "--rung=process", "--threat=compute"} {
		if slices.Contains(args, word) {
			return holder.NoLink
		}
	}
	return holder.TAPLink
}

// endUnused ends a holder that was started for nothing: wrong arguments, a refusal.
func (a *app) endUnused() { a.seed().EndUnused() }

// host is everything rung keeps on this machine.
type host struct {
	held.Host
	images *image.Store
	audit  *audit.Store
	of     audit.Of // what all events of this run share
}

func openHost(a *app) (*host, error) {
	state, runtime, err := places()
	if err != nil {
		return nil, err
	}
	h := &host{Host: held.Host{StateDir: state, RuntimeDir: runtime, Guest: held.FindProgram("rung-guest"), Seed: a.seed}}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "state directory: %w", err).WithHint("set RUNG_STATE_DIR to a directory you can write to")
	}
	h.images = image.Open(state)
	if h.audit, err = audit.Open(state); err != nil {
		return nil, err
	}
	return h, nil
}

// places are the state and runtime directories: fixed ones for root, XDG's for an ordinary user.
func places() (state, runtime string, err error) {
	if os.Geteuid() == 0 {
		state, runtime = "/var/lib/rung", "/run/rung"
	} else {
		home := os.Getenv("XDG_STATE_HOME")
		if home == "" {
			user, err := os.UserHomeDir()
			if err != nil && os.Getenv("RUNG_STATE_DIR") == "" {
				return "", "", rung.Errorf(rung.KindUnavailable, "state directory: %w", err).WithHint("set RUNG_STATE_DIR")
			}
			home = filepath.Join(user, ".local", "state")
		}
		state = filepath.Join(home, "rung")
		if runtime = os.Getenv("XDG_RUNTIME_DIR"); runtime != "" {
			runtime = filepath.Join(runtime, "rung")
		} else {
			runtime = fmt.Sprintf("/tmp/rung-%d", os.Geteuid())
		}
	}
	if v := os.Getenv("RUNG_STATE_DIR"); v != "" {
		state = v
	}
	if v := os.Getenv("RUNG_RUNTIME_DIR"); v != "" {
		runtime = v
	}
	if !filepath.IsAbs(state) || !filepath.IsAbs(runtime) {
		return "", "", rung.Errorf(rung.KindInvalid, "RUNG_STATE_DIR and RUNG_RUNTIME_DIR must be absolute paths")
	}
	return state, runtime, nil
}

// driver returns the driver of a rung; nil for rungs that this version does not have.
func (h *host) driver(r rung.Rung) driver.Driver {
	switch r {
	case rung.None, rung.Process:
		return process.New(r, h.Host)
	case rung.Container, rung.Hardened, rung.GVisor:
		return oci.New(r, h.Host, oci.ForRung(r))
	}
	return nil
}

// check asks a rung's driver whether this host can.
func (h *host) check(ctx context.Context, r rung.Rung) (driver.Status, policy.Availability) {
	d := h.driver(r)
	if d == nil {
		return driver.Status{}, policy.Availability{Why: "not in this version of rung", Remedy: "a later version"}
	}
	st, err := d.Check(ctx)
	if err != nil {
		return st, policy.Availability{Why: err.Error(), Remedy: rung.HintOf(err)}
	}
	return st, policy.Availability{OK: true}
}

// choose lets the policy decide, and leaves an event where it refuses or an exception is used.
func (h *host) choose(ctx context.Context, c *runCmd, threat rung.Threat) (policy.Decision, driver.Status, error) {
	req := policy.Request{Threat: threat, Pinned: rung.Rung(c.Rung), AcceptLower: rung.Rung(c.AcceptLower), IKnow: c.IKnow}
	for _, name := range []string{c.Rung, c.AcceptLower} {
		if name == "" {
			continue
		}
		if _, err := rung.ParseRung(name); err != nil {
			return policy.Decision{}, driver.Status{}, err
		}
	}
	available := map[rung.Rung]policy.Availability{}
	status := map[rung.Rung]driver.Status{}
	for _, r := range policy.Candidates(req) {
		status[r], available[r] = h.check(ctx, r)
	}
	d := policy.Decide(req, available)
	if !d.Allowed { // what else this host has is part of the answer
		for _, r := range rung.Rungs() {
			if _, checked := available[r]; !checked {
				status[r], available[r] = h.check(ctx, r)
			}
		}
		d = policy.Decide(req, available)
	}
	var event error
	switch {
	case !d.Allowed:
		event = h.audit.Append(audit.Refused(unborn(h.of), string(threat), c.Rung, d.Err(), d.Reasons))
	case d.Accepted != "":
		event = h.audit.Append(audit.AcceptedLower(unborn(h.of), string(threat), d.Accepted))
	}
	if err := d.Err(); err != nil {
		return d, driver.Status{}, err
	}
	if event != nil {
		return d, driver.Status{}, rung.Errorf(rung.KindUnavailable, "the exception could not be recorded, so it is not granted: %w", event)
	}
	return d, status[d.Rung], nil
}

// unborn is of for what happens before there is a sandbox.
func unborn(of audit.Of) audit.Of {
	of.Sandbox = ""
	return of
}

// whose says whom a run is for, and refuses one for a revoked agent.
func (h *host) whose(c *runCmd, id string) (audit.Of, error) {
	of := audit.Of{Sandbox: id, Agent: c.Agent}
	if of.Agent == "" {
		of.Agent = rung.DefaultAgent
	}
	var err error
	if of.Call, err = audit.ParseCall(c.Trace, os.Getenv("TRACEPARENT")); err != nil {
		return of, err
	}
	if err := agent.Permit(h.StateDir, of.Agent); err != nil {
		return of, errors.Join(err, h.audit.Append(audit.Refused(unborn(of), c.Threat, c.Rung, err, nil)))
	}
	return of, nil
}

// run is `rung run` after its arguments are understood.
func (h *host) run(ctx context.Context, a *app, c *runCmd, t session.Task) (code int, err error) {
	if h.of, err = h.whose(c, newID()); err != nil {
		return 0, err
	}
	decision, status, err := h.choose(ctx, c, t.Threat)
	if err != nil {
		return 0, err
	}
	if t.Limits, err = h.within(t.Limits, decision.Rung); err != nil {
		return 0, err
	}
	tmpl, release, err := h.images.Use(ctx, c.Template)
	if err != nil {
		return 0, err
	}
	defer release()
	t.ID, t.Rung, t.Accepted, t.Template = h.of.Sandbox, decision.Rung, decision.Accepted, held.Template(tmpl)
	t.Env = append(append([]string{}, tmpl.Env...), t.Env...)
	if t.Rung == rung.None {
		t.Workdir = filepath.Join(h.RuntimeDir, "sandboxes", t.ID) // without a wall, /work is the host's
	}
	if !c.JSON {
		t.Stdout, t.Stderr = a.out, a.err
	}
	asker := egress.NewAsker(a.err, &t.Stdin)
	net, why, err := egress.Open(ctx, egress.Host{StateDir: h.StateDir, RuntimeDir: h.RuntimeDir}, &c.Flags, egress.Want{
		ID: t.ID, Agent: h.of.Agent, Asker: asker, Rung: t.Rung, Default: decision.Egress, Timeout: t.Limits.Timeout,
	})
	if err != nil {
		return 0, err
	}
	if why != "" && !c.Quiet && !c.JSON {
		fmt.Fprintf(a.err, "rung: %s\n", why)
	}
	err = net.Give(ctx, &t)
	if l := net.Lease(); l != nil && err == nil {
		err = h.audit.Append(audit.Leased(h.of, l.ID, l.Secrets, l.Audiences)...)
	}
	if err != nil {
		net.Close()
		return 0, err
	}
	t.Created = func() error {
		net.Started()
		return agent.Enter(h.StateDir, filepath.Join(h.RuntimeDir, "sandboxes", t.ID), h.of.Agent)
	}
	interrupts, stop := notify()
	defer stop()
	t.Interrupts = interrupts
	d := h.driver(decision.Rung)
	r := session.Runner{
		Driver: d, Info: rung.DriverInfo{Name: d.Info().Name, Version: status.Version}, Merge: merge,
		Grace: session.DefaultGrace, Drain: session.DefaultDrain,
	}
	swept := h.sweep(ctx)
	rec, err := r.Run(ctx, t)
	net.Finish(rec)
	where, saved := h.save(rec)
	<-swept
	if c.JSON {
		a.answered = true
		if e := printJSON(a.out, rec); e != nil && err == nil {
			err = e
		}
	}
	c.report(a, rec, where)
	return rec.ExitCode, errors.Join(err, saved)
}

// sweep removes what killed runs left behind, and makes the signing key ready, beside the run itself.
func (h *host) sweep(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = h.audit.PublicKey() // saving the record tells what is wrong with it
		_, _ = h.Sweep(ctx, false) // what cannot be removed now is found by the next run and told by rung reap
	}()
	return done
}

func (h *host) save(rec *rung.Record) (string, error) {
	path, err := h.audit.Save(rec) // first: it signs, and the log takes the signature in
	if err != nil {
		path, err = "not stored", rung.Errorf(rung.KindUnavailable, "the run is done, but its record could not be stored: %w", err)
	}
	if e := h.audit.Append(audit.RunEvents(h.of, rec)...); e != nil {
		err = errors.Join(err, rung.Errorf(rung.KindUnavailable, "the run is done, but its events could not be logged: %w", e))
	}
	return path, err
}

// merge turns the guest's measurement into the record's form.
func merge(inside json.RawMessage, fromHost *rung.Isolation) (*rung.Isolation, error) {
	var m struct {
		measure.Measurement
		GuestUID int `json:"guest_uid"`
		Landlock int `json:"landlock_abi"`
	}
	if err := json.Unmarshal(inside, &m); err != nil {
		return nil, err
	}
	iso := m.Isolation(measure.Host())
	iso.GuestUID, iso.Landlock = m.GuestUID, m.Landlock
	iso.Sources["guest_uid"], iso.Sources["landlock_abi"] = measure.Inside, measure.Inside
	if fromHost != nil {
		measure.Merge(&iso, fromHost)
	}
	// What the host told needs no note that the inside could not.
	iso.Notes = slices.DeleteFunc(iso.Notes, func(note string) bool {
		field, _, ok := strings.Cut(strings.TrimPrefix(note, "not measured inside: "), ":")
		return ok && iso.Sources[field] == measure.FromHost
	})
	return &iso, nil
}

// newID names a sandbox: no dash and no upper case, since it becomes part of host names.
func newID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return "r" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// notify turns the signals by which an owner ends a run into wishes.
func notify() (<-chan struct{}, func()) {
	signals := make(chan os.Signal, 4)
	wishes := make(chan struct{}, 4)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-signals:
				select {
				case wishes <- struct{}{}:
				default: // enough wishes are waiting
				}
			case <-done:
				return
			}
		}
	}()
	return wishes, func() { signal.Stop(signals); close(done) }
}

func findProgram(name string) string { return held.FindProgram(name) }

const reapTimeout = 60 * time.Second
