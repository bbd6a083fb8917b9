//go:build linux

package secrets

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung/internal/gate/control"
)

// background is a run that waits in the middle.
type background struct {
	h    *house
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs bytes.Buffer
}

// start runs steps up to the first wait.
func (h *house) start(wall string, steps []step, more ...string) *background {
	h.Helper()
	cmd, cancel := h.command(append(append(flags(wall), more...), "--", "/work/inside", "/work/steps")...)
	h.Cleanup(cancel)
	b := &background{h: h, cmd: cmd}
	if err := os.WriteFile(h.file("steps"), []byte(script(steps)), 0o644); err != nil {
		h.Fatal(err)
	}
	i := len(cmd.Args) - 3
	cmd.Args = append(append(append([]string{}, cmd.Args[:i]...), "--in", h.file("steps")+":/work/steps"), cmd.Args[i:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		h.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	b.in, b.out, cmd.Stderr = in, bufio.NewReader(out), &b.errs
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	for {
		line, err := b.out.ReadString('\n')
		if err != nil {
			h.Fatalf("it ended before it waited: %s: %v: %s", line, err, b.errs.String())
		}
		if strings.Contains(line, "waiting") {
			return b
		}
		if strings.Contains(line, `"err"`) {
			h.Errorf("a step failed: %s", line)
		}
	}
}

// ended waits for the end of a run.
func (b *background) ended() int {
	b.h.Helper()
	_, _ = io.Copy(io.Discard, b.out) // to its end, as Wait wants it
	_ = b.cmd.Wait()                  // the exit code tells
	return b.cmd.ProcessState.ExitCode()
}

// until asks again and again, for as long as a slow machine may need.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("it never came: %s", what)
		}
	}
}

// used are steps that use the secret and then wait.
func used() []step {
	return []step{
		{"do": "http", "url": "https://api.example/body?key=${KEY}", "header": map[string]string{"Authorization": "Bearer ${KEY}"}},
		{"do": "http", "url": "https://api.example/body", "method": "POST", "body": "${KEY}", "two": true},
		{"do": "wait"},
	}
}

// memory counts where a value is in a process's memory.
func memory(t *testing.T, pid int, v string) (n int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	bytesRead := int64(0)
	for line := range strings.SplitSeq(string(maps), "\n") {
		var from, to int64
		var perms string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms); err != nil || perms[0] != 'r' || strings.Contains(line, "[v") {
			continue
		}
		text, _ := io.ReadAll(io.NewSectionReader(mem, from, to-from)) // what is not there reads short
		bytesRead += int64(len(text))
		n += bytes.Count(text, []byte(v))
	}
	if bytesRead < 1<<20 {
		t.Fatalf("only %d bytes of the gate's memory could be read", bytesRead)
	}
	return n
}

// dropped waits until the gate has ended its session, and fewer copies of the value are in its memory. All it knows of are
// overwritten; what Go's runtime leaves in memory that is free but not given back stays until chance or the gate's end. That
// is a stated limit (docs/secrets.md), and its size is printed.
func (h *house) dropped(t *testing.T, gate, during int, v string) {
	t.Helper()
	until(t, "a gate without a session", func() bool { return h.status().Sessions == 0 })
	after := during
	until(t, "a gate with fewer copies", func() bool { after = memory(t, gate, v); return after < during })
	t.Logf("copies of the value in the gate's memory: %d during the lease, %d after", during, after)
}

// status asks the gate.
func (h *house) status() control.Status {
	h.Helper()
	list, _ := filepath.Glob(h.file("run") + "/gate-*.sock")
	if len(list) != 1 {
		h.Fatalf("gates: %v", list)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: list[0], Net: "unix"})
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	conn, reply := control.NewConn(c), control.Reply{}
	err = conn.Send(control.Request{Ping: true})
	if err == nil {
		_, err = conn.Receive(&reply)
	}
	if err != nil || reply.Status == nil {
		h.Fatalf("the gate's status: %v", err)
	}
	return *reply.Status
}

