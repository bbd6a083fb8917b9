//go:build linux

package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// used is what the probe tells about a resource it used up.
type used struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
	Errno string `json:"errno"`
	MS    int64  `json:"ms"`
}

func (b *box) exhaust(t *testing.T, what string, most int64) (used, bool) {
	t.Helper()
	out, exit, err := b.run(t, b.probe(), "exhaust", what, fmt.Sprint(most))
	var u used
	if err != nil || json.Unmarshal([]byte(out), &u) != nil {
		t.Logf("%s: no account of it: %+v, %v, %q", what, exit, err, out)
		return u, false
	}
	t.Logf("%+v", u)
	return u, true
}

const mib = 1 << 20

// TestDiskFills: what may be written ends with ENOSPC at the limit, on the sandbox's disk and in its memory, for bytes and
// for names; it is no memory kill, and the sandbox goes on.
func TestDiskFills(t *testing.T) {
	for _, r := range walls()[1:] {
		t.Run(string(r), func(t *testing.T) {
			b := attacked(t, r, func(s *driver.Spec) { s.Limits.Disk, s.Limits.Memory = 24*mib, 256*mib })
			for _, dir := range []string{b.dirs[0], "/tmp"} {
				most := int64(24 * mib)
				if dir == "/tmp" {
					most = 64 * mib // a quarter of the memory cap
				}
				if r == rung.GVisor && dir == "/tmp" {
					// Its tmpfs counts no names: enough of them end in a memory kill, which is a bound as well.
				} else if u, ok := b.exhaust(t, "inodes:"+dir, 50_000); !ok || u.Errno != "ENOSPC" {
					t.Errorf("%+v: names have no end, or another one", u)
				}
				if _, _, err := b.run(t, "/bin/sh", "-c", "rm -f "+dir+"/inode*"); err != nil {
					t.Error(err)
				}
				if u, ok := b.exhaust(t, "disk:"+dir, 512*mib); !ok || u.Errno != "ENOSPC" || u.Count > most {
					t.Errorf("%+v: want ENOSPC within %d bytes", u, most)
				}
				b.alive(t)
			}
			noMemoryKill(t, b)
		})
	}
}

// noMemoryKill destroys the sandbox and asks its holder.
func noMemoryKill(t *testing.T, b *box) {
	t.Helper()
	if err := b.Destroy(within(t)); err != nil {
		t.Fatal(err)
	}
	if end, err := b.Wait(within(t)); err != nil || end.OOM {
		t.Errorf("a full disk shows as a memory kill: %+v, %v", end, err)
	}
}

// TestProcessesRunOut: no more processes than allowed, counted inside and on the host.
func TestProcessesRunOut(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an ordinary user has no delegated control groups, and the record says so")
	}
	for _, r := range walls()[1:] {
		t.Run(string(r), func(t *testing.T) {
			const cap = 64
			b := attacked(t, r, func(s *driver.Spec) { s.Limits.PIDs = cap })
			if u, ok := b.exhaust(t, "pids", 300); ok && (u.Count >= cap || u.Errno == "") {
				t.Errorf("%+v: more processes than %d", u, cap)
			} else if !ok && r != rung.GVisor {
				t.Error("the probe died of it")
			}
			if r != rung.GVisor { // whose kernel's own threads are counted too, and it may die of the cap
				b.alive(t)
			}
		})
	}
}

// TestMemoryBomb: what asks for too much memory is killed, by name in the record, and the host does not feel it.
func TestMemoryBomb(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an ordinary user has no delegated control groups, and the record says so")
	}
	for _, r := range walls()[1:] {
		t.Run(string(r), func(t *testing.T) {
			before := available(t)
			rec := recorded(t, r, "--in", place("probe"), "--memory", "128MiB", "--", "/work/probe", "exhaust", "memory", "1000000000")
			if rec.ExitReason != rung.OOM || !rec.OOMKilled {
				t.Errorf("%s, exit %d, oom %v: %s", rec.ExitReason, rec.ExitCode, rec.OOMKilled, rec.Error)
			}
			if lost := before - available(t); lost > 512*mib { // other tests run beside this one
				t.Errorf("the host lost %d MiB", lost/mib)
			}
		})
	}
}

// available is the host's memory that is to be had.
func available(t *testing.T) (n int64) {
	t.Helper()
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			if _, err := fmt.Sscan(v, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n << 10
}

// TestForkBomb: a neighbour of a fork bomb starts within five seconds, and the bomb ends when its time is up, if it has not
// ended itself: programs fail when they get no more threads.
func TestForkBomb(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an ordinary user has no delegated control groups, and the record says so")
	}
	for _, r := range walls()[1:] {
		t.Run(string(r), func(t *testing.T) {
			bomb := command(pinned(r, "--json", "--timeout", "6s", "--pids", "128", "--in", place("probe"), "--", "/work/probe", "exhaust", "forkbomb", "60")...)
			var out, errs bytes.Buffer
			bomb.Stdout, bomb.Stderr = &out, &errs
			if err := bomb.Start(); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * time.Second) // the bomb is to go off first; nothing announces that
			soonest := time.Hour
			for range 3 { // this machine may be busy with more than the bomb
				begin := time.Now()
				rec := recorded(t, r, "--", "true")
				soonest = min(soonest, time.Since(begin))
				if rec.ExitCode != 0 || rec.ExitReason != rung.Exited {
					t.Errorf("beside a fork bomb: %s, exit %d: %s", rec.ExitReason, rec.ExitCode, rec.Error)
				}
				if soonest < 5*time.Second {
					break
				}
			}
			if t.Logf("a neighbour took %v", soonest); soonest > 5*time.Second {
				t.Error("a neighbour of a fork bomb cannot start")
			}
			_ = bomb.Wait() // judged by its record
			var own rung.Record
			if err := json.Unmarshal(out.Bytes(), &own); err != nil {
				t.Fatalf("%v: %s%s", err, out.Bytes(), errs.Bytes())
			}
			if took := float64(own.Timings.Run + own.Timings.Destroy); took > 15_000 {
				t.Errorf("ending the bomb took %v ms: %s %s", took, own.ExitReason, own.Error)
			}
			t.Logf("the bomb: %s, exit %d, destroyed in %v ms %s", own.ExitReason, own.ExitCode, own.Timings.Destroy, own.Error)
			nothingLeft(t, own.ID)
		})
	}
}
