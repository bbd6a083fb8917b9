//go:build linux

// Package hostile attacks every rung from inside, with the control on `none`: an attack that does not get through there
// proves nothing about a wall and is skipped with the reason. The attacker is the program probe, which says what each
// attack may and may not do. Beside it, programs that take rung-guest's place attack the host's side of the protocol, and
// the fault test kills what can be killed at any moment.
package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/drivertest"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/driver/oci"
	"github.com/rung-dev/rung/driver/process"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/sys/holder"
)

// dirEnv is the folder with this run's programs and state, kept when the test program is executed again.
const dirEnv = "RUNG_HOSTILE_DIR"

func TestMain(m *testing.M) {
	if holder.Called() {
		holder.Main(map[string]holder.Build{oci.Kind: oci.Hold, process.Kind: process.Hold, process.KindNone: process.HoldNone})
	}
	os.Exit(stage(m))
}

// stage builds the programs once for all tests.
func stage(m *testing.M) int {
	if os.Getenv(dirEnv) != "" {
		return m.Run()
	}
	if bin, err := filepath.Abs("../../bin"); err == nil { // where make puts runsc
		os.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	}
	dir, err := os.MkdirTemp("", "rung-h-") // short: socket paths have little room
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	defer os.RemoveAll(dir)
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_GETPID, 0, 0, 0); errno == syscall.ENOTSUP && err == nil {
		return withoutCgo(dir)
	}
	if err == nil {
		err = build(dir, "../../cmd/rung", "../../cmd/rung-guest", "./probe", "./evil")
	}
	if err != nil {
		os.Stderr.WriteString("hostile: " + err.Error() + "\n")
		return 1
	}
	os.Setenv(dirEnv, dir)
	return m.Run()
}

