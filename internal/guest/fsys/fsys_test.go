//go:build linux

package fsys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tree is a root with a canary outside it and links that try to get there.
func tree(t testing.TB) (*Tree, string) {
	t.Helper()
	base := t.TempDir()
	root := filepath.Join(base, "root")
	for _, d := range []string{"root/dir/sub", "outside"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"outside/canary": "CANARY", "root/file": "file", "root/dir/file": "dirfile"} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"rel":        "../outside",
		"deep":       "dir/../../../../../../../../.." + base + "/outside",
		"abs":        base + "/outside",
		"absfile":    base + "/outside/canary",
		"dir/up":     "../../outside/canary",
		"dir/sub/up": "../../../outside",
		"loop":       "loop",
		"loop1":      "loop2",
		"loop2":      "loop1",
		"root":       "/",
		"good":       "dir/file",
		"goodabs":    "/dir/file",
		"gooddir":    "/dir",
		"proc":       "/proc/self/root",
		"dangling":   "/outside/none",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, base
}

var traversals = []string{
	"/../outside/canary", "/../../../../../../../../etc/passwd", "/rel/canary", "/abs/canary", "/absfile", "/deep/canary",
	"/dir/up", "/dir/sub/up/canary", "/dir/../../outside/canary", "/root/../outside/canary", "/root/root/rel/canary",
	"/loop", "/loop1/x", "//../outside/canary", "/./.././outside/canary", "/dir/./../rel/canary", "/proc/etc/passwd",
	"/rel/../../outside/canary", "/abs", "/rel", "/dir/sub/up",
}

func TestNothingLeavesTheRoot(t *testing.T) {
	tr, base := tree(t)
	for _, p := range traversals {
		if f, _, err := tr.Open(p, false); err == nil {
			b, _ := io.ReadAll(f)
			f.Close()
			t.Errorf("open %s: %q", p, b)
		}
		if list, err := tr.List(p, 3, 100, false); err == nil {
			for _, e := range list {
				if strings.HasSuffix(e.Path, "/canary") {
					t.Errorf("list %s: %s", p, e.Path)
				}
			}
		}
		if f, _, err := tr.Create(p+"-new", 0); err == nil {
			f.Close()
		}
		tr.Mkdir(p + "-dir")
		tr.Move("/file", p+"-moved")
		tr.Move(p+"-moved", "/file")
		tr.Remove(p + "/canary")
		tr.Remove(p)
	}
	left, err := os.ReadDir(filepath.Join(base, "outside"))
	if err != nil || len(left) != 1 || left[0].Name() != "canary" {
		t.Errorf("outside: %v %v", left, err)
	}
	if b, err := os.ReadFile(filepath.Join(base, "outside/canary")); err != nil || string(b) != "CANARY" {
		t.Errorf("canary: %q %v", b, err)
	}
	if left, _ := os.ReadDir(base); len(left) != 2 {
		t.Errorf("beside the root: %v", left)
	}
}