// TestMemory: the value is in the gate's memory while the lease lasts, nobody else of the host can look, and neither gate
// nor broker leaves a core.
func TestMemory(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		v := value()
		h.add("KEY", v)
		b := h.start(wall, used(), "--allow", "api.example", "--secret", "KEY@api.example:query,body")
		gate := h.gate()
		during := memory(t, gate, v)
		if during == 0 {
			t.Error("the value is not found while it is lent: the search proves nothing")
		}
		limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", gate))
		if !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 0 0") {
			t.Errorf("the gate may leave a core:\n%s", limits)
		}
		for _, uid := range []uint32{65534, 0x6FFDFFFF} { // somebody, and the gate's own id
			cmd := exec.Command("/bin/cat", fmt.Sprintf("/proc/%d/environ", gate), fmt.Sprintf("/proc/%d/mem", gate))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			if out, _ := cmd.CombinedOutput(); strings.Count(string(out), "Permission denied") != 2 {
				t.Errorf("user %d reads the gate: %.200q", uid, out)
			}
		}
		for pid, args := range processes() {
			env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if pid != os.Getpid() && len(holds([]byte(args+string(env)), v)) > 0 {
				t.Errorf("%q has the value in its arguments or environment", args)
			}
		}
		if _, err := b.in.Write([]byte("\n")); err != nil {
			t.Error(err)
		}
		if code := b.ended(); code != 0 {
			t.Errorf("exit %d: %s", code, b.errs.String())
		}
		h.dropped(t, gate, during, v)
		h.nowhereOutside(v)
	})
}

// TestKilledClient: a client that is killed takes its sandbox and the values with it.
func TestKilledClient(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		v := value()
		h.add("KEY", v)
		b := h.start(wall, used(), "--allow", "api.example", "--secret", "KEY@api.example:query,body")
		gate := h.gate()
		during := memory(t, gate, v)
		_ = b.cmd.Process.Kill()
		b.ended()
		h.dropped(t, gate, during, v)
	})
}

// TestRevoked: revoking an agent ends what it runs and its values, and it gets nothing new until it is restored; all of it
// is in the log.
func TestRevoked(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		v := value()
		h.add("KEY", v)
		more := []string{"--allow", "api.example", "--secret", "KEY@api.example:query,body", "--agent", "builder"}
		b := h.start(wall, used(), more...)
		gate := h.gate()
		during := memory(t, gate, v)
		var told struct {
			Complete  bool
			Sandboxes []string
			Zero      float64 `json:"time_to_zero_ms"`
		}
		if err := json.Unmarshal([]byte(h.must("", "agent", "revoke", "builder", "--reason", "it talks", "--json")), &told); err != nil || !told.Complete || len(told.Sandboxes) != 1 || told.Zero <= 0 {
			t.Fatalf("%+v, %v", told, err)
		}
		t.Logf("time to zero: %v ms", told.Zero)
		if code := b.ended(); code != 137 {
			t.Errorf("exit %d: %s", code, b.errs.String())
		}
		h.dropped(t, gate, during, v)
		_, errs, code := h.rung("", append(append(flags(wall), more...), "--", "true")...)
		if code != 126 && code != 125 || !strings.Contains(errs, "agent builder is revoked") || !strings.Contains(errs, "rung agent restore builder") {
			t.Errorf("a new run: exit %d: %s", code, errs)
		}
		if _, errs, code := h.rung("", append(append(flags(wall), more[:4]...), "--", "true")...); code != 0 {
			t.Errorf("another agent's run: exit %d: %s", code, errs)
		}
		h.must("", "agent", "restore", "builder")
		h.must("", append(append(flags(wall), more...), "--", "true")...)
		var actions []string
		for _, e := range h.events("agent") {
			actions = append(actions, fmt.Sprint(e.Fields["action"], " ", e.Fields["name"], " ", e.Reason))
		}
		if got := strings.Join(actions, ", "); got != "revoke builder it talks, restore builder " {
			t.Errorf("events: %s", got)
		}
		leases := map[string]int{}
		for _, e := range h.events("secret") {
			leases[fmt.Sprint(e.Fields["action"], " ", e.Fields["name"], " ", e.Agent)]++
		}
		if leases["add KEY "] != 1 || leases["lease KEY builder"] != 2 || leases["lease KEY default"] != 1 {
			t.Errorf("events: %v", leases)
		}
		h.must("", "secret", "rm", "KEY")
		list := h.events("secret")
		if e := list[len(list)-1]; e.Fields["action"] != "remove" || e.Fields["name"] != "KEY" {
			t.Errorf("%+v", e)
		}
		h.must("", "log", "verify")
	})
}
