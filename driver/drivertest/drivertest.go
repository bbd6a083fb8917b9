// Package drivertest is the conformance suite of the driver contract: every driver passes Run, the fake too. A difference
// that a driver may have is named in Config with its reason, and shows as a skipped check; there are no others.
package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// Config says what is tested and with what.
type Config struct {
	// New makes a driver over the same host directories each time, as another process of the same user would.
	New func(t *testing.T) driver.Driver
	// Template is a root with a POSIX shell and the usual small tools (cat, seq, sleep, id).
	Template func(t *testing.T) driver.Template
	// Limits of every sandbox; rung.DefaultLimits where only Best is set or nothing.
	Limits rung.Limits
	// Leftovers lists what exists on the host under the name of the sandbox, one line each that begins with its kind:
	// process, cgroup, mount, directory, loop (see HostLeftovers). It is asked until it answers nothing, for two seconds.
	Leftovers func(id string) []string
	// HostIDs are the host user ids that the sandbox's processes have or can take; see HostIDs. Nil skips the check.
	HostIDs func(id string) []rung.IDMap
	// Sweep removes what a killed owner left behind, as the next call of rung does; nil where nothing can be.
	Sweep func(t *testing.T)
	// KillHolder ends the holder of the sandbox without a word, as the kernel's out-of-memory killer would.
	KillHolder func(t *testing.T, h driver.Handle)
	// Provoke is a command whose refused system call must show as an event: Call is that call's name. Empty where the rung
	// makes none visible.
	Provoke []string
	Call    string
	// Lacks names checks that this driver cannot pass, each with the reason. The check is then skipped with it.
	Lacks map[string]string
	// Parallel is how many sandboxes live at once in the check of that name; 0 is 16.
	Parallel int
}

const (
	// settle is how long a clean-up may go on after the call that ordered it.
	settle = 2 * time.Second
	// bound is how long any one call may take on a slow machine.
	bound = 60 * time.Second
)

// check is one promise of the contract. The names are what Config.Lacks refers to.
type check struct {
	name string
	run  func(*suite, *testing.T)
}

func checks() []check {
	return []check{
		{"info", (*suite).info},
		{"abilities mirror methods", (*suite).abilities},
		{"create answers", (*suite).createAnswers},
		{"create refuses bad specs", (*suite).badSpecs},
		{"create refuses a missing template", (*suite).missingTemplate},
		{"create refuses a taken name", (*suite).takenName},
		{"create cancelled leaves nothing", (*suite).createCancelled},
		{"dial several at once", (*suite).dialSeveral},
		{"dial again after a cut", (*suite).dialAfterCut},
		{"exit codes", (*suite).exitCodes},
		{"output is exact", (*suite).outputExact},
		{"stdin streams", (*suite).stdinStreams},
		{"kill ends the tree", (*suite).killTree},
		{"wait is bounded by its context", (*suite).waitCancelled},
		{"wall clock", (*suite).wallClock},
		{"destroy wakes wait", (*suite).destroyWakesWait},
		{"destroy is idempotent", (*suite).destroyTwice},
		{"destroy at once from many", (*suite).destroyConcurrent},
		{"destroy ends a hostile tree", (*suite).destroyHostile},
		{"destroy after the holder was killed", (*suite).holderKilled},
		{"adopt", (*suite).adopt},
		{"adopt what is gone", (*suite).adoptGone},
		{"adopt after the owner was killed", (*suite).detached},
		{"owned ends with its owner", (*suite).owned},
		{"events", (*suite).events},
		{"inspect", (*suite).inspect},
		{"meter", (*suite).meter},
		{"ids do not overlap", (*suite).idsApart},
		{"many in parallel", (*suite).parallel},
	}
}

// Run checks the driver against the whole contract. A host that cannot build the rung skips with the driver's own reason,
// after checking that Create says the same as Check.
func Run(t *testing.T, c Config) {
	if c.Limits.Memory == 0 {
		best := c.Limits.Best
		c.Limits = rung.DefaultLimits()
		c.Limits.Best = best
	}
	if c.Parallel == 0 {
		c.Parallel = 16
	}
	s := &suite{Config: c, driver: c.New(t)}
	if os.Getenv(childEnv) != "" {
		s.child(t) // does not return
	}
	known := map[string]bool{}
	for _, k := range checks() {
		known[k.name] = true
	}
	for name, why := range c.Lacks {
		if !known[name] || strings.TrimSpace(why) == "" {
			t.Errorf("Config.Lacks[%q] = %q: no such check, or no reason", name, why)
		}
	}
	s.template = c.Template(t)
	if !s.available(t) {
		return
	}
	for _, k := range checks() {
		t.Run(strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
			if why, ok := c.Lacks[k.name]; ok {
				t.Skip(why)
			}
			k.run(s, t)
		})
	}
}

