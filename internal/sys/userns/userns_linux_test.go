package userns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/mount"
)

// asNobody is set in a copy of the test program that runs as an ordinary user.
const asNobody = "RUNG_TEST_AS_NOBODY"

func TestMain(m *testing.M) {
	if os.Getenv(asNobody) != "" {
		_, err := ForMapping(0, 0x70000000, 65536)
		fmt.Println(rung.KindOf(err), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// A file shows the owner its template means, in a namespace that maps the slot's range, and one made inside is stored
// with the template's ids.
func TestOwnersThroughAnIdmappedMount(t *testing.T) {
	root(t)
	runtime.LockOSThread() // and its mounts end with the test
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), mount.Private("/")); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	if err := mount.Tmpfs("/mnt", mount.TmpfsOptions{Size: 1 << 20, Inodes: 100}); err != nil { // reachable for every id, unlike TempDir
		t.Fatal(err)
	}
	const host = 0x70010000
	for _, owner := range []uint32{0, 200000} {
		ns, err := ForMapping(owner, host, 65536)
		if err != nil {
			t.Fatal(err)
		}
		src, dst := fmt.Sprintf("/mnt/src%d", owner), fmt.Sprintf("/mnt/dst%d", owner)
		for _, err := range []error{
			os.Mkdir(src, 0o755), os.Mkdir(dst, 0o755), os.Chown(src, int(owner), int(owner)),
			os.WriteFile(src+"/user", nil, 0o600), os.Chown(src+"/user", int(owner)+1000, int(owner)+100),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := mount.IdmapSupported(src, ns); err != nil {
			t.Skipf("tmpfs: %v", err)
		}
		if err := mount.Bind(src, dst, mount.BindOptions{Idmap: ns, Nosuid: true, Nodev: true}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", "stat -c %u:%g . user && : > made")
		cmd.Dir = dst
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 65536}}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			Credential: &syscall.Credential{}, GidMappingsEnableSetgroups: true,
		}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "0:0\n1000:100\n" {
			t.Errorf("owner %d: seen inside: %q, %v", owner, out, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(src+"/made", &st); err != nil || st.Uid != owner || st.Gid != owner {
			t.Errorf("owner %d: stored as %d:%d, %v", owner, st.Uid, st.Gid, err)
		}
		if err := unix.Stat(dst+"/user", &st); err != nil || st.Uid != host+1000 || st.Gid != host+100 {
			t.Errorf("owner %d: on the host through the mount %d:%d, %v", owner, st.Uid, st.Gid, err)
		}
		_ = ns.Close()
	}
}

func TestForMappingLeavesNoProcess(t *testing.T) {
	root(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				f, err := ForMapping(0, 0x70000000+uint32(i)<<16, 65536)
				if err != nil {
					t.Error(err)
					return
				}
				_ = f.Close()
				runtime.GC() // stops the world beside the clones
			}
		})
	}
	all.Wait()
	if pid, err := unix.Wait4(-1, nil, unix.WALL|unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
}

func TestForMappingRefusals(t *testing.T) {
	for _, m := range [][3]uint32{{0, 0, 0}, {0, 1<<32 - 1, 2}, {1<<32 - 1, 0, 2}} {
		if _, err := ForMapping(m[0], m[1], m[2]); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("ForMapping(%v): %v", m, err)
		}
	}
	root(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asNobody+"=1")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), string(rung.KindUnavailable)) {
		t.Errorf("as nobody: %q, %v", out, err)
	}
}

// sleeper starts a process in an unmapped user namespace.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestMapSelf(t *testing.T) {
	cmd := sleeper(t)
	if err := MapSelf(cmd.Process.Pid, 7, 8); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", cmd.Process.Pid))
	if got := strings.Fields(string(b)); err != nil || len(got) != 3 || got[0] != "7" || got[2] != "1" {
		t.Errorf("uid_map %q, %v", b, err)
	}
	for _, pid := range []int{0, -1, 1 << 30} {
		if err := MapSelf(pid, 0, 0); err == nil {
			t.Errorf("MapSelf(%d) succeeded", pid)
		}
	}
}

func TestNewIDMap(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	one := []rung.IDMap{{Inside: 0, Host: uint32(os.Geteuid()), Size: 1}}
	for _, bad := range []func() error{
		func() error { return NewIDMap(t.Context(), 0, one, one) },
		func() error { return NewIDMap(t.Context(), 1, nil, one) },
	} {
		if err := bad(); rung.KindOf(err) != rung.KindInvalid {
			t.Error(err)
		}
	}
	uids, gids, ok := SubIDs(me.Username, os.Geteuid())
	if !ok {
		t.Skipf("%s has no subordinate ids", me.Username)
	}
	cmd := sleeper(t)
	err = NewIDMap(context.Background(), cmd.Process.Pid, append(one, rung.IDMap{Inside: 1, Host: uids.Base, Size: 10}),
		[]rung.IDMap{{Inside: 0, Host: gids.Base, Size: 10}})
	if rung.KindOf(err) == rung.KindUnavailable {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkForMapping(b *testing.B) {
	root(b)
	for b.Loop() {
		f, err := ForMapping(0, 0x70000000, 65536)
		if err != nil {
			b.Fatal(err)
		}
		_ = f.Close()
	}
}
