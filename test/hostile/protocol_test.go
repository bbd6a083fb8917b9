//go:build linux

package hostile

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/process"
	"github.com/rung-dev/rung/internal/session"
)

// evil is one way in which a guest that was taken over attacks the host's side.
type evil struct {
	how string
	// fails: the run is refused with an error. Else it ends in that reason, which is the host's own finding.
	fails  bool
	reason rung.ExitReason
	code   int
}

func evils() []evil {
	refused := func(list ...string) (all []evil) {
		for _, how := range list {
			all = append(all, evil{how: how, fails: true})
		}
		return all
	}
	all := refused(
		// the channel: there is no sandbox without a sound one
		"silence", "exit", "hang-up", "garbage", "zeroes", "drip", "status-is-an-error", "status-never-ends",
		"frame-opens-connection", "frame-pings", "frame-says-goodbye", "frame-of-4-GiB", "frame-beyond-window", "frame-never-opened",
		"frame-window-overflow", "frame-resets",
		// the measurement: nothing is run without one
		"headers-never-end", "header-never-ends", "continue-for-ever", "body-never-ends", "chunk-of-all-there-is", "chunk-size-overflows",
		"length-lies", "length-negative", "length-twice", "json-is-deep", "measure-is-a-string", "measure-drips",
		// outputs: nothing is taken that is not plainly a file below what was asked for
		"names-climb", "names-are-elsewhere", "names-hold-nul", "names-are-empty", "names-are-dots", "names-are-long",
		"list-never-ends", "list-is-long", "list-recurses", "file-never-ends", "file-is-cut", "stat-has-no-entry",
		// the command: a stream that makes no sense is an error, not an end
		"envelope-of-4-GiB", "envelope-flags", "end-before-start", "no-end", "cut", "exit-code-is-huge", "exit-code-negative", "error-escapes",
	)
	return append(all,
		evil{how: "output-never-ends", reason: rung.Limit, code: rung.ExitKilled},
		evil{how: "nothing-never-ends", reason: rung.TimedOut, code: rung.ExitTimeout},
		evil{how: "never-says-started", reason: rung.TimedOut, code: rung.ExitTimeout},
		evil{how: "start-drips", reason: rung.TimedOut, code: rung.ExitTimeout},
		evil{how: "never-says-more", reason: rung.TimedOut, code: rung.ExitTimeout},
		// What only the guest can know it may lie about; the record says so by never calling it evidence.
		evil{how: "start-twice", reason: rung.Exited},
		evil{how: "end-twice", reason: rung.Exited},
		evil{how: "data-after-end", reason: rung.Exited, code: 3},
		evil{how: "status-escapes", reason: rung.Signaled, code: rung.ExitKilled},
		evil{how: "names-repeat", reason: rung.Exited},
	)
}

// Bounds of what one evil guest may cost.
const (
	evilTime   = 20 * time.Second
	evilWait   = 5 * time.Second // for those that only stop when their client has had enough
	evilHolder = 64 << 10        // KiB resident at the most
	evilClient = 160 * mib
)

// TestAnswersCostMemory: the costliest answers, one after the other, leave this program's memory bounded.
func TestAnswersCostMemory(t *testing.T) {
	for _, how := range []string{"body-never-ends", "list-never-ends", "list-is-long", "json-is-deep", "output-never-ends"} {
		t.Run(how, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, e := range evils() {
				if e.how == how {
					e.run(t)
				}
			}
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > evilClient {
				t.Errorf("the heap has grown by %d MiB", grown/mib)
			} else {
				t.Logf("the heap has grown by %d MiB", grown/mib)
			}
		})
	}
}

// TestEvilGuest: whatever takes the guest's place costs bounded time and memory, gets a clear error or the host's own
// finding, never writes a file it was not asked for, and is destroyed.
func TestEvilGuest(t *testing.T) {
	for _, e := range evils() {
		t.Run(e.how, func(t *testing.T) {
			t.Parallel()
			e.run(t)
		})
	}
}