type suite struct {
	Config
	driver   driver.Driver
	template driver.Template
}

// available compares Check with Create; false means that this host cannot and both said so.
func (s *suite) available(t *testing.T) bool {
	t.Helper()
	ctx := within(t, bound)
	_, checked := s.driver.Check(ctx)
	if checked == nil {
		return true
	}
	if k := rung.KindOf(checked); k != rung.KindUnavailable && k != rung.KindUnsupported {
		t.Errorf("Check: %v is of kind %s, not unavailable or unsupported", checked, k)
	}
	if rung.HintOf(checked) == "" {
		t.Errorf("Check: %v has no hint: what would change it?", checked)
	}
	spec := s.spec(t)
	in, err := s.driver.Create(ctx, spec)
	if err == nil {
		_ = in.Destroy(ctx)
		t.Errorf("Check said %q and Create made a sandbox all the same", checked)
	}
	s.nothingLeft(t, spec.ID)
	t.Skip("this host cannot: " + checked.Error())
	return false
}

// spec is a fresh, valid specification.
func (s *suite) spec(t *testing.T) driver.Spec {
	t.Helper()
	return driver.Spec{ID: newID(), Template: s.template, Limits: s.Limits, Owned: true, WallClock: 10 * time.Minute}
}

func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "dt-" + hex.EncodeToString(b[:])
}

// create makes a sandbox that is destroyed at the test's end, and checks then that nothing is left.
func (s *suite) create(t *testing.T, change ...func(*driver.Spec)) *box {
	t.Helper()
	spec := s.spec(t)
	for _, f := range change {
		f(&spec)
	}
	in, err := s.driver.Create(within(t, bound), spec)
	if err != nil {
		t.Fatalf("Create: %v (hint: %s)", err, rung.HintOf(err))
	}
	b := newBox(in, spec.ID)
	t.Cleanup(func() {
		s.destroy(t, b)
		s.nothingLeft(t, spec.ID)
	})
	return b
}

func (s *suite) destroy(t *testing.T, b *box) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := b.Destroy(ctx); err != nil {
		t.Errorf("Destroy %s: %v", b.id, err)
	}
}

// nothingLeft polls the host, as kernels free some things a moment after the last holder is gone.
func (s *suite) nothingLeft(t *testing.T, id string) {
	t.Helper()
	if s.Leftovers == nil {
		return
	}
	var left []string
	if !eventually(settle, func() bool { left = s.Leftovers(id); return len(left) == 0 }) {
		t.Errorf("left behind by %s:\n  %s", id, strings.Join(left, "\n  "))
	}
}

// eventually asks until ok or the time is up; polling is for things that nobody announces.
func eventually(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return ok()
		}
	}
}

// within is a context of the test that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// sink collects events; it knows whether any came after it was closed.
type sink struct {
	mu     sync.Mutex
	events []driver.Event // guarded by mu
	closed bool           // guarded by mu
	late   int            // guarded by mu
	came   chan struct{}
}

func newSink() *sink { return &sink{came: make(chan struct{}, 1)} }

func (s *sink) add(e driver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.late++
	}
	s.events = append(s.events, e)
	select {
	case s.came <- struct{}{}:
	default:
	}
}

func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *sink) denied(call string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Denied != nil && e.Denied.Syscall == call {
			n += e.Denied.Count
		}
	}
	return n
}

func (s *suite) info(t *testing.T) {
	a, b := s.driver.Info(), s.driver.Info()
	if a.Name != b.Name || a.Rung != b.Rung || !slices.Equal(a.Abilities, b.Abilities) {
		t.Errorf("Info is not constant: %v, then %v", a, b)
	}
	if err := rung.ValidName(a.Name); err != nil {
		t.Errorf("Info.Name: %v", err)
	}
	if _, err := rung.ParseRung(string(a.Rung)); err != nil {
		t.Errorf("Info.Rung: %v", err)
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(a.Abilities))); len(sorted) != len(a.Abilities) {
		t.Errorf("Info.Abilities has doubles: %v", a.Abilities)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	_, _ = s.driver.Check(ctx) // any answer will do, if it comes soon
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Check with a cancelled context took %v", d)
	}
}

