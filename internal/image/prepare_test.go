//go:build unix

package image

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

// treeOf makes a tree from "path" -> content; a content that starts with "->" is a link, one that is "/" a directory.
func treeOf(t *testing.T, files map[string]string) (dir string, root *os.Root) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "root")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(text, "->"); ok && err == nil {
			err = os.Symlink(target, path)
		} else if text == "/" && err == nil {
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return dir, root
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func TestPrepareEmpty(t *testing.T) {
	dir, root := treeOf(t, nil)
	notes, err := Prepare(root)
	if err != nil || len(notes) != 0 {
		t.Fatal(notes, err)
	}
	for _, d := range mountDirs() {
		info, err := os.Lstat(filepath.Join(dir, d.path))
		if err != nil || info.Mode() != d.mode|os.ModeDir {
			t.Errorf("%s: %v, %v", d.path, info.Mode(), err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, guestFile)); err != nil || info.Mode() != 0o555 || info.Size() != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	want := "root:x:0:0:root:/root:/bin/sh\nrung:x:990:990:rung-guest:/:/usr/sbin/nologin\nuser:x:1000:1000:user:/home/user:/bin/sh\n"
	if got := readAll(t, filepath.Join(dir, "etc/passwd")); got != want {
		t.Error(cmp.Diff(want, got))
	}
	again, err := Prepare(root) // a tree that is prepared stays as it is
	if err != nil || len(again) != 1 || readAll(t, filepath.Join(dir, "etc/passwd")) != want {
		t.Errorf("twice: %q, %v", again, err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	for _, name := range []string{"proc", "sys", "dev", "etc"} {
		for _, what := range []string{"->/", "->work", "->nowhere", "->../../..", "file"} {
			_, root := treeOf(t, map[string]string{name: what, "work": "/"})
			if _, err := Prepare(root); rung.KindOf(err) != rung.KindRefused {
				t.Errorf("%s %q: %v", name, what, err)
			}
		}
	}
}

func TestPrepareReplaces(t *testing.T) {
	dir, root := treeOf(t, map[string]string{
		"outside": "/", "tmp": "->/outside", "home": "->../..", "work": "file", "run": "->/run", "var": "->outside", "root": "->home",
		".rung/guest/evil": "x", "etc/ssl": "->../../../outside", "etc/hosts": "->/etc/shadow", "etc/passwd": "->../../../../etc/passwd",
		"etc/group": "->/etc/group", "etc/resolv.conf": "->../run/resolv.conf", "etc/pki/tls": "->/outside", "usr/bin/bash": "x", "bin": "->usr/bin",
	})
	beside := filepath.Join(filepath.Dir(dir), "beside")
	if err := os.Mkdir(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	notes, err := Prepare(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(notes) < 8 {
		t.Errorf("notes: %q", notes)
	}
	for _, d := range append(mountDirs(), mountDir{"/etc/ssl/certs", 0o755}, mountDir{"/etc/pki/tls/certs", 0o755}) {
		if info, err := os.Lstat(filepath.Join(dir, d.path)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", d.path, info, err)
		}
	}
	for _, f := range []string{"etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", guestFile, CAInside} {
		if info, err := os.Lstat(filepath.Join(dir, f)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	if got := readAll(t, filepath.Join(dir, "etc/passwd")); strings.Count(got, "\n") != 3 || !strings.Contains(got, "/bin/bash") {
		t.Errorf("passwd: %s", got) // a link out of the tree was read
	}
	for _, d := range []string{beside, filepath.Join(dir, "outside")} {
		if entries, err := os.ReadDir(d); err != nil || len(entries) != 0 {
			t.Errorf("written in %s: %v, %v", d, entries, err)
		}
	}
}

// A FIFO in place of a file that is read must not stop the reader.
func TestPrepareFIFO(t *testing.T) {
	dir, root := treeOf(t, map[string]string{"etc": "/"})
	for _, name := range []string{"etc/passwd", "etc/group"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Prepare(root); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareKeepsTheImagesBundle(t *testing.T) {
	dir, root := treeOf(t, map[string]string{ // as on Fedora
		"etc/ssl/certs":                                    "->../pki/tls/certs",
		"etc/pki/tls/certs/ca-bundle.crt":                  "->../../ca-trust/extracted/pem/tls-ca-bundle.pem",
		"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": "own",
	})
	if _, err := Prepare(root); err != nil {
		t.Fatal(err)
	}
	for _, place := range caPlaces() {
		data, err := root.ReadFile(strings.TrimPrefix(CAInside, "/"))
		if err != nil || string(data) != "own" {
			t.Errorf("%s: %q, %v", place, data, err)
		}
		target, err := os.Readlink(filepath.Join(dir, place))
		if place != CAInside && (err != nil || target != CAInside) {
			t.Errorf("%s: %q, %v", place, target, err)
		}
	}
}

func TestMergeAccounts(t *testing.T) {
	ours := []account{{"rung", 990, "RUNG"}, {"user", 1000, "USER"}}
	root := account{"root", 0, "ROOT"}
	for in, c := range map[string]struct {
		want  string
		notes int
	}{
		"":                                 {"ROOT\nRUNG\nUSER\n", 0},
		"daemon:x:1:1\nroot:x:0:0:r:/r:/s": {"root:x:0:0:r:/r:/s\nRUNG\nUSER\ndaemon:x:1:1\n", 0},
		"node:x:1000:1000::/home/node:/x":  {"ROOT\nRUNG\nUSER\nnode:x:1000:1000::/home/node:/x\n", 1},
		"user:x:5:5::/:/x":                 {"ROOT\nRUNG\nUSER\nuser:x:5:5::/:/x\n", 1},
		"user:x:1000:1000::/:/x":           {"ROOT\nRUNG\nUSER\n", 0},
		"toor:x:0:0\nroot:x:0:0":           {"toor:x:0:0\nRUNG\nUSER\nroot:x:0:0\n", 0},
		"garbage\n:::\nx:y:z\r\n":          {"ROOT\nRUNG\nUSER\n:::\nx:y:z\n", 0},
	} {
		got, notes := mergeAccounts("passwd", in, root, ours)
		if got != c.want || len(notes) != c.notes {
			t.Errorf("%q: %q, %q", in, got, notes)
		}
	}
}

func FuzzPrepareAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/bash\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, _ := mergeAccounts("passwd", text, account{"root", 0, "root:x:0:0"}, []account{{"rung", 990, "rung:x:990:990"}, {"user", 1000, "user:x:1000:1000"}})
		first := map[int]string{}
		for _, a := range parseAccounts(got) {
			if _, ok := first[a.id]; !ok {
				first[a.id] = a.name
			}
		}
		if first[990] != "rung" || first[1000] != "user" {
			t.Errorf("%q gave %q", text, got)
		}
	})
}
