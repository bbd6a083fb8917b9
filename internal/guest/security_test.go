//go:build linux

package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/internal/guest"
)

// A user process can neither read nor signal nor trace the guest, and holds nothing it could gain by.
func TestUserCannotReachGuest(t *testing.T) {
	needRoot(t)
	g := start(t, func(c *guest.Config) { c.DropCaps, c.Env = true, nil })
	pid := g.cmd.Process.Pid
	out, _, _ := g.run(t, fmt.Sprintf("GUEST=%d\n%s", pid, attack))
	if out != "0\n0\n1\n1\n" {
		t.Errorf("reading or signalling the guest: %q", out)
	}
	if strace, err := exec.LookPath("strace"); err == nil {
		if _, errs, exit := g.run(t, fmt.Sprintf("timeout 5 %s -p %d", strace, pid)); exit.Code == 0 || !strings.Contains(errs, "not permitted") {
			t.Errorf("tracing the guest: %+v %q", exit, errs)
		}
	}
	out, _, _ = g.run(t, `cat /proc/self/status`)
	for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapInh:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Groups:\t \n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, want := range []string{"CapPrm:\t00000000000000e0", "CapEff:\t00000000000000e0", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if err != nil || !strings.Contains(string(status), want) {
			t.Errorf("the guest's own: no %q: %v", want, err)
		}
	}
	if score, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		if out, _, _ := g.run(t, `cat /proc/self/oom_score_adj`); strings.TrimSpace(out) == strings.TrimSpace(string(score)) {
			t.Errorf("oom score of a user process is %s, as everybody's", out)
		}
	}
}

// Descriptors that the guest inherited never reach a user process.
func TestInheritedDescriptors(t *testing.T) {
	secret, err := os.Open("/etc/hostname")
	if err != nil {
		t.Skip(err)
	}
	defer secret.Close()
	extra = []*os.File{secret, secret}
	defer func() { extra = nil }()
	g := start(t, nil)
	out, _, _ := g.run(t, `ls -l /proc/$$/fd`)
	if strings.Contains(out, "hostname") || strings.Count(out, "->") != 3 {
		t.Errorf("descriptors:\n%s", out)
	}
}

func TestUsers(t *testing.T) {
	needRoot(t)
	g := start(t, func(c *guest.Config) { c.DropCaps = true })
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "id", Args: []string{"-un"}, User: "nobody", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, _ := finish(t, p); out != "nobody\n" {
		t.Errorf("as nobody: %q", out)
	}
	for _, name := range []string{"root", "nobody-such", "../x"} {
		if _, err := g.Guest.Start(ctx(t), client.Cmd{Path: "id", User: name}); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("as %s: %v", name, err)
		}
	}
}

// File work is done as the user: what the user may not do, the guest does not do for it.
func TestFilesAreTheUsers(t *testing.T) {
	needRoot(t)
	g := start(t, nil) // the guest is root here, with everything
	files := g.Files("")
	dir := t.TempDir()
	os.Chmod(dir, 0o700)
	os.WriteFile(dir+"/secret", []byte("x"), 0o600)
	os.Symlink(dir+"/secret", g.user.Home+"/link")
	for _, name := range []string{dir + "/secret", "link", "/etc/shadow", "/proc/1/environ", "/proc/1/mem", fmt.Sprintf("/proc/%d/environ", g.cmd.Process.Pid)} {
		if _, err := files.Open(ctx(t), name); err == nil {
			t.Errorf("read %s", name)
		}
		if err := files.Create(ctx(t), name, strings.NewReader("x"), 0); err == nil {
			t.Errorf("wrote %s", name)
		}
	}
	for _, name := range []string{"/proc/self/oom_score_adj", "/proc/self/comm", "/etc/new", "/dev/full", "/dev/null"} {
		if err := files.Create(ctx(t), name, strings.NewReader("x"), 0); err == nil {
			t.Errorf("wrote %s", name)
		}
	}
	if err := files.Remove(ctx(t), "/etc/hostname"); err == nil {
		t.Error("removed /etc/hostname")
	}
	if err := files.Remove(ctx(t), "/"); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("remove /: %v", err)
	}
	if err := files.Create(ctx(t), "own", strings.NewReader("x"), 0o750); err != nil {
		t.Fatal(err)
	}
	info, err := files.Stat(ctx(t), "own")
	if err != nil || info.Mode != 0o750 || info.Owner != fmt.Sprint(g.user.UID) {
		t.Errorf("%+v %v", info, err)
	}
	// Many calls leave no thread behind that acts as the user where it should not.
	for range 50 {
		if _, err := files.Stat(ctx(t), "own"); err != nil {
			t.Fatal(err)
		}
	}
	if out, _, _ := g.run(t, `id -u`); strings.TrimSpace(out) != fmt.Sprint(g.user.UID) {
		t.Errorf("uid %s", out)
	}
}

func TestNoSpace(t *testing.T) {
	needRoot(t)
	g := start(t, nil)
	small := g.user.Home + "/small"
	os.Mkdir(small, 0o755)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256k,mode=777", "tmpfs", small).CombinedOutput(); err != nil {
		t.Skipf("mount: %s", out)
	}
	t.Cleanup(func() { exec.Command("umount", small).Run() })
	err := g.Files("").Create(ctx(t), "small/big", strings.NewReader(strings.Repeat("x", 1<<20)), 0)
	if rung.KindOf(err) != rung.KindExhausted {
		t.Errorf("got %v", err)
	}
	req := g.http()
	resp, err := req.Post("http://guest/files?path=small/big2", "application/octet-stream", strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 507 {
		t.Errorf("status %d", resp.StatusCode)
	}
}
