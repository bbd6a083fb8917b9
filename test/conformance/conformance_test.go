//go:build linux

// Package conformance runs the driver contract's suite against every driver of a real wall, as root and, where root runs
// it, as an ordinary user too. The fake runs it in its own package.
package conformance

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/drivertest"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/driver/oci"
	"github.com/rung-dev/rung/driver/process"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/test/ordinary"
)

const (
	// dirEnv is the folder with this run's state, kept when the test program is executed again.
	dirEnv = "RUNG_CONFORMANCE_DIR"
	// userEnv names the ordinary user that the suite is run as by root.
	userEnv = "RUNG_TEST_USER"
)

func TestMain(m *testing.M) {
	if holder.Called() {
		holder.Main(map[string]holder.Build{oci.Kind: oci.Hold, process.Kind: process.Hold, process.KindNone: process.HoldNone})
	}
	_ = unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC) // as rung's own main does
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(dirEnv) != "" {
		return m.Run()
	}
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_GETPID, 0, 0, 0); errno == syscall.ENOTSUP {
		os.Stderr.WriteString("conformance: with cgo a holder cannot change all its threads: use CGO_ENABLED=0, as make test does\n")
		return 1
	}
	dir, err := os.MkdirTemp("", "rung-c-") // short: socket paths have little room
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = buildGuest(filepath.Join(dir, "rung-guest"))
	}
	if err != nil {
		os.Stderr.WriteString("conformance: " + err.Error() + "\n")
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv(dirEnv, dir)
	return m.Run()
}

func buildGuest(to string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", to, "../../cmd/rung-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func host() held.Host {
	dir := os.Getenv(dirEnv)
	return held.Host{
		StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"), Guest: filepath.Join(dir, "rung-guest"),
	}
}

// template is the host's own, as `rung run` uses it.
func template(t *testing.T) driver.Template {
	t.Helper()
	h := host()
	if err := os.MkdirAll(h.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	tmpl, release, err := image.Open(h.StateDir).Use(context.Background(), "host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return held.Template(tmpl)
}

// config is what all walls have in common.
func config(make func(held.Host) driver.Driver) drivertest.Config {
	h := host()
	return drivertest.Config{
		New:       func(*testing.T) driver.Driver { return make(h) },
		Template:  template,
		Limits:    rung.Limits{Best: os.Getuid() != 0}, // an ordinary user has no delegated control groups
		Leftovers: drivertest.HostLeftovers(h.RuntimeDir, "/run/crun", "/run/runc", "/run/user"),
		Sweep: func(t *testing.T) {
			if _, err := h.Sweep(context.Background(), false); err != nil {
				t.Errorf("Sweep: %v", err)
			}
		},
		HostIDs:    drivertest.HostIDs,
		KillHolder: killHolder,
		Lacks:      map[string]string{},
	}
}

// killHolder finds the holder by its name and the sandbox's id among its children's: the direct child of this process that
// has the sandbox's lock file open.
func killHolder(t *testing.T, h driver.Handle) {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a constant, well-formed pattern
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.HasPrefix(string(cmdline), holder.Name) || !hasOpen(dir, h.ID) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no holder of %s", h.ID)
}

func hasOpen(proc, id string) bool {
	fds, _ := filepath.Glob(filepath.Join(proc, "fd", "*")) // a well-formed pattern
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.Contains(target, id) {
			return true
		}
	}
	return false
}

func TestProcess(t *testing.T) {
	c := config(func(h held.Host) driver.Driver { return process.New(rung.Process, h) })
	lackIDs(&c)
	drivertest.Run(t, c)
}

func TestContainer(t *testing.T) {
	c := config(ociDriver(rung.Container))
	c.Lacks["ids do not overlap"] = "the runtime's shipped defaults: root inside is root outside"
	drivertest.Run(t, c)
}

func TestHardened(t *testing.T) {
	c := config(ociDriver(rung.Hardened))
	c.Provoke, c.Call = []string{"unshare", "-U", "true"}, "unshare"
	lackIDs(&c)
	drivertest.Run(t, c)
}

func TestGVisor(t *testing.T) {
	c := config(ociDriver(rung.GVisor))
	lackIDs(&c)
	drivertest.Run(t, c)
}

func ociDriver(r rung.Rung) func(held.Host) driver.Driver {
	return func(h held.Host) driver.Driver { return oci.New(r, h, oci.ForRung(r)) }
}

func lackIDs(c *drivertest.Config) {
	if os.Getuid() != 0 {
		c.Lacks["ids do not overlap"] = "an ordinary user has one id for all sandboxes, and the record says so"
	}
}

// TestOrdinaryUser runs all of the above once more as somebody who is not root.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is the ordinary user")
	}
	name := os.Getenv(userEnv)
	if name == "" {
		t.Skip(userEnv + " names no ordinary user to test as; `make test` creates one")
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("%s: %v; `make test` creates it", userEnv, err)
	}
	programs := map[string]string{"rung-guest": host().Guest}
	if path := runsc(); path != "" {
		programs["runsc"] = path
	}
	out := ordinary.Run(t, u, programs, dirEnv, os.Getenv("PATH"), "-test.v", "-test.timeout=8m", "-test.skip=TestOrdinaryUser")
	t.Log(out)
	tellSkips(t, out)
}

// tellSkips makes the other run's skipped checks visible as skips of this one, with their reasons.
func tellSkips(t *testing.T, out string) {
	t.Helper()
	last := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "--- SKIP: "); ok {
			why := last
			t.Run("skipped-"+strings.ReplaceAll(strings.Fields(name)[0], "/", "-"), func(t *testing.T) {
				t.Skip("as an ordinary user: " + why)
			})
		}
		last = line
	}
}

func runsc() string { return oci.ForRung(rung.GVisor).Path }