func (s *suite) abilities(t *testing.T) {
	b := s.create(t)
	known := map[driver.Ability]bool{
		driver.CanInspect: implements[driver.Inspector](b.Instance),
		driver.CanMeter:   implements[driver.Meter](b.Instance),
	}
	for ability, has := range known {
		if said := slices.Contains(s.driver.Info().Abilities, ability); said != has {
			t.Errorf("ability %s: Info says %v, the instance's methods say %v", ability, said, has)
		}
	}
	for _, a := range s.driver.Info().Abilities {
		if _, ok := known[a]; !ok {
			t.Errorf("Info names the ability %q, which the contract does not know", a)
		}
	}
}

func implements[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func (s *suite) inspect(t *testing.T) {
	b := s.create(t)
	in, ok := b.Instance.(driver.Inspector)
	if !ok {
		t.Skip("the driver has no ability to inspect")
	}
	got, err := in.Inspect(within(t, bound))
	if err != nil || got == nil {
		t.Fatalf("Inspect: %v, %v", got, err)
	}
	without, limited := b.Instance.(driver.Limited)
	if len(got.Sources) == 0 && !(limited && len(without.Unenforced()) > 0) { // without a control group there is nothing to read
		t.Error("Inspect names no source: which fields did the host measure?")
	}
	for field, from := range got.Sources {
		if from != "host" {
			t.Errorf("Inspect says %s comes from %q; it measures from the host only", field, from)
		}
	}
	for field, bad := range map[string]bool{
		"memory_max": got.MemoryMax > s.Limits.Memory || got.MemoryMax <= 0,
		"pids_max":   got.PIDsMax != s.Limits.PIDs,
	} {
		if _, measured := got.Sources[field]; measured && bad {
			t.Errorf("Inspect: %s is not the limit asked for: %+v", field, got)
		}
	}
	s.destroy(t, b)
	if _, err := in.Inspect(within(t, bound)); err == nil {
		t.Error("Inspect answers for a destroyed sandbox")
	}
}

func (s *suite) meter(t *testing.T) {
	b := s.create(t)
	m, ok := b.Instance.(driver.Meter)
	if !ok {
		t.Skip("the driver has no ability to meter")
	}
	u, err := m.Usage(within(t, bound))
	if err != nil {
		t.Fatalf("Usage: %v", err)
	}
	if u.Memory <= 0 || u.Own < 0 || u.Own > u.Memory {
		t.Errorf("Usage: %+v: something is used, and rung's own part is a part", u)
	}
	s.destroy(t, b)
	if u, err := m.Usage(within(t, bound)); err == nil {
		t.Errorf("Usage tells %+v of a destroyed sandbox", u)
	}
}

// idsApart: an escaped process must not be able to signal or trace its neighbour's.
func (s *suite) idsApart(t *testing.T) {
	if s.HostIDs == nil {
		t.Skip("Config.HostIDs is not set: nobody can tell which ids the host sees")
	}
	var all [2][]rung.IDMap
	for i := range all {
		b := s.create(t)
		_ = b.start(t, "/bin/sh", "-c", "sleep 1000")
		if all[i] = s.HostIDs(b.id); len(all[i]) == 0 {
			t.Fatalf("no process of %s is found on the host", b.id)
		}
	}
	for _, a := range all[0] {
		for _, b := range all[1] {
			if uint64(a.Host) < uint64(b.Host)+uint64(b.Size) && uint64(b.Host) < uint64(a.Host)+uint64(a.Size) {
				t.Errorf("two live sandboxes share host ids: %v and %v", a, b)
			}
		}
	}
}

func (s *suite) parallel(t *testing.T) {
	var wait sync.WaitGroup
	for i := range s.Parallel {
		wait.Go(func() {
			spec := s.spec(t)
			ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
			defer cancel()
			in, err := s.driver.Create(ctx, spec)
			if err != nil {
				t.Errorf("Create %d of %d: %v", i, s.Parallel, err)
				return
			}
			b := newBox(in, spec.ID)
			want := fmt.Sprintf("%d\n", i)
			if out, code, err := b.run(ctx, nil, "/bin/sh", "-c", fmt.Sprintf("echo %d", i)); err != nil || code != 0 || string(out) != want {
				t.Errorf("sandbox %d: %q, %d, %v", i, out, code, err)
			}
			s.destroy(t, b)
			s.nothingLeft(t, spec.ID)
		})
	}
	wait.Wait()
}
