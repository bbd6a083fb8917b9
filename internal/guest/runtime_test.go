//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/internal/guest"
	"github.com/rung-dev/rung/internal/guest/ident"
	"github.com/rung-dev/rung/internal/sys/mux"
)

// The guest as the drivers start it: uid 990 with ambient capabilities, PID 1, the control channel on an inherited
// descriptor. What is tried here is what depends on the kernel under it: switching users, dropping capabilities on all
// threads, reaping, and killing.
func TestUnderRuntimes(t *testing.T) {
	needRoot(t)
	for _, rt := range []struct {
		name string
		args func(bundle, id string) []string
	}{
		{"runc", func(b, id string) []string {
			return []string{"--rootless=true", "run", "--preserve-fds=1", "--bundle", b, id}
		}},
		{"runsc", func(b, id string) []string {
			return []string{"--ignore-cgroups", "--network=none", "--platform=systrap", "run", "--pass-fd=3:3", "--bundle", b, id}
		}},
	} {
		t.Run(rt.name, func(t *testing.T) {
			bin := findRuntime(rt.name)
			if bin == "" {
				t.Skip("not installed")
			}
			dir := t.TempDir()
			// runsc leaves a mount in its state directory.
			t.Cleanup(func() { unix.Unmount(filepath.Join(dir, "state", "null-netns"), unix.MNT_DETACH) })
			id := fmt.Sprintf("rung-guest-test-%d", os.Getpid())
			args := append([]string{"--root", filepath.Join(dir, "state")}, rt.args(writeBundle(t, dir), id)...)
			testUnder(t, startUnder(t, exec.Command(bin, args...)))
		})
	}
}

func findRuntime(name string) string {
	for _, p := range []string{"../../bin/" + name, filepath.Join(os.Getenv("RUNG_TEST_BIN"), name)} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	p, _ := exec.LookPath(name)
	return p
}

// writeBundle makes an OCI bundle with the host's programs and two users.
func writeBundle(t *testing.T, dir string) string {
	root := filepath.Join(dir, "rootfs")
	for _, d := range []string{"usr", "etc", "proc", "dev", "tmp", "work", "home/user", "guest"} {
		os.MkdirAll(filepath.Join(root, d), 0o755)
	}
	os.Chown(filepath.Join(root, "home/user"), 1000, 1000)
	os.Chmod(filepath.Join(root, "work"), 0o1777) // runc gives a tmpfs the mode of what it covers, whatever its options say
	os.Chmod(dir, 0o755)
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		os.Symlink("usr/"+l, filepath.Join(root, l))
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("rootfs/etc/passwd", "root:x:0:0::/root:/bin/sh\nrung:x:990:990::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
	write("rootfs/etc/group", "root:x:0:\nuser:x:1000:\n")
	cfg := guest.Config{
		ControlFD: 3, User: ident.User{Name: "user", UID: 1000, GID: 1000, Home: "/home/user"}, Workdir: "/work",
		DropCaps: true, Init: true,
	}
	arg, _ := json.Marshal(cfg)
	caps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP"}
	type m = map[string]any
	bind := []string{"rbind", "ro", "nosuid", "nodev"}
	spec := m{
		"ociVersion": "1.0.2", "hostname": "sb",
		"root": m{"path": "rootfs", "readonly": true},
		"process": m{
			"user": m{"uid": 990, "gid": 990}, "args": []string{"/guest/rung-guest", "serve", string(arg)}, "cwd": "/", "noNewPrivileges": true,
			"env":          []string{"PATH=/usr/bin"},
			"capabilities": m{"bounding": caps, "effective": caps, "permitted": caps, "inheritable": caps, "ambient": caps},
		},
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
			{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
			{"destination": "/work", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev", "mode=1777"}},
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": bind},
			{"destination": "/guest", "type": "bind", "source": filepath.Dir(program), "options": bind},
		},
		"linux": m{"namespaces": []m{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	}
	text, _ := json.Marshal(spec)
	write("config.json", string(text))
	return dir
}

// startUnder starts the runtime with one end of a socket pair as descriptor 3.
func startUnder(t *testing.T, cmd *exec.Cmd) *client.Guest {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	session, err := mux.Open(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		done := make(chan struct{})
		go func() {
			cmd.Wait()
			close(done)
		}()
		waitFor(t, "the end of the sandbox after its channel's", func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		if t.Failed() {
			t.Logf("runtime: %s", out.String())
		}
	})
	return client.New(session.Dial)
}

// attack reads the guest's memory, variables and descriptors, and signals it.
const attack = `g=${GUEST:-1}; cat /proc/$g/mem /proc/$g/environ /proc/$g/maps 2>/dev/null | wc -c; ls /proc/$g/fd 2>/dev/null | wc -l
kill -9 $g 2>/dev/null; echo $?; kill -STOP $g 2>/dev/null; echo $?`

func testUnder(t *testing.T, c *client.Guest) {
	g := &running{Guest: c, user: ident.User{UID: 1000, GID: 1000, Home: "/home/user"}}
	raw, err := g.Measure(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"guest_uid":990`) {
		t.Errorf("measurement: %s", raw)
	}
	out, _, _ := g.run(t, `id -u; id -G; pwd; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; cat /proc/1/status | grep -E '^(Uid|Cap)'; cat /proc/self/oom_score_adj /proc/1/oom_score_adj`)
	lines := strings.Fields(out)
	if !slices.Equal(lines[:3], []string{"1000", "1000", "/work"}) {
		t.Errorf("identity: %v", lines[:3])
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if _, rest, ok := strings.Cut(out, set+":\t"); !ok || !strings.HasPrefix(rest, "0000000000000000") {
			t.Errorf("%s is not empty", set)
		}
	}
	out, _, _ = g.run(t, attack)
	if out != "0\n0\n1\n1\n" {
		t.Errorf("reading or signalling the guest: %q", out)
	}
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "sh", Args: []string{"-c", tree}})
	if err != nil {
		t.Fatal(err)
	}
	lines4 := &lineWriter{want: 4, got: make(chan []string, 1)}
	ended := make(chan error, 1)
	go func() {
		_, err := p.Wait(lines4, io.Discard)
		ended <- err
	}()
	<-lines4.got
	if err := p.Kill(ctx(t)); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out, _, _ = g.run(t, fmt.Sprintf(`kill -0 %d && echo still there; ps -e -o pid=,stat=,comm=`, p.PID))
	if strings.Contains(out, "still there") {
		t.Errorf("after the kill: %s", out)
	}
	testFilesUnder(t, g)
}

func testFilesUnder(t *testing.T, g *running) {
	files := g.Files("")
	c, cancel := context.WithCancel(ctx(t))
	defer cancel()
	if err := files.Create(c, "/work/a/b.txt", strings.NewReader("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.run(t, `ln -s /etc/passwd /work/link; ln -s ../../../../etc/group /work/up; mkfifo /work/fifo; chmod 700 /work/a`)
	r, err := files.Strict().Open(c, "/work/a/b.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "hello" {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"/work/link", "/work/up", "/work/fifo", "/work/a", "/work/none"} {
		if _, err := files.Strict().Open(c, name); err == nil {
			t.Errorf("strict open of %s", name)
		}
	}
	if _, err := files.Open(c, "/work/link"); err != nil {
		t.Error(err)
	}
	if err := files.Create(c, "/etc/x", strings.NewReader("x"), 0); err == nil {
		t.Error("wrote to /etc")
	}
	if list, err := files.List(c, "/work", 3); err != nil || len(list) < 4 {
		t.Errorf("%+v %v", list, err)
	}
}
