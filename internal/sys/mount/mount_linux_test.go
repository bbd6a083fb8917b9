package mount

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// private gives the test a mount namespace of its own: its thread is never unlocked, so it ends with the test.
func private(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), Private("/")); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	dir := t.TempDir()
	// Its own tmpfs, so that nothing is left in the shared directory however the test ends.
	if err := Tmpfs(dir, TmpfsOptions{Size: 16 << 20, Inodes: 1000}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Detach(dir) })
	for _, d := range []string{"src/sub", "dst", "up", "work", "low2"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/src/file", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func flags(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Flags
}

func TestBindRO(t *testing.T) {
	d := private(t)
	if err := Tmpfs(d+"/src/sub", TmpfsOptions{Size: 1 << 20, Inodes: 10}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d+"/src/sub/below", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, bind := range map[string]func() error{
		"new": func() error { return BindRO(d+"/src", d+"/dst", BindOptions{Noexec: true}) },
		"old": func() error {
			s, _ := Open(d + "/src")
			o, _ := Open(d + "/dst")
			return bindOld(s, o, BindOptions{ReadOnly: true, Nosuid: true, Nodev: true, Noexec: true})
		},
	} {
		if err := bind(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		const want = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
		if f := flags(t, d+"/dst"); f&want != want {
			t.Errorf("%s: flags %#x", name, f)
		}
		if err := os.WriteFile(d+"/dst/file", nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: write: %v", name, err)
		}
		if err := os.WriteFile(d+"/src/file", []byte("x"), 0o644); err != nil {
			t.Errorf("%s: the source became read-only: %v", name, err)
		}
		if _, err := os.Stat(d + "/dst/sub/below"); err == nil {
			t.Errorf("%s: a mount below the source came along", name)
		}
		if err := Detach(d + "/dst"); err != nil {
			t.Error(err)
		}
	}
}

func TestBindFileAndRefusals(t *testing.T) {
	d := private(t)
	target := d + "/dst/f"
	if err := errors.Join(os.WriteFile(target, nil, 0o644), os.Symlink(d+"/src", d+"/link")); err != nil {
		t.Fatal(err)
	}
	if err := BindRO(d+"/src/file", target, BindOptions{}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		src, dst string
		kind     rung.Kind
	}{
		{d + "/link", d + "/dst", rung.KindInvalid},
		{d + "/src", d + "/link", rung.KindInvalid},
		{d + "/none", d + "/dst", rung.KindNotFound},
		{d + "/src", d + "/none", rung.KindNotFound},
	} {
		if err := BindRO(c.src, c.dst, BindOptions{}); rung.KindOf(err) != c.kind {
			t.Errorf("BindRO(%s, %s): %v", c.src, c.dst, err)
		}
	}
	err := BindRO(d+"/src/file", d+"/dst", BindOptions{})
	if err == nil || !strings.Contains(err.Error(), d+"/src/file") || !strings.Contains(err.Error(), d+"/dst") {
		t.Errorf("a file at a directory: %v", err)
	}
}

func TestTmpfsIsBounded(t *testing.T) {
	d := private(t)
	if err := Tmpfs(d+"/dst", TmpfsOptions{Size: 1 << 20, Inodes: 4, Mode: 0o1777, UID: 7, GID: 8, Noexec: true}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(d+"/dst", &st); err != nil || st.Uid != 7 || st.Gid != 8 || st.Mode&0o7777 != 0o1777 {
		t.Errorf("root is %d:%d %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
	if err := os.WriteFile(d+"/dst/big", make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("too many bytes: %v", err)
	}
	var err error
	for i := range 8 {
		err = errors.Join(err, os.WriteFile(d+"/dst/"+string(rune('a'+i)), nil, 0o600))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("too many files: %v", err)
	}
	if err := Tmpfs(d+"/dst", TmpfsOptions{Size: 0, Inodes: 4}); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("unbounded tmpfs: %v", err)
	}
	if err := FS("tmpfs", d+"/dst", FSOptions{Params: []Param{{"size", "nonsense"}}}); err == nil || !strings.Contains(err.Error(), "size") {
		t.Errorf("the kernel's words are missing: %v", err)
	}
	if err := FS("nosuchfs", d+"/dst", FSOptions{}); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("unknown file system: %v", err)
	}
	o, _ := Open(d + "/dst")
	if err := mountOld("tmpfs", o, FSOptions{Nosuid: true, Noatime: true, Params: []Param{{"size", "1m"}}}); err != nil {
		t.Error(err)
	}
}

func TestProcAndOverlay(t *testing.T) {
	d := private(t)
	if err := Proc(d+"/dst", Param{"hidepid", "2"}); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(d + "/dst/self"); err != nil {
		t.Error(err)
	}
	if err := Detach(d + "/dst"); err != nil {
		t.Error(err)
	}
	odd := d + "/lo:w,er"
	if err := errors.Join(os.Mkdir(odd, 0o755), os.WriteFile(odd+"/o", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := Overlay([]string{odd, d + "/src"}, d+"/up", d+"/work", d+"/dst", OverlayOptions{Volatile: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d+"/dst/file", []byte("changed"), 0o644); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(d + "/src/file"); string(b) != "x" {
		t.Errorf("the lower layer was written: %q", b)
	}
	if _, err := os.Stat(d + "/dst/o"); err != nil {
		t.Error(err)
	}
	if err := Detach(d + "/dst"); err != nil {
		t.Error(err)
	}
	if err := Overlay([]string{odd, d + "/src"}, "", "", d+"/dst", OverlayOptions{}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(d+"/dst/file", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to a read-only overlay: %v", err)
	}
	for range 3 {
		if err := Detach(d + "/dst"); err != nil {
			t.Errorf("Detach of nothing: %v", err)
		}
	}
}

func BenchmarkBindRO(b *testing.B) {
	d := private(b)
	for b.Loop() {
		if err := errors.Join(BindRO(d+"/src", d+"/dst", BindOptions{}), Detach(d+"/dst")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTmpfs(b *testing.B) {
	d := private(b)
	for b.Loop() {
		if err := errors.Join(Tmpfs(d+"/dst", TmpfsOptions{Size: 1 << 20, Inodes: 100}), Detach(d+"/dst")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOverlay(b *testing.B) {
	d := private(b)
	for b.Loop() {
		if err := errors.Join(Overlay([]string{d + "/src"}, d+"/up", d+"/work", d+"/dst", OverlayOptions{Volatile: true}), Detach(d+"/dst")); err != nil {
			b.Fatal(err)
		}
		_ = os.RemoveAll(d + "/work/work/incompat") // a volatile work directory is good for one mount
	}
}
