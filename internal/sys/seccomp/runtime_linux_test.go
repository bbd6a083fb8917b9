package seccomp

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inRuntime starts a container whose program is this test and whose root holds nothing else, and returns what its probes got.
// The runtime gets a mount namespace without the second cgroup hierarchy, which crun does not take on hosts with both.
func inRuntime(t *testing.T, program string, section []byte, annotations map[string]string) map[string]syscall.Errno {
	t.Helper()
	requireRoot(t)
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("needs %s: %v", program, err)
	}
	bundle := t.TempDir()
	copyProgram(t, filepath.Join(bundle, "rootfs"))
	caps := []string{"CAP_KILL"}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2", "annotations": annotations, "hostname": "probe",
		"root": map[string]any{"path": "rootfs", "readonly": true},
		"mounts": []map[string]any{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"bind", "ro"}},
		},
		"process": map[string]any{
			"args": []string{"/probe"}, "cwd": "/", "noNewPrivileges": true, "user": map[string]int{"uid": 0, "gid": 0},
			"env":          []string{"RUNG_SECCOMP_CHILD=none"},
			"capabilities": map[string]any{"bounding": caps, "effective": caps, "permitted": caps},
		},
		"linux": map[string]any{
			"namespaces": []map[string]string{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}},
			"seccomp":    json.RawMessage(section),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", `umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"`, path}
	if program == "crun" {
		args = append(args, "--cgroup-manager=disabled")
	}
	args = append(args, "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, "rung-probe-"+filepath.Base(filepath.Dir(bundle)))
	cmd := exec.CommandContext(t.Context(), "sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, stderr.String())
	}
	var got map[string]syscall.Errno
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v: %q", err, stdout.String())
	}
	return got
}

func copyProgram(t *testing.T, root string) {
	t.Helper()
	for _, dir := range []string{"proc", "dev", "usr"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"lib", "lib64"} { // a test program built with cgo needs its loader
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(root, "probe"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

func checkHardened(t *testing.T, got map[string]syscall.Errno) {
	t.Helper()
	for _, p := range probes() {
		if p.denied != 0 && got[p.name] != p.denied || p.denied == 0 && !contains(p.reached, got[p.name]) {
			t.Errorf("%s: %v (%d), want %v", p.name, got[p.name], got[p.name], p.denied)
		}
	}
}

// TestRuntimes hands the hardened profile to each runtime, as raw bytes and as JSON, with and without notification. The
// probes' calls that a filter reports have to arrive at the supervisor: that proves that the filter refused them, where the
// error number alone could be a missing capability.
func TestRuntimes(t *testing.T) {
	annotation := func(p Profile) map[string]string {
		v, err := Annotation(p)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{AnnotationKey: v}
	}
	whole := func(p Profile, path string) []byte {
		s, err := RuncSection(p, path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, c := range map[string]struct {
		program     string
		section     func(Profile, string) []byte
		annotations func(Profile) map[string]string
	}{
		"crun":      {"crun", func(_ Profile, path string) []byte { return CrunSection(path) }, annotation},
		"crun JSON": {"crun", whole, func(Profile) map[string]string { return nil }},
		"runc":      {"runc", whole, func(Profile) map[string]string { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			got := inRuntime(t, c.program, c.section(Hardened, ""), c.annotations(Hardened))
			if name == "crun JSON" {
				got["number 9999"] = unix.ENOSYS // crun has none for what is above the profile
			}
			checkHardened(t, got)
		})
		if name == "crun JSON" {
			continue
		}
		t.Run(name+" notify", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "l")
			var seen collector
			done := receiveAndSupervise(t, path, &seen)
			checkHardened(t, inRuntime(t, c.program, c.section(HardenedNotify, path), c.annotations(HardenedNotify)))
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the supervisor outlives the container")
			}
			for call := range strings.FieldsSeq("unshare setns mount fsopen pivot_root chroot bpf perf_event_open io_uring_setup userfaultfd keyctl open_by_handle_at ptrace process_vm_readv personality clone") {
				if seen.count[call] != 1 {
					t.Errorf("%s was reported %d times", call, seen.count[call])
				}
			}
			if n := seen.count["socket"]; n != 6 {
				t.Errorf("%d sockets were reported", n)
			}
			if d := seen.first["unshare"]; d.Process != "probe" || d.PID <= 1 {
				t.Errorf("first report: %+v", d)
			}
		})
	}
}

func receiveAndSupervise(t *testing.T, path string, c *collector) <-chan error {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	done := make(chan error, 1)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		listener, state, err := ReceiveListener(conn)
		if err != nil {
			done <- err
			return
		}
		if !bytes.Contains(state, []byte("seccompFd")) {
			t.Errorf("state: %s", state)
		}
		done <- Supervise(t.Context(), listener, c.report)
	}()
	return done
}