// withoutCgo runs these tests in a program without C, as rung is one: with C a holder cannot change all its threads.
func withoutCgo(dir string) int {
	test := filepath.Join(dir, "hostile.test")
	cmd := exec.Command("go", "test", "-c", "-o", test, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		os.Stderr.WriteString("hostile: " + err.Error() + "\n")
		return 1
	}
	cmd = exec.Command(test, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

func build(dir string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", dir + "/"}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func place(name string) string { return filepath.Join(os.Getenv(dirEnv), name) }

func host() held.Host {
	return held.Host{StateDir: place("state"), RuntimeDir: place("run"), Guest: place("rung-guest")}
}

// walls are the rungs under attack, the control first.
func walls() []rung.Rung {
	return []rung.Rung{rung.None, rung.Process, rung.Container, rung.Hardened, rung.GVisor}
}

func driverOf(r rung.Rung, h held.Host) driver.Driver {
	switch r {
	case rung.None, rung.Process:
		return process.New(r, h)
	default:
		return oci.New(r, h, oci.ForRung(r))
	}
}

// bound is how long any one call may take on a slow machine.
const bound = 60 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// template is the host's own, as `rung run` uses it.
func template(t *testing.T) driver.Template {
	t.Helper()
	if err := os.MkdirAll(host().StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	tmpl, release, err := image.Open(host().StateDir).Use(context.Background(), "host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return held.Template(tmpl)
}

func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "hostile-" + hex.EncodeToString(b[:])
}

// box is one live sandbox with the probe in it.
type box struct {
	driver.Instance
	id    string
	rung  rung.Rung
	guest *client.Guest
	dirs  []string // that may be written to inside; the first is the working directory
}

// spec is what every sandbox here starts from.
func spec(t *testing.T) driver.Spec {
	limits := rung.DefaultLimits()
	limits.Best = os.Getuid() != 0 // an ordinary user has no delegated control groups
	return driver.Spec{ID: newID(), Template: template(t), Limits: limits, Owned: true, WallClock: 5 * time.Minute}
}

// attacked makes a sandbox; it is destroyed at the test's end, and nothing may be left then.
func attacked(t *testing.T, r rung.Rung, change ...func(*driver.Spec)) *box {
	t.Helper()
	d := driverOf(r, host())
	if _, err := d.Check(within(t)); err != nil {
		t.Skipf("this host cannot: %v", err)
	}
	s := spec(t)
	for _, f := range change {
		f(&s)
	}
	in, err := d.Create(within(t), s)
	if err != nil {
		t.Fatalf("Create: %v (hint: %s)", err, rung.HintOf(err))
	}
	b := &box{Instance: in, id: s.ID, rung: r, guest: client.New(in.Dial), dirs: []string{"/work", "/home/user"}}
	t.Cleanup(func() {
		if err := in.Destroy(within(t)); err != nil {
			t.Errorf("Destroy: %v", err)
		}
		nothingLeft(t, s.ID)
	})
	switch r {
	case rung.Container:
		b.dirs[1] = "/root"
	case rung.None:
		b.dirs = []string{in.Handle().Dir, place("")}
	}
	b.install(t)
	return b
}

func (b *box) probe() string { return b.dirs[0] + "/probe" }

func (b *box) install(t *testing.T) {
	t.Helper()
	f, err := os.Open(place("probe"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := b.guest.Files("").Create(within(t), b.probe(), f, 0o755); err != nil {
		t.Fatalf("copy the probe in: %v", err)
	}
}

// run runs a command inside to its end.
func (b *box) run(t *testing.T, args ...string) (string, client.Exit, error) {
	t.Helper()
	ctx := within(t)
	p, err := b.guest.Start(ctx, client.Cmd{Path: args[0], Args: args[1:], Dir: b.dirs[0]})
	if err != nil {
		return "", client.Exit{}, err
	}
	var out bytes.Buffer
	exit, err := p.Wait(&out, io.Discard)
	return out.String(), exit, err
}

// alive checks that the guest still answers and starts programs, whatever was done to it.
func (b *box) alive(t *testing.T) {
	t.Helper()
	out, exit, err := b.run(t, "/bin/echo", "alive")
	if err != nil || exit.Code != 0 || out != "alive\n" {
		t.Errorf("the guest does not start programs any more: %q, %+v, %v", out, exit, err)
	}
}

// nothingLeft polls, as kernels free some things a moment after their last user is gone.
func nothingLeft(t *testing.T, id string) {
	t.Helper()
	h := host()
	list := drivertest.HostLeftovers(h.RuntimeDir, "/run/crun", "/run/runc")
	var left []string
	if !eventually(3*time.Second, func() bool { left = list(id); return len(left) == 0 }) {
		t.Errorf("left behind by %s:\n  %s", id, strings.Join(left, "\n  "))
	}
}

// eventually asks until ok or the time is up; polling is for things that nobody announces.
func eventually(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}

// command is `rung run` over this test's directories, as somebody types it.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(place("rung"), append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "RUNG_STATE_DIR="+host().StateDir, "RUNG_RUNTIME_DIR="+host().RuntimeDir)
	cmd.Dir = os.Getenv(dirEnv)
	return cmd
}

// pinned are the flags that run on r whatever the threat's list says.
func pinned(r rung.Rung, more ...string) []string {
	list := []string{"--rung", string(r), "--accept-lower", string(r)}
	if os.Getuid() != 0 {
		list = append(list, "--best-effort-limits")
	}
	return append(list, more...)
}

// recorded runs `rung run --json` and returns its record.
func recorded(t *testing.T, r rung.Rung, args ...string) *rung.Record {
	t.Helper()
	cmd := command(append(pinned(r, "--json"), args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	rec := &rung.Record{}
	if json.Unmarshal(out.Bytes(), rec) != nil {
		t.Fatalf("no record: %v: %s%s", err, out.Bytes(), errs.Bytes())
	}
	return rec
}

// hostProcesses are the processes of a sandbox's control group, as the host sees them.
func hostProcesses(id string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a well-formed pattern
	for _, dir := range dirs {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(raw), id) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// holderOf finds the holder of a sandbox by the lock file it has open; 0 when there is none.
func holderOf(id string) int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a well-formed pattern
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.HasPrefix(string(name), holder.Name) {
			continue
		}
		fds, _ := filepath.Glob(dir + "/fd/*") // a well-formed pattern
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasSuffix(to, "/"+id+"/lock") {
				pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern has let only digits begin
				return pid
			}
		}
	}
	return 0
}

// status reads one number of /proc/<pid>/status.
func status(pid int, key string) (n int64) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // 0 for what went away
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			_, _ = fmt.Sscan(v, &n) // 0 for what is no number
		}
	}
	return n
}
