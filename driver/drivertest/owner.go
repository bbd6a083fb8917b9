package drivertest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// childEnv makes Run, in a re-executed copy of the test program, the owner of one sandbox: "owned" or "detached".
const childEnv = "RUNG_DRIVERTEST_OWNER"

// mark begins the line on which the child tells its handle, as go test prints lines of its own.
const mark = "handle: "

// child creates a sandbox, tells its handle, and then only waits to be killed.
func (s *suite) child(t *testing.T) {
	s.template = s.Template(t)
	spec := s.spec(t)
	spec.Owned = os.Getenv(childEnv) == "owned"
	in, err := s.driver.Create(within(t, bound), spec)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(in.Handle())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("\n" + mark + string(data) + "\n") // a parent that is gone shows at the next read
	_, _ = io.Copy(io.Discard, os.Stdin)
	t.Fatal("the parent left")
}

// owner starts a copy of this test program that owns a sandbox, and returns it with the sandbox's handle.
func (s *suite) owner(t *testing.T, how string) (kill func(), h driver.Handle) {
	t.Helper()
	top := strings.TrimSuffix(t.Name(), "/"+lastPart(t.Name()))
	cmd := exec.Command("/proc/self/exe", "-test.run", anchored(top), "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childEnv+"="+how)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once bool
	kill = func() {
		if once {
			return
		}
		once = true
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed: that is no news
		_ = stdin.Close()
	}
	t.Cleanup(kill)
	var said strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), mark); ok {
			if err := json.Unmarshal([]byte(data), &h); err != nil {
				t.Fatal(err)
			}
			return kill, h
		}
		said.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("the owner made no sandbox:\n%s", said.String())
	return nil, h
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// anchored is a -test.run pattern for exactly that test.
func anchored(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

// owned: nothing of the sandbox outlives the process that created it, with nobody calling anything.
func (s *suite) owned(t *testing.T) {
	kill, h := s.owner(t, "owned")
	kill()
	gone := eventually(settle, func() bool {
		// An instance that is still ending is left alone: Destroy would hide that it does not end by itself.
		_, err := s.driver.Adopt(within(t, bound), h, nil)
		return rung.KindOf(err) == rung.KindNotFound
	})
	if !gone {
		t.Errorf("the sandbox of a killed owner is still there after %v", settle)
	}
	for _, l := range s.leftProcesses(h.ID) {
		t.Errorf("still running after its owner was killed: %s", l)
	}
	if s.Sweep != nil {
		s.Sweep(t)
		s.nothingLeft(t, h.ID)
	}
}

// leftProcesses are the leftovers that run or hold the kernel's memory; files are the reaper's at the next call.
func (s *suite) leftProcesses(id string) (left []string) {
	if s.Leftovers == nil {
		return nil
	}
	eventually(settle, func() bool {
		left = nil
		for _, l := range s.Leftovers(id) {
			if strings.HasPrefix(l, "process") || strings.HasPrefix(l, "mount") {
				left = append(left, l)
			}
		}
		return len(left) == 0
	})
	return left
}

// detached: a sandbox that is not owned outlives its creator and is taken over.
func (s *suite) detached(t *testing.T) {
	kill, h := s.owner(t, "detached")
	kill()
	in, err := s.driver.Adopt(within(t, bound), h, nil)
	if err != nil {
		t.Fatalf("Adopt after the owner was killed: %v", err)
	}
	b := newBox(in, h.ID)
	if got := b.sh(t, "echo taken over"); got != "taken over\n" {
		t.Errorf("the adopted sandbox says %q", got)
	}
	s.destroy(t, b)
	s.nothingLeft(t, h.ID)
}
