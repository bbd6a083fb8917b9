//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

// command is the program as a process of its own.
func command(t testing.TB, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=program", "HOME=/nonexistent")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = "/"
	cmd.WaitDelay = 30 * time.Second
	return cmd, &out
}

// kill -9 in the middle of an unpacking: nothing is visible, the child ends too, and the next call clears up.
func TestKilled(t *testing.T) {
	reached, release := make(chan struct{}, 100), make(chan struct{})
	host := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.UserAgent(), "rung-image") && strings.Contains(r.URL.Path, "/blobs/") {
				reached <- struct{}{}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			h.ServeHTTP(w, r)
		})
	})
	p := newProgram(t)
	ref := host + "/app:1"
	push(t, ref, small(t, "1"))
	cmd, out := command(t, "--state-dir", p.state, "import", ref)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Wait returns when the last holder of its standard error is gone: the child, too.
	if err := cmd.Wait(); err == nil || strings.Contains(err.Error(), "WaitDelay") {
		t.Fatalf("after the kill: %v %s", err, out)
	}
	entries, err := filepath.Glob(filepath.Join(p.state, "templates", ".new-*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("expected what the kill left: %v, %v", entries, err)
	}
	store := image.Open(p.state)
	if _, err := store.Get(t.Context(), "app-1"); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("half a template is visible: %v", err)
	}
	close(release)
	p.must("import", ref)
	p.clean()
	checkSmall(t, p.get("app-1"), "1")
}

// An ordinary user can import too; what that costs is in the notes.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("all other tests run as an ordinary user already")
	}
	const nobody = 65534
	p := newProgram(t)
	for _, dir := range []string{p.state, filepath.Dir(p.state)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(p.state, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	ref := serve(t, nil) + "/app:1"
	push(t, ref, small(t, "1"))
	cmd, out := command(t, "--state-dir", p.state, "import", ref)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "1 files belong to you") {
		t.Errorf("notes: %s", out)
	}
	tpl := p.get("app-1")
	if tpl.OwnerBase != 0 || owner(t, filepath.Join(tpl.Root, "srv/app.py")) != nobody {
		t.Errorf("%+v", tpl)
	}
	p.clean()
}

// probe stands where the child stands, confined as it is, tries what an exploited decoder would, and prints what worked.
func probe(paths []string) int {
	if locked, err := confine(); err != nil || !locked {
		fmt.Println("confine:", locked, err)
	}
	for _, path := range paths {
		if f, err := os.Open(path); err == nil {
			fmt.Println("read", path, f.Close())
		}
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			fmt.Println("wrote", path, f.Close())
		}
		if err := os.Symlink("x", filepath.Join(filepath.Dir(path), "planted")); err == nil {
			fmt.Println("planted beside", path)
		}
	}
	for name, f := range map[string]func() error{
		"signal the parent": func() error { return syscall.Kill(os.Getppid(), 0) },
		"mount":             func() error { return syscall.Mount("none", "/mnt", "tmpfs", 0, "") },
		"chroot":            func() error { return syscall.Chroot("/root") },
		"dial": func() error {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+os.Getenv("PORT"), time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		},
	} {
		if err := f(); err == nil {
			fmt.Println(name)
		}
	}
	return 0
}

// What the child of root can do to the host: nothing.
func TestChildIsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an ordinary user's child is that user")
	}
	base := t.TempDir()
	for _, dir := range []string{base, filepath.Dir(base)} {
		if err := os.Chmod(dir, 0o777); err != nil { // what protects is the child's confinement, not the way there
			t.Fatal(err)
		}
	}
	open, secret := filepath.Join(base, "open"), filepath.Join(base, "secret")
	writeFile(t, open, []byte("x"))
	writeFile(t, secret, []byte("x"))
	if err := errors.Join(os.Chmod(open, 0o666), os.Chmod(secret, 0o600), os.Mkdir(filepath.Join(base, "root"), 0o777)); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(filepath.Join(base, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cmd, out := command(t, open, secret, "/etc/shadow", "/tmp/x", "/proc/1/environ", "/root/.profile")
	port := serve(t, nil)
	cmd.Env = append(cmd.Env, asProgram+"=probe", "PORT="+port[strings.LastIndex(port, ":")+1:])
	cmd.ExtraFiles = []*os.File{root, root}
	cmd.SysProcAttr = childAttr(job{Mode: fromArchive, Owners: true})
	if err := runHere(cmd); err != nil {
		t.Fatal(err, out)
	}
	if out.Len() > 0 {
		t.Errorf("the child could:\n%s", out)
	}
}

// The whole way from the host's mirrors to a template.
func TestBuildPython(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root or a range in /etc/subuid: mmdebstrap")
	}
	if testing.Short() {
		t.Skip("-short: takes a minute and Debian's mirror")
	}
	p := newProgram(t)
	p.must("build", "python")
	tpl := p.get("python")
	for _, name := range []string{"usr/bin/python3", "usr/bin/pip3", "work", ".rung/guest", "etc/ssl/certs/ca-certificates.crt"} {
		if _, err := os.Lstat(filepath.Join(tpl.Root, name)); err != nil {
			t.Error(err)
		}
	}
	if tpl.Kind != image.Debian || tpl.OwnerBase != image.OwnerBase || owner(t, tpl.Root) != image.OwnerBase {
		t.Errorf("%+v", tpl)
	}
	in, err := image.Open(p.state).Inspect(t.Context(), "python")
	if err != nil || len(in.Packages) < 50 {
		t.Errorf("%d packages, %v", len(in.Packages), err)
	}
	names, err := filepath.Glob(filepath.Join(p.state, "templates/python/*"))
	if err != nil || len(names) != 4 {
		t.Errorf("besides lock, packages, rootfs and template.json: %v, %v", names, err)
	}
	if out := p.must("build", "python"); !strings.Contains(out, "already up to date") {
		t.Errorf("second build: %s", out)
	}
	p.clean()
}

// A mirror that cannot be reached is an error with mmdebstrap's own words, and nothing is left.
func TestBuildWithoutMirror(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root or a range in /etc/subuid: mmdebstrap")
	}
	p := newProgram(t)
	store := image.Open(p.state)
	b, err := store.Begin(t.Context(), "python")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	a := &app{store: store, stderr: os.Stderr, quiet: true}
	source := "Types: deb\nURIs: http://127.0.0.1:9/debian\nSuites: bookworm\nComponents: main\nTrusted: yes\n"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err = a.bootstrap(ctx, b, bootstrap{Release: "bookworm", Packages: []string{"python3"}, Sources: []string{source}},
		job{Mode: fromTree, Reference: "debian/bookworm/python", Variant: "python"})
	if rung.KindOf(err) != rung.KindUnavailable || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("got %v", err)
	}
	b.Abort()
	p.clean()
}
