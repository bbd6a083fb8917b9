//go:build linux

package hostile

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/drivertest"
	"github.com/rung-dev/rung/internal/sys/holder"
)

const (
	// rounds is how often something is killed.
	rounds = 40
	// faultTime ends the test early on a slow machine: it looks for what time brings, and any number of rounds is fair.
	faultTime = 60 * time.Second
)

// TestKilledAnywhere ends one of the processes of a run at a random moment of its life, without a word. The run ends soon
// with an error or an end of its own, and one sweep later nothing is left of it.
func TestKilledAnywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RUNG_FAULT_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("RUNG_FAULT_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kinds := []string{"client", "holder", "runtime", "guest"}
	rungs := []rung.Rung{rung.Process, rung.Container, rung.Hardened, rung.GVisor}
	usable := slices.DeleteFunc(rungs, func(r rung.Rung) bool {
		_, err := driverOf(r, host()).Check(within(t))
		return err != nil
	})
	hit := map[string]int{}
	end := time.Now().Add(faultTime)
	for i := 0; i < rounds && time.Now().Before(end); i++ {
		r, victim := usable[i%len(usable)], kinds[i/len(usable)%len(kinds)]
		after := time.Duration(random.IntN(60_000)) * time.Microsecond
		if victim == "guest" || victim == "runtime" { // which come later
			after += 25 * time.Millisecond
		}
		if r == rung.GVisor {
			after *= 5
		}
		if killed(t, r, victim, after) {
			hit[string(r)+" "+victim]++
		}
	}
	t.Logf("killed: %v", hit)
	if len(hit) == 0 {
		t.Error("nothing was ever hit")
	}
}

// killed is one round; it reports whether the victim was there to be killed.
func killed(t *testing.T, r rung.Rung, victim string, after time.Duration) bool {
	t.Helper()
	cmd := command(pinned(r, "--quiet", "--", "/bin/sh", "-c", "sleep 0.05; echo x >/work/x")...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second // a descendant that holds the output open is found below
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-time.After(after) // the moment is the test's input
	pid := cmd.Process.Pid
	if victim != "client" {
		pid = victimOf(cmd.Process.Pid, victim)
	}
	hit := pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
	ids := sandboxes()
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
			t.Errorf("%s, %s killed after %v: %v", r, victim, after, err)
		}
	case <-time.After(15 * time.Second):
		t.Errorf("%s, %s killed after %v: the run does not end: %s", r, victim, after, said.Bytes())
		_ = cmd.Process.Kill() // ours, not collected yet
		<-done
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("%s, %s killed after %v: the run ended only %v later: %s", r, victim, after, d, said.Bytes())
	}
	swept(t, r, victim, after, append(ids, sandboxes()...))
	return hit
}

// swept: what the dead left is removed by sweeping, and only by that.
func swept(t *testing.T, r rung.Rung, victim string, after time.Duration, ids []string) {
	t.Helper()
	h := host()
	list := drivertest.HostLeftovers(h.RuntimeDir, "/run/crun", "/run/runc")
	var left []string
	var failed error
	clean := eventually(5*time.Second, func() bool {
		_, failed = h.Sweep(within(t), false)
		left = nil
		for _, id := range append(ids, sandboxes()...) {
			left = append(left, list(id)...)
		}
		return failed == nil && len(left) == 0
	})
	if !clean {
		t.Errorf("%s, %s killed after %v: Sweep says %v and leaves\n  %s", r, victim, after, failed, strings.Join(left, "\n  "))
	}
}

func sandboxes() (ids []string) {
	entries, _ := os.ReadDir(filepath.Join(host().RuntimeDir, "sandboxes")) // not there before the first
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

// victimOf finds a process of the run below its client; 0 when there is none (yet, or any more).
func victimOf(client int, kind string) int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a well-formed pattern
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			parent := int(status(pid, "PPid"))
			children[parent] = append(children[parent], pid)
		}
	}
	todo := slices.Clone(children[client])
	for len(todo) > 0 {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") // "" for what went away
		name, _, _ := strings.Cut(string(raw), "\x00")
		is := map[string]bool{
			"holder":  name == holder.Name,
			"guest":   name == "/.rung/guest",
			"runtime": slices.Contains([]string{"crun", "runc", "runsc", "runsc-sandbox", "runsc-gofer"}, filepath.Base(name)),
		}
		if is[kind] {
			return pid
		}
	}
	return 0
}
