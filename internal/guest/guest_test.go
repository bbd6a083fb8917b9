//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/internal/guest"
	"github.com/rung-dev/rung/internal/guest/ident"
)

// program is rung-guest, built once.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rung-guest-test")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		os.Chmod(dir, 0o755) // the user runs it too, to measure
		program = filepath.Join(dir, "rung-guest")
		build := exec.Command("go", "build", "-o", program, "github.com/rung-dev/rung/cmd/rung-guest")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		return m.Run()
	}())
}

// The user of the tests. As root it is another one than the guest's, as anybody else it is the caller.
func testUser(t *testing.T) ident.User {
	t.Helper()
	home := t.TempDir()
	u := ident.User{Name: "tester", UID: os.Geteuid(), GID: os.Getegid(), Home: home}
	if os.Geteuid() == 0 {
		u.UID, u.GID = 31000, 31000
		for dir := home; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
			os.Chmod(dir, 0o755)
		}
		os.Chown(home, u.UID, u.GID)
	}
	return u
}

// extra is what the next guest inherits.
var extra []*os.File

// running is one rung-guest of a test, an ordinary child that listens on a socket.
type running struct {
	*client.Guest
	cmd    *exec.Cmd
	socket string
	user   ident.User
	stderr *bytes.Buffer
}

func start(t *testing.T, change func(*guest.Config)) *running {
	t.Helper()
	u := testUser(t)
	dir := t.TempDir()
	cfg := &guest.Config{Listen: filepath.Join(dir, "s"), User: u, Env: []string{"RUNG_TEST=1"}}
	if change != nil {
		change(cfg)
	}
	arg, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{cmd: exec.Command(program, "serve", string(arg)), socket: cfg.Listen, user: u, stderr: &bytes.Buffer{}}
	r.cmd.Stderr = r.stderr
	r.cmd.ExtraFiles = extra
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		if t.Failed() {
			t.Logf("guest: %s", r.stderr)
		}
	})
	r.Guest = client.New(r.dial)
	waitFor(t, "the guest's socket", func() bool {
		conn, err := net.Dial("unix", r.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return r
}

func (r *running) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(5 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not in 5 s", what)
		}
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return c
}

// run runs a shell command to its end.
func (r *running) run(t *testing.T, script string) (stdout, stderr string, exit client.Exit) {
	t.Helper()
	p, err := r.Start(ctx(t), client.Cmd{Path: "sh", Args: []string{"-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return finish(t, p)
}

func finish(t *testing.T, p *client.Process) (stdout, stderr string, exit client.Exit) {
	t.Helper()
	var out, errs bytes.Buffer
	exit, err := p.Wait(&out, &errs)
	if err != nil {
		t.Fatalf("wait: %v (stdout %.300q, stderr %.300q)", err, out.String(), errs.String())
	}
	return out.String(), errs.String(), exit
}

// gone reports whether no such process exists; one that waits to be collected by a test's own parent does not count.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) == syscall.ESRCH
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the guest and the user must have different uids")
	}
}
