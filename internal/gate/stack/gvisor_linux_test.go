package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/stack"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// TestTheLinkInsideGVisor: gVisor's sandbox takes the interface over with its own network stack, which reads frames of
// this size, has the neighbours that were configured, and is answered.
func TestTheLinkInsideGVisor(t *testing.T) {
	runsc, err := exec.LookPath("runsc")
	if err != nil {
		t.Skip("no runsc on this host")
	}
	if !inNamespace(t) {
		return
	}
	got := make(chan int64, 1)
	h := &handler{accept: allowAll, tcp: func(_ context.Context, c *stack.Conn) {
		switch c.Dst.Port() {
		case 1:
			fmt.Fprintf(c, "you wanted %s\n", c.Dst)
		case 2:
			start := time.Now()
			n, _ := io.Copy(io.Discard, c)
			t.Logf("up %.2f Gbit/s", 4.295/time.Since(start).Seconds())
			got <- n
		case 3:
			start, b := time.Now(), make([]byte, 1<<20)
			for range 512 {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
			t.Logf("down %.2f Gbit/s", 4.295/time.Since(start).Seconds())
		}
	}}
	guest(t, h)

	dir := t.TempDir()
	t.Cleanup(func() { unix.Unmount(filepath.Join(dir, "null-netns"), unix.MNT_DETACH) }) // runsc's own
	script := `cat </dev/tcp/198.51.100.7/1; cat </dev/tcp/2001:db8::7/1; dd if=/dev/zero bs=1M count=512 status=none >/dev/tcp/198.51.100.7/2; dd of=/dev/null bs=1M status=none </dev/tcp/198.51.100.7/3`
	spec := map[string]any{
		"ociVersion": "1.0.0",
		"process":    map[string]any{"args": []string{"/bin/bash", "-c", script}, "cwd": "/", "env": []string{"PATH=/bin:/usr/bin"}},
		"root":       map[string]any{"path": "/", "readonly": true},
		"linux":      map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network", "path": fmt.Sprintf("/proc/%d/ns/net", os.Getpid())}}},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	start := time.Now()
	cmd := exec.CommandContext(ctx, runsc, "--root", dir, "--ignore-cgroups", "--network=sandbox", "--overlay2=none", "run", "--bundle", dir, fmt.Sprintf("rung-link-%d", os.Getpid()))
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "you wanted 198.51.100.7:1\nyou wanted [2001:db8::7]:1\n"; string(out) != want {
		t.Fatalf("inside: %q", out)
	}
	select {
	case n := <-got:
		if n != 512<<20 {
			t.Errorf("%d bytes came out", n)
		}
	case <-ctx.Done():
		t.Error("the upload did not end")
	}
	t.Logf("all of it %v, MTU %d", time.Since(start), tap.MTU)
	var reasons []string
	for _, d := range h.denied {
		reasons = append(reasons, fmt.Sprintf("%s: %s %s", d.Layer, d.Address, d.Reason))
	}
	t.Logf("denied: %s", strings.Join(reasons, "; "))
	if h.count(func(d rung.NetDenial) bool { return d.Reason != stack.Housekeeping }) != 0 {
		t.Errorf("denied: %+v", h.denied)
	}
}