func TestLinksInsideWork(t *testing.T) {
	tr, _ := tree(t)
	for p, want := range map[string]string{"/good": "dirfile", "/goodabs": "dirfile", "/gooddir/file": "dirfile", "/root/root/file": "file", "/dir/sub/../file": "dirfile", "/dir/../file": "file"} {
		f, _, err := tr.Open(p, false)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if b, _ := io.ReadAll(f); string(b) != want {
			t.Errorf("%s: %q", p, b)
		}
		f.Close()
		if _, _, err := tr.Open(p, true); (err == nil) != !strings.Contains(p, "good") && !strings.Contains(p, "root") {
			t.Errorf("strict %s: %v", p, err)
		}
	}
	info, err := tr.Stat("/goodabs", false)
	if err != nil || info.Kind != File || info.Link != "/dir/file" || info.Mode&os.ModeSymlink == 0 {
		t.Errorf("%+v %v", info, err)
	}
	info, err = tr.Stat("/dangling", false)
	if err != nil || info.Kind != Broken || info.Link == "" {
		t.Errorf("%+v %v", info, err)
	}
	if _, err := tr.Stat("/good", true); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("strict: %v", err)
	}
	if info, err := tr.Stat("/", false); err != nil || info.Kind != Dir {
		t.Errorf("%+v %v", info, err)
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	tr, base := tree(t)
	if err := unix.Mkfifo(filepath.Join(base, "root/fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/fifo", "/dir", "/"} {
		if f, _, err := tr.Open(p, false); err == nil {
			f.Close()
			t.Errorf("opened %s", p)
		}
		if f, _, err := tr.Create(p, 0); err == nil {
			f.Close()
			t.Errorf("created %s", p)
		}
	}
}

func TestRemoveTree(t *testing.T) {
	tr, base := tree(t)
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(base, "root/dir/sub", fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Remove("/dir"); err != nil {
		t.Fatal(err)
	}
	if err := tr.Remove("/dir"); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := tr.Remove("/abs"); err != nil { // the link, not what it names
		t.Error(err)
	}
	if err := tr.Remove("/"); err == nil {
		t.Error("removed the root")
	}
	if _, err := os.Stat(filepath.Join(base, "outside/canary")); err != nil {
		t.Error(err)
	}
}

func TestListCaps(t *testing.T) {
	tr, _ := tree(t)
	if _, err := tr.List("/", 2, 3, false); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("got %v", err)
	}
	list, err := tr.List("/gooddir", 5, 100, false)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Path)
	}
	if got := strings.Join(names, " "); got != "/gooddir/file /gooddir/sub /gooddir/sub/up /gooddir/up" {
		t.Errorf("got %s", got)
	}
}

// User code that swaps a directory for a link while it is being walked does not lead the walk outside.
func TestSwapRace(t *testing.T) {
	tr, base := tree(t)
	root := filepath.Join(base, "root")
	os.MkdirAll(filepath.Join(root, "real"), 0o755)
	os.WriteFile(filepath.Join(root, "real/canary"), []byte("inside"), 0o644)
	os.Symlink("real", filepath.Join(root, "swap"))
	os.Symlink(filepath.Join(base, "outside"), filepath.Join(root, "evil"))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, "real"), unix.AT_FDCWD, filepath.Join(root, "evil"), unix.RENAME_EXCHANGE)
			}
		}
	})
	defer swapping.Wait()
	defer close(stop)
	for range 5000 {
		for _, p := range []string{"/real/canary", "/swap/canary"} {
			f, _, err := tr.Open(p, false)
			if err != nil {
				continue
			}
			b, _ := io.ReadAll(f)
			f.Close()
			if string(b) != "inside" {
				t.Fatalf("%s: %q", p, b)
			}
		}
		if f, _, err := tr.Create("/real/new", 0); err == nil {
			f.Close()
		}
	}
	if left, _ := os.ReadDir(filepath.Join(base, "outside")); len(left) != 1 {
		t.Errorf("outside: %v", left)
	}
}

// Descriptors are given back on every path.
func TestNoDescriptorLeaks(t *testing.T) {
	tr, _ := tree(t)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	before := count()
	for range 20 {
		for _, p := range append(traversals, "/good", "/gooddir", "/dir/sub", "/none/x", "/file/x") {
			tr.Stat(p, false)
			tr.Stat(p, true)
			tr.List(p, 3, 100, false)
			tr.Mkdir(p)
			tr.Move(p, "/none/y")
			if f, _, err := tr.Open(p, false); err == nil {
				f.Close()
			}
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func FuzzResolve(f *testing.F) {
	for _, p := range traversals {
		f.Add(p, p)
	}
	tr, base := tree(f)
	root := filepath.Join(base, "root")
	f.Fuzz(func(t *testing.T, link, p string) {
		if len(link) > 0 && len(link) < 4000 && !strings.ContainsRune(link, 0) {
			os.Remove(filepath.Join(root, "fuzz"))
			os.Symlink(link, filepath.Join(root, "fuzz"))
		}
		for _, p := range []string{p, "/fuzz", "/fuzz/" + p, "/" + p} {
			file, _, err := tr.Open(p, false)
			if err != nil {
				continue
			}
			b, _ := io.ReadAll(io.LimitReader(file, 100))
			file.Close()
			if s := string(b); s != "file" && s != "dirfile" {
				t.Fatalf("link %q, path %q: read %q", link, p, s)
			}
		}
	})
}
