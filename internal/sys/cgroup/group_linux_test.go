package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

var limits = Limits{CPUs: 0.5, Memory: 64 << 20, PIDs: 16}

func create(t testing.TB, lim Limits) *Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.ToLower(fmt.Sprintf("t%d-%s", os.Getpid(), strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
	g, err := l.Create(id, lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
			t.Error(err)
		}
	})
	if len(g.Missing) > 0 {
		t.Skipf("this host does not enforce: %v", g.Missing)
	}
	return g
}

func TestCreateReadsBack(t *testing.T) {
	g := create(t, limits)
	pids, mem, cpu, err := g.Read()
	if err != nil || pids != 16 || mem != 64<<20 || cpu != 0.5 {
		t.Errorf("Read = %d %d %v %v", pids, mem, cpu, err)
	}
	l, _ := Detect()
	if _, err := l.Create(g.ID, limits); rung.KindOf(err) != rung.KindExists {
		t.Errorf("second Create: %v", err)
	}
	ids, err := l.List()
	if err != nil || !slices.Contains(ids, g.ID) {
		t.Errorf("List = %v, %v", ids, err)
	}
	again, err := l.Open(g.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if d := slices.Compare(again.Paths(), g.Paths()); d != 0 {
		t.Errorf("Open found %v, not %v", again.Paths(), g.Paths())
	}
	for range 2 { // the second time there is nothing left
		if err := again.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Open(g.ID); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("Open after Remove: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "..", "a/b", "../x", "A", strings.Repeat("a", 65)} {
		if _, err := l.Create(id, limits); rung.KindOf(err) == rung.KindInternal || err == nil {
			t.Errorf("Create(%q): %v", id, err)
		}
		if _, err := l.Open(id); err == nil {
			t.Errorf("Open(%q) succeeded", id)
		}
	}
	for _, lim := range []Limits{{}, {CPUs: -1, Memory: 1, PIDs: 1}, {CPUs: 1, Memory: 0, PIDs: 1}, {CPUs: 1, Memory: 1, PIDs: -5}} {
		if _, err := l.Create("x", lim); err == nil {
			t.Errorf("Create with %v succeeded", lim)
		}
	}
}

func TestNoCgroups(t *testing.T) {
	g, err := Layout{}.Create("x", limits)
	if err != nil || len(g.Missing) != 3 {
		t.Fatalf("Create = %v, %v", g, err)
	}
	cmd := exec.Command("true")
	if err := errors.Join(g.Start(cmd), cmd.Wait(), g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestStartBornInside(t *testing.T) {
	g := create(t, limits)
	before, _ := os.ReadFile("/proc/self/cgroup")
	for range 4 {
		var out strings.Builder
		cmd := exec.Command("cat", "/proc/self/cgroup")
		cmd.Stdout, cmd.SysProcAttr = &out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := errors.Join(g.Start(cmd), cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"memory", "pids", "cpu"} {
			if g.Version == 1 && !strings.Contains(out.String(), ":"+c+":/rung/"+g.ID+"\n") {
				t.Errorf("not inside %s: %s", c, out.String())
			}
		}
	}
	if after, _ := os.ReadFile("/proc/self/cgroup"); string(after) != string(before) {
		t.Errorf("the test moved: %s", after)
	}
	if pids, err := g.Procs(); err != nil || len(pids) != 0 { // no thread of ours stayed behind
		t.Errorf("Procs = %v, %v", pids, err)
	}
}

func TestKillForkBomb(t *testing.T) {
	g := create(t, limits)
	cmd := exec.Command("sh", "-c", `trap "" TERM HUP INT; for i in 1 2 3 4 5 6 7 8; do (while :; do (:); done) & done; wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	until(t, func() bool { pids, _ := g.Procs(); return len(pids) >= 8 })
	start := time.Now()
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
	t.Logf("killed and removed in %v", time.Since(start))
}

func TestRemoveWaits(t *testing.T) {
	g := create(t, limits)
	cmd := exec.Command("sleep", "60")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Remove(ctx); rung.KindOf(err) != rung.KindTimeout || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("Remove of a live group: %v", err)
	}
	done := make(chan error)
	go func() { done <- g.Remove(context.Background()) }()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNestedGroupsAreRemoved(t *testing.T) {
	g := create(t, limits)
	for _, p := range g.Paths() {
		if err := os.MkdirAll(filepath.Join(p, "a", "b"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if g.Version == 1 { // a process deep inside is found and killed
		cmd := exec.Command("sleep", "60")
		if err := g.Start(cmd); err != nil {
			t.Fatal(err)
		}
		deep := filepath.Join(g.Paths()[1], "a", "b", "cgroup.procs")
		if err := os.WriteFile(deep, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }()
	}
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestLimitsHold(t *testing.T) {
	g := create(t, limits)
	cmd := exec.Command("sh", "-c", `x=$(head -c 200000000 /dev/zero | tr '\0' a); echo survived`)
	out, err := output(g, cmd)
	if n, oomErr := g.OOMKills(); oomErr != nil || n < 1 {
		t.Errorf("memory: output %q, %v, oom kills %d, %v", out, err, n, oomErr)
	}
	u := g.Usage()
	if u.MemoryPeak < 60<<20 || u.MemoryPeak > 64<<20 || u.CPUMicros == 0 {
		t.Errorf("Usage = %+v", u)
	}
	if out, _ := output(g, exec.Command("sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 5 & done; echo all`)); strings.Contains(out, "all") {
		t.Errorf("pids: %q", out)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

func output(g *Group, cmd *exec.Cmd) (string, error) {
	var b strings.Builder
	cmd.Stdout, cmd.WaitDelay = &b, time.Second
	if err := g.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return b.String(), err
}

// The version 2 hierarchy of this machine has no controllers, but cgroup.kill and CLONE_INTO_CGROUP are its own.
func TestVersion2KillAndClone(t *testing.T) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	membership, _ := os.ReadFile("/proc/self/cgroup")
	var only strings.Builder
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " - cgroup2 ") {
			only.WriteString(line)
		}
	}
	l := parse(only.String(), string(membership))
	if os.Geteuid() != 0 || l.Version != 2 {
		t.Skip("needs root and a cgroup2 mount")
	}
	g := l.group(fmt.Sprintf("t%d-v2", os.Getpid()))
	root, err := openDir(unix.AT_FDCWD, l.trees[0].mount, l.trees[0].mount, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.close()
	if err := g.add(&l, root, g.ID); err != nil {
		t.Fatal(err)
	}
	g.open()
	cmd := exec.Command("sh", "-c", "sleep 60 & sleep 60 & setsid sleep 60 & wait")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	until(t, func() bool { pids, _ := g.Procs(); return len(pids) == 4 })
	if g.kill < 0 {
		t.Error("no cgroup.kill")
	}
	start := time.Now()
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
	t.Logf("killed and removed in %v", time.Since(start))
}

// until polls for a state only the kernel knows; bounded.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for !ok() {
		if pause(ctx, time.Millisecond) != nil {
			t.Fatal("the state never came")
		}
	}
}

func BenchmarkDetect(b *testing.B) {
	for b.Loop() {
		if _, err := Detect(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	l, _ := Detect()
	for i := 0; b.Loop(); i++ {
		g, err := l.Create(fmt.Sprintf("b%d-%d", os.Getpid(), i), limits)
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	run := func(b *testing.B, start func(*exec.Cmd) error) {
		for b.Loop() {
			cmd := exec.Command("/bin/true")
			if err := errors.Join(start(cmd), cmd.Wait()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("outside", func(b *testing.B) { run(b, (*exec.Cmd).Start) })
	b.Run("inside", func(b *testing.B) { g := create(b, Limits{CPUs: 64, Memory: 1 << 30, PIDs: 64}); run(b, g.Start) })
}
