package lock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

func TestLifeOfASandbox(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "run")
	s, err := NewSandbox(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewSandbox(dir, "a"); rung.KindOf(err) != rung.KindExists {
		t.Errorf("second NewSandbox: %v", err)
	}
	if alive, err := Alive(dir, "a"); !alive || err != nil {
		t.Errorf("Alive = %v, %v", alive, err)
	}
	if dead, err := Dead(dir); len(dead) != 0 || err != nil {
		t.Errorf("Dead = %v, %v", dead, err)
	}
	if err := os.MkdirAll(s.Dir+"/x/y", 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "keep")
	if err := errors.Join(os.WriteFile(outside, nil, 0o600), os.Symlink(filepath.Dir(outside), s.Dir+"/link")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error("Remove followed a link")
	}
	if ids, err := List(dir); len(ids) != 0 || err != nil {
		t.Errorf("List = %v, %v", ids, err)
	}
	if alive, err := Alive(dir, "a"); alive || err != nil {
		t.Errorf("Alive after Remove = %v, %v", alive, err)
	}
}

func TestLockOutlivesItsMaker(t *testing.T) {
	dir := t.TempDir()
	s, err := NewSandbox(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	heir := exec.Command("sleep", "60") // stands for the holder
	heir.ExtraFiles = []*os.File{s.Lock}
	if err := errors.Join(heir.Start(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if dead, err := Dead(dir); len(dead) != 0 || err != nil {
		t.Errorf("Dead with a live heir = %v, %v", dead, err)
	}
	_ = heir.Process.Kill()
	_ = heir.Wait()
	dead, err := Dead(dir)
	if len(dead) != 1 || err != nil {
		t.Fatalf("Dead after kill -9 = %v, %v", dead, err)
	}
	if again, err := Dead(dir); len(again) != 0 || err != nil {
		t.Errorf("a second reaper got %v, %v", again, err)
	}
	if err := dead[0].Remove(); err != nil {
		t.Error(err)
	}
}

func TestRemainsOfUnfinishedDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	// killed after mkdir; killed before the rename; killed after the lock file was removed
	for _, id := range []string{"born", "half"} {
		if err := os.Mkdir(dir+"/sandboxes/"+id, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/sandboxes/half/lock.new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	maker, err := reapLock(dir, false, bound)
	if err != nil {
		t.Fatal(err)
	}
	if dead, err := Dead(dir); len(dead) != 0 || err != nil {
		t.Errorf("Dead while a sandbox is being made = %v, %v", dead, err)
	}
	_ = maker.Close()
	dead, err := Dead(dir)
	if len(dead) != 2 || err != nil {
		t.Fatalf("Dead = %v, %v", dead, err)
	}
	for _, s := range dead {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadNamesAndDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"", ".", "..", "../x", "a/b", "A", "a\nb"} {
		if _, err := NewSandbox(dir, id); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("NewSandbox(%q): %v", id, err)
		}
		if _, _, err := AcquireSlot(dir, id, nil); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("AcquireSlot(%q): %v", id, err)
		}
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{open, link} {
		if _, err := NewSandbox(d, "a"); rung.KindOf(err) != rung.KindUnavailable {
			t.Errorf("NewSandbox in %s: %v", d, err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a tiny tmpfs")
	}
	runtime.LockOSThread() // never unlocked: the thread, and its mounts, end with the test
	dir := t.TempDir()
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tiny", dir, "tmpfs", 0, "size=64k,nr_inodes=8,mode=0700"),
	} {
		if err != nil {
			t.Skipf("cannot mount: %v", err)
		}
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		id := fmt.Sprintf("s%d", i)
		s, err := NewSandbox(dir, id)
		if err == nil {
			defer func() { _ = s.Remove() }()
			continue
		}
		if rung.KindOf(err) != rung.KindExhausted {
			t.Errorf("NewSandbox on a full disk: %v", err)
		}
		if _, err := os.Lstat(dir + "/sandboxes/" + id); err == nil {
			t.Error("a failed NewSandbox left its directory")
		}
		return
	}
	t.Error("the disk never filled")
}

func TestSlots(t *testing.T) {
	dir := t.TempDir()
	var files []*os.File
	for i := range 3 {
		n, f, err := AcquireSlot(dir, fmt.Sprintf("s%d", i), nil)
		if err != nil || n != i {
			t.Fatalf("AcquireSlot = %d, %v", n, err)
		}
		files = append(files, f)
	}
	_ = files[1].Close()
	busy := func(id string) bool { return id == "s1" }
	n, f, err := AcquireSlot(dir, "a-much-longer-name", busy)
	if err != nil || n != 3 {
		t.Errorf("a slot with remains was not passed over: %d, %v", n, err)
	}
	_ = f.Close()
	if n, f, err = AcquireSlot(dir, "b", nil); err != nil || n != 1 {
		t.Errorf("the lowest free slot was not taken: %d, %v", n, err)
	}
	_ = f.Close()
	n, f, err = AcquireSlot(dir, "c", func(id string) bool { return id == "b" })
	if err != nil || n != 3 {
		t.Fatalf("AcquireSlot = %d, %v", n, err)
	}
	defer func() { _ = f.Close() }()
	if b, _ := os.ReadFile(dir + "/slots/3"); string(b) != "c\n" {
		t.Errorf("slot file = %q", b)
	}
}

// Sixteen makers beside three reapers: nothing live is reaped, no slot is held twice, everything abandoned is found.
func TestCreatorsBesideReapers(t *testing.T) {
	dir := t.TempDir()
	var stop atomic.Bool
	var reaped atomic.Int64
	var makers, reapers sync.WaitGroup
	var owner [Slots]atomic.Int64
	for range 3 {
		reapers.Go(func() {
			for !stop.Load() {
				dead, err := Dead(dir)
				if err != nil {
					t.Error(err)
				}
				for _, s := range dead {
					if _, err := os.Lstat(s.Dir + "/live"); err == nil {
						t.Errorf("%s was alive", s.ID)
					}
					if err := s.Remove(); err != nil {
						t.Error(err)
					}
					reaped.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	var abandoned atomic.Int64
	for w := range 16 {
		makers.Go(func() {
			for i := range 60 {
				id := fmt.Sprintf("s%d", rand.N(24)) // ids collide and come again on purpose
				s, err := NewSandbox(dir, id)
				if rung.KindOf(err) == rung.KindExists {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				n, slot, err := AcquireSlot(dir, id, nil)
				if err != nil || !owner[n].CompareAndSwap(0, int64(w+1)) {
					t.Errorf("slot %d: %v", n, err)
					return
				}
				if err := os.WriteFile(s.Dir+"/live", nil, 0o600); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
				if alive, err := Alive(dir, id); !alive || err != nil {
					t.Errorf("Alive = %v, %v", alive, err)
				}
				if err := os.Remove(s.Dir + "/live"); err != nil {
					t.Errorf("a live directory was touched: %v", err)
				}
				owner[n].Store(0)
				_ = slot.Close()
				if i%2 == 0 {
					abandoned.Add(1)
					_ = s.Close()
				} else if err := s.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	stop.Store(true)
	reapers.Wait()
	dead, err := Dead(dir)
	for _, s := range dead {
		err = errors.Join(err, s.Remove())
	}
	ids, _ := List(dir)
	if err != nil || len(ids) != 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
	if got := reaped.Load() + int64(len(dead)); got != abandoned.Load() {
		t.Errorf("%d abandoned, %d reaped", abandoned.Load(), got)
	}
}

func TestListIgnoresForeignNames(t *testing.T) {
	dir := t.TempDir()
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ok", "Not-ours", strings.Repeat("x", 65)} {
		if err := os.Mkdir(dir+"/sandboxes/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := List(dir); err != nil || !slices.Equal(ids, []string{"ok"}) {
		t.Errorf("List = %v, %v", ids, err)
	}
}

func BenchmarkSandbox(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := NewSandbox(dir, "a")
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSlot(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		_, f, err := AcquireSlot(dir, "a", nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = f.Close()
	}
}

func BenchmarkDead16Live(b *testing.B) {
	dir := b.TempDir()
	for i := range 16 {
		s, err := NewSandbox(dir, fmt.Sprintf("s%d", i))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = s.Remove() }()
	}
	for b.Loop() {
		if _, err := Dead(dir); err != nil {
			b.Fatal(err)
		}
	}
}