func (e evil) run(t *testing.T) {
	h := host()
	h.Guest = place("evil")
	d := evilDriver{process.New(rung.None, h), e.how}
	out := filepath.Join(t.TempDir(), "results")
	limits := rung.DefaultLimits()
	limits.Timeout, limits.Output, limits.Disk, limits.Memory, limits.Best = 2*time.Second, mib, 8*mib, 128*mib, true
	task := session.Task{
		ID: newID(), Rung: rung.None, Threat: rung.Trusted, Template: template(t), Command: []string{"true"}, Limits: limits,
		Outputs: []session.Output{{Inside: "/work/out", Host: out}},
	}
	if e.how != "file-never-ends" && !strings.HasPrefix(e.how, "names") && !strings.HasPrefix(e.how, "list") && !strings.HasPrefix(e.how, "file") && !strings.HasPrefix(e.how, "stat") {
		task.Outputs = nil
	}
	runner := session.Runner{
		Driver: d, Grace: time.Second, Drain: session.DefaultDrain,
		Merge: func(inside json.RawMessage, _ *rung.Isolation) (*rung.Isolation, error) {
			return &rung.Isolation{}, json.Unmarshal(inside, &struct{}{})
		},
	}
	patience := evilTime
	if slices.Contains([]string{"silence", "drip", "measure-drips", "frame-resets", "frame-beyond-window"}, e.how) {
		patience = evilWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	peak := watch(t, task.ID)
	begin := time.Now()
	rec, err := runner.Run(ctx, task)
	took := time.Since(begin)
	holder := peak()
	t.Logf("%v after %v: %s, exit %d; holder %d KiB", err, took.Round(time.Millisecond), rec.ExitReason, rec.ExitCode, holder)
	if took > patience+10*time.Second {
		t.Errorf("it took %v", took)
	}
	if holder > evilHolder {
		t.Errorf("the holder grew to %d KiB", holder)
	}
	switch {
	case e.fails && err == nil:
		t.Errorf("no error: %s, exit %d", rec.ExitReason, rec.ExitCode)
	case !e.fails && (err != nil || rec.ExitReason != e.reason || rec.ExitCode != e.code):
		t.Errorf("%s, exit %d, %v; want %s, exit %d", rec.ExitReason, rec.ExitCode, err, e.reason, e.code)
	}
	if err != nil {
		if text := err.Error(); strings.ContainsAny(text, "\x1b\x07") || len(text) > 4096 {
			t.Errorf("the guest's words reach the terminal: %.200q (%d bytes)", text, len(text))
		}
	}
	onlyAsked(t, out)
	nothingLeft(t, task.ID)
}

// evilDriver passes the act in the sandbox's environment.
type evilDriver struct {
	driver.Driver
	how string
}

func (d evilDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	s.Env = append(s.Env, "EVIL="+d.how)
	return d.Driver.Create(ctx, s)
}

// watch follows the holder's resident memory until the returned function is called, which gives the peak in KiB.
func watch(t *testing.T, id string) func() int64 {
	t.Helper()
	var peak atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		pid := 0
		for {
			if pid == 0 {
				pid = holderOf(id)
			}
			if pid != 0 {
				peak.Store(max(peak.Load(), status(pid, "VmHWM")))
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	return func() int64 { close(stop); <-stopped; return peak.Load() }
}

// onlyAsked: what came out lies at most below the place it was asked to.
func onlyAsked(t *testing.T, out string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(out) {
			t.Errorf("the guest made %s on the host", e.Name())
		}
	}
	err = filepath.WalkDir(out, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&(os.ModeSymlink|os.ModeDevice|os.ModeNamedPipe|os.ModeSocket) != 0 {
			t.Errorf("the guest made a special file on the host: %s", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat("/etc/cron.d/evil"); err == nil {
		t.Error("the guest wrote to the host's /etc/cron.d")
	}
}
