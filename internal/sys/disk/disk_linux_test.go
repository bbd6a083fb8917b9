package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/mount"
)

// private gives the test a mount namespace of its own, which ends with its thread.
func private(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), mount.Private("/")); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
}

func mounted(t testing.TB, m Maker, size int64) *Disk {
	t.Helper()
	d, err := m.Mount(t.Context(), t.TempDir(), size, "test")
	if rung.KindOf(err) == rung.KindUnavailable {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := d.Unmount(); err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

func maker(t testing.TB) Maker { return Maker{StateDir: t.TempDir()} }

func TestQuotaIsExactAndPrivate(t *testing.T) {
	private(t)
	for _, size := range []int64{1 << 20, 5_000_000, 64 << 20} {
		m := maker(t)
		d := mounted(t, m, size)
		err := fill(d.Dir + "/big")
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%d: filling: %v", size, err)
		}
		st, statErr := os.Stat(d.Dir + "/big")
		if statErr != nil || st.Size() > size || st.Size() < size/2 {
			t.Errorf("%d: took %d, %v", size, st.Size(), statErr)
		}
		if used, err := d.Used(); err != nil || used < st.Size() {
			t.Errorf("%d: Used = %d, %v", size, used, err)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(d.Dir, &fs); err != nil || fs.Flags&(unix.ST_NOSUID|unix.ST_NODEV|unix.ST_NOATIME) != unix.ST_NOSUID|unix.ST_NODEV|unix.ST_NOATIME {
			t.Errorf("flags %#x, %v", fs.Flags, err)
		}
		if err := d.Unmount(); err != nil {
			t.Error(err)
		}
		if d = mounted(t, m, size); d != nil { // what one life wrote, the next does not see
			if _, err := os.Stat(d.Dir + "/big"); err == nil {
				t.Error("a new disk holds an old file")
			}
		}
	}
}

func fill(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 64<<10)
	for n := 1; ; n++ {
		block[0] = byte(n)
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	private(t)
	d := mounted(t, maker(t), 16<<20)
	made := 0
	for ; made < 3000; made++ {
		if err := os.WriteFile(fmt.Sprintf("%s/f%d", d.Dir, made), nil, 0o600); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
			break
		}
	}
	if made < 900 || made > 1100 {
		t.Errorf("%d files on a disk for 1024", made)
	}
}

// A writer in a memory cgroup much smaller than its disk gets ENOSPC at the end of the disk and is never killed for
// memory: the difference to a tmpfs.
func TestFullDiskIsNotOutOfMemory(t *testing.T) {
	private(t)
	d := mounted(t, maker(t), 160<<20)
	l, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Create(fmt.Sprintf("disk-%d", os.Getpid()), cgroup.Limits{CPUs: 2, Memory: 32 << 20, PIDs: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(g.Kill(context.Background()), g.Remove(context.Background())) }()
	if len(g.Missing) > 0 {
		t.Skip(g.Missing)
	}
	// The group's Start forks from another thread, which is not in this namespace: the child joins by itself.
	script := ""
	for _, p := range g.JoinPaths() {
		script += "echo 0 > " + p + " && "
	}
	out, err := exec.Command("sh", "-c", script+"exec dd if=/dev/zero of="+d.Dir+"/big bs=1M").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No space left on device") {
		t.Errorf("dd: %v: %s", err, out)
	}
	if n, err := g.OOMKills(); n != 0 || err != nil {
		t.Errorf("out-of-memory kills: %d, %v", n, err)
	}
	if st, err := os.Stat(d.Dir + "/big"); err != nil || st.Size() < 140<<20 {
		t.Errorf("dd wrote %v, %v", st, err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	private(t)
	m := maker(t)
	d := mounted(t, m, 8<<20)
	list, err := List()
	if err != nil || !contains(list, d.Device) {
		t.Errorf("List = %v, %v", list, err)
	}
	open, err := os.Open(d.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Unmount(); err != nil { // busy: detached, and gone with its last user
		t.Error(err)
	}
	_ = open.Close()
	gone := time.Now().Add(5 * time.Second)
	for list, err = List(); err == nil && contains(list, d.Device) && time.Now().Before(gone); list, err = List() {
		runtime.Gosched()
	}
	if err != nil || contains(list, d.Device) {
		t.Errorf("List after the end = %v, %v", list, err)
	}
	entries, _ := os.ReadDir(m.StateDir)
	if len(entries) != 1 || entries[0].Name() != "blank" {
		t.Errorf("state holds %v", entries)
	}
}

func contains(list []Attached, device string) bool {
	for _, a := range list {
		if a.Device == device && a.ID == "test" {
			return true
		}
	}
	return false
}

// Made in one process, attached in the mount namespace of another that got the file, gone with that one.
func TestDetachedDiskIsPassedOn(t *testing.T) {
	private(t)
	m, dir := maker(t), t.TempDir()
	made, err := m.Detached(t.Context(), 8<<20, "test")
	if rung.KindOf(err) == rung.KindUnavailable {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), attachTo+"="+dir), []*os.File{made}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "attached\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := os.Stat(dir + "/made"); err == nil {
		t.Error("the disk is seen outside")
	}
	_ = made.Close()
	gone := time.Now().Add(5 * time.Second)
	list, err := List()
	for ; err == nil && len(ours(list)) > 0 && time.Now().Before(gone); list, err = List() {
		runtime.Gosched()
	}
	if err != nil || len(ours(list)) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// attachTo is set in a copy of the test program that stands for a holder.
const attachTo = "RUNG_TEST_ATTACH_TO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(attachTo); dir != "" {
		err := errors.Join(mount.Private("/"), mount.Attach(os.NewFile(3, "disk"), dir), os.WriteFile(dir+"/made", nil, 0o600))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("attached")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func ours(list []Attached) (mine []Attached) {
	for _, a := range list {
		if a.ID == "test" {
			mine = append(mine, a)
		}
	}
	return mine
}

func TestMakersSideBySide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m := maker(t)
	var all sync.WaitGroup
	for i := range 16 {
		dir := t.TempDir()
		all.Go(func() {
			private(t) // the thread ends with this function
			for range 5 {
				d, err := m.Mount(t.Context(), dir, 32<<20, fmt.Sprintf("side-%d", i))
				if rung.KindOf(err) == rung.KindUnavailable {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mark := fmt.Sprintf("%s/mark-%d", dir, i)
				names, _ := filepath.Glob(dir + "/mark-*")
				if err := os.WriteFile(mark, nil, 0o600); err != nil || len(names) > 0 {
					t.Errorf("not my own disk: %v, %v", names, err)
				}
				if err := d.Unmount(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestRefusals(t *testing.T) {
	m := maker(t)
	for _, size := range []int64{-1, 0, 4096, 1 << 50} {
		if _, err := m.Mount(t.Context(), t.TempDir(), size, "x"); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if _, err := m.Mount(t.Context(), t.TempDir(), 1<<20, "../x"); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("bad id: %v", err)
	}
	private(t)
	full := t.TempDir()
	if err := mount.Tmpfs(full, mount.TmpfsOptions{Size: 32 << 20, Inodes: 100}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mount.Detach(full) }()
	if _, err := (Maker{StateDir: full}).Mount(t.Context(), t.TempDir(), 1<<30, "x"); rung.KindOf(err) != rung.KindExhausted || rung.HintOf(err) == "" {
		t.Errorf("state on a full disk: %v", err)
	}
	broken := filepath.Join(t.TempDir(), "mke2fs")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no good; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	_, err := Maker{StateDir: state, Mke2fs: broken}.Mount(t.Context(), t.TempDir(), 1<<20, "x")
	if rung.KindOf(err) != rung.KindUnavailable || !strings.Contains(err.Error(), "no good") {
		t.Errorf("mke2fs fails: %v", err)
	}
	if left, _ := filepath.Glob(state + "/blank/*"); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestBlanksAreBoundedAndChecked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m := maker(t)
	for i := range int64(maxBlanks + 3) {
		f, err := m.blank(t.Context(), (i+1)<<20)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	names, _ := filepath.Glob(m.StateDir + "/blank/*")
	if len(names) != maxBlanks {
		t.Errorf("%d blanks kept", len(names))
	}
	if err := os.Truncate(names[0], 5); err != nil {
		t.Fatal(err)
	}
	f, err := m.blank(t.Context(), sizeOf(t, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || st.Size() == 5 {
		t.Errorf("a broken blank was used: %v", err)
	}
}

func sizeOf(t *testing.T, name string) (n int64) {
	if _, err := fmt.Sscanf(filepath.Base(name), "%d.", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func BenchmarkLoop(b *testing.B) {
	private(b)
	m := maker(b)
	for b.Loop() {
		loop, err := m.loop(b.Context(), 1<<30, "bench")
		if err != nil {
			b.Fatal(err)
		}
		_ = loop.Close()
	}
}

func BenchmarkMount(b *testing.B) {
	private(b)
	m, dir := maker(b), b.TempDir()
	for b.Loop() {
		d, err := m.Mount(b.Context(), dir, 1<<30, "bench")
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := d.Unmount(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkUnmount(b *testing.B) {
	private(b)
	m, dir := maker(b), b.TempDir()
	for b.Loop() {
		b.StopTimer()
		d, err := m.Mount(b.Context(), dir, 1<<30, "bench")
		if err != nil {
			b.Fatal(err)
		}
		_ = os.Mkdir(dir+"/work", 0o755)
		_ = os.WriteFile(dir+"/work/x", make([]byte, 10000), 0o644)
		b.StartTimer()
		if err := d.Unmount(); err != nil {
			b.Fatal(err)
		}
	}
}
