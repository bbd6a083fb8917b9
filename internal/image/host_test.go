//go:build unix

package image

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// madeUpHost writes a host with one secret in every place that must not be shown.
func madeUpHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"/usr/bin/python3":                   "#!",
		"/usr/lib/os-release":                "ID=debian",
		"/usr/local/etc/npmrc":               "SECRET token",
		"/etc/ssl/certs/ca-certificates.crt": "bundle 1",
		"/etc/ssl/private/key.pem":           "SECRET",
		"/etc/shadow":                        "SECRET",
		"/etc/passwd":                        "SECRET account",
		"/etc/hosts":                         "SECRET host",
		"/etc/resolv.conf":                   "SECRET resolver",
		"/etc/pip.conf":                      "SECRET index",
		"/etc/machine-id":                    "SECRET id",
		"/etc/ssh/ssh_host_key":              "SECRET",
		"/etc/ld.so.cache":                   "cache",
		"/etc/python3/debian_config":         "config",
		"/etc/python3/private":               "SECRET not world-readable",
		"/etc/java-17-openjdk/net.conf":      "config",
		"/etc/services":                      "http 80/tcp",
		"/home/me/.ssh/id":                   "SECRET",
		"/root/.bashrc":                      "SECRET",
		"/var/lib/dpkg/status":               "Package: a",
		"/lib32/x":                           "old layout",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	chmod(t, filepath.Join(root, "/etc/python3/private"), 0o750)
	for path, target := range map[string]string{
		"/bin": "usr/bin", "/lib": "usr/lib",
		"/etc/python3/link": "../shadow",
	} {
		if err := os.Symlink(target, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "/etc/python3/fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	return root
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func openHost(t *testing.T, root string) *Store {
	s := Open(t.TempDir())
	s.src = newHostSource(root)
	return s
}

func TestHostShowsNoSecret(t *testing.T) {
	root := madeUpHost(t)
	tpl, err := openHost(t, root).Get(t.Context(), HostName)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(tpl.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0, path == filepath.Join(tpl.Root, "/tmp"):
		case info.IsDir():
			if info.Mode().Perm() != 0o755 {
				t.Errorf("%s: mode %v", path, info.Mode())
			}
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o444 != 0o444 || info.Mode().Perm()&0o222 != 0o200 && info.Size() > 0:
			t.Errorf("%s: mode %v", path, info.Mode())
		default:
			data, err := os.ReadFile(path)
			if err != nil || strings.Contains(string(data), "SECRET") {
				t.Errorf("%s: %v %s", path, err, data)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"bin": "usr/bin", "lib": "usr/lib", "etc/ssl/cert.pem": "certs/ca-certificates.crt",
		"etc/pki/tls/certs/ca-bundle.crt": "/etc/ssl/certs/ca-certificates.crt",
	} {
		if got, err := os.Readlink(filepath.Join(tpl.Root, path)); err != nil || got != want {
			t.Errorf("%s: link to %q, %v", path, got, err)
		}
	}
	empty := filepath.Join(filepath.Dir(tpl.Root), "empty")
	want := []Bind{{root + "/usr", "/usr"}, {root + "/lib32", "/lib32"}, {empty, "/usr/local/etc"}}
	if !slices.Equal(tpl.Binds, want) {
		t.Errorf("binds %v", tpl.Binds)
	}
	if len(tpl.Notes) != 2 { // no node, no bash
		t.Errorf("notes: %q", tpl.Notes)
	}
}

func TestHostFollowsTheHost(t *testing.T) {
	root := madeUpHost(t)
	s := openHost(t, root)
	first, err := s.Get(t.Context(), HostName)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Get(t.Context(), HostName)
	if err != nil || again.Created != first.Created {
		t.Fatalf("made again without a reason: %v", err)
	}
	changes := map[string]func(path string) error{
		"/etc/ssl/certs/ca-certificates.crt": func(p string) error { return os.WriteFile(p, []byte("bundle 2, longer"), 0o644) },
		"/var/lib/dpkg/status":               func(p string) error { return os.Chtimes(p, time.Now(), time.Now().Add(time.Hour)) },
		"/lib64":                             func(p string) error { return os.Symlink("usr/lib64", p) },
	}
	for path, change := range changes {
		if err := change(filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
		next, err := s.Get(t.Context(), HostName)
		if err != nil || next.Created == first.Created {
			t.Errorf("%s changed and the template did not: %v", path, err)
		}
		first = next
	}
	data, err := os.ReadFile(filepath.Join(first.Root, CAInside))
	if err != nil || string(data) != "bundle 2, longer" {
		t.Errorf("bundle inside: %q, %v", data, err)
	}
}

func TestHostIsMadeOnce(t *testing.T) {
	s := openHost(t, madeUpHost(t))
	var wg sync.WaitGroup
	created := make([]time.Time, 16)
	for i := range created {
		wg.Go(func() {
			tpl, release, err := s.Use(t.Context(), HostName)
			if err != nil {
				t.Errorf("use: %v", err)
				return
			}
			defer release()
			created[i] = tpl.Created
		})
	}
	wg.Wait()
	for _, c := range created {
		if c != created[0] {
			t.Fatalf("made more than once: %v", created)
		}
	}
}

func TestHostRepairsItself(t *testing.T) {
	s := openHost(t, madeUpHost(t))
	tpl, err := s.Get(t.Context(), HostName)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"template.json", "lock"} {
		if err := os.Remove(filepath.Join(filepath.Dir(tpl.Root), name)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), HostName); err != nil {
			t.Fatalf("after the loss of %s: %v", name, err)
		}
	}
	if err := s.Remove(t.Context(), HostName); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), HostName); err != nil {
		t.Fatal(err)
	}
}

func TestRealHost(t *testing.T) {
	tpl, err := Open(t.TempDir()).Get(t.Context(), HostName)
	if err != nil {
		t.Fatal(err)
	}
	if len(tpl.Binds) == 0 || tpl.Binds[0].Target != "/usr" || tpl.OwnerBase != 0 {
		t.Errorf("%+v", tpl)
	}
}

func BenchmarkUseHost(b *testing.B) {
	s := Open(b.TempDir())
	for b.Loop() {
		_, release, err := s.Use(b.Context(), HostName)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func BenchmarkMakeHost(b *testing.B) {
	s := Open(b.TempDir())
	for b.Loop() {
		if err := s.Remove(b.Context(), HostName); err != nil && !strings.Contains(err.Error(), "no template") {
			b.Fatal(err)
		}
		if _, err := s.Get(b.Context(), HostName); err != nil {
			b.Fatal(err)
		}
	}
}
