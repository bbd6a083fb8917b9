//go:build linux

package fake_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/drivertest"
	"github.com/rung-dev/rung/driver/fake"
	"github.com/rung-dev/rung/internal/guest"
)

// guestEnv makes this test program the guest: its value is the configuration.
const guestEnv = "RUNG_FAKE_GUEST"

func TestMain(m *testing.M) {
	if arg := os.Getenv(guestEnv); arg != "" {
		os.Exit(serveGuest(arg))
	}
	os.Exit(m.Run())
}

func serveGuest(arg string) int {
	os.Unsetenv(guestEnv)
	// The guest finds the processes of its namespace in /proc, so it needs that namespace's.
	err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("proc", "/proc", "proc", 0, ""))
	if err != nil {
		os.Stderr.WriteString("guest: /proc: " + err.Error() + "\n")
		return 1
	}
	config, err := guest.ParseConfig(arg)
	if err == nil {
		err = guest.Serve(config)
	}
	if err != nil {
		os.Stderr.WriteString("guest: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// processGuest is the real rung-guest as an ordinary process, PID 1 of a PID namespace so that its end is the end of all
// it started.
func processGuest(t *testing.T) func(driver.Spec) (fake.Guest, error) {
	return func(spec driver.Spec) (fake.Guest, error) {
		socket := filepath.Join(t.TempDir(), "guest.sock")
		config, err := json.Marshal(map[string]any{
			"listen": socket, "init": true, "workdir": "/tmp",
			"user": map[string]any{"name": "root", "uid": os.Getuid(), "gid": os.Getgid(), "home": "/tmp"},
		})
		if err != nil {
			return fake.Guest{}, err
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), guestEnv+"="+string(config))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		}
		if err := cmd.Start(); err != nil {
			return fake.Guest{}, err
		}
		stop := func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // it was killed: that is no news
		}
		if err := waitSocket(socket); err != nil {
			stop()
			return fake.Guest{}, err
		}
		return fake.Guest{Serve: forward(socket), Stop: stop}, nil
	}
}

func waitSocket(path string) error {
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn.Close()
		}
		last = err
		<-time.After(5 * time.Millisecond) // nobody announces a socket
	}
	return last
}

func forward(socket string) func(net.Conn) {
	return func(conn net.Conn) {
		up, err := net.Dial("unix", socket)
		if err != nil {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(up, conn); up.Close() })
		both.Go(func() { _, _ = io.Copy(conn, up); conn.Close() })
		both.Wait()
	}
}

func TestConformance(t *testing.T) {
	const oneValue = "a fake's sandboxes live in one Driver value and one process"
	drivertest.Run(t, drivertest.Config{
		New: func(t *testing.T) driver.Driver {
			return fake.New(fake.Config{Guest: processGuest(t), Inspect: inspect, Usage: usage})
		},
		Template: func(*testing.T) driver.Template { return driver.Template{Name: "none", Root: "/"} },
		Lacks: map[string]string{
			"owned ends with its owner":         oneValue,
			"adopt after the owner was killed":  oneValue,
			"create refuses a missing template": "a fake never looks at the template",
			"ids do not overlap":                "a fake builds no wall: all its sandboxes run as the caller",
		},
		Parallel: 4,
	})
}

func inspect(spec driver.Spec) *rung.Isolation {
	return &rung.Isolation{PIDsMax: spec.Limits.PIDs, Sources: map[string]string{"pids_max": "host"}}
}

func usage(driver.Spec) driver.Usage { return driver.Usage{Memory: 2 << 20, Own: 1 << 20} }

func spec() driver.Spec {
	return driver.Spec{ID: "a", Template: driver.Template{Root: "/"}, Limits: rung.DefaultLimits()}
}

func TestScriptedEnds(t *testing.T) {
	oom := driver.End{Reason: rung.OOM, Detail: "killed by the kernel", OOM: true}
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Config{EndAfter: time.Hour, End: oom})
		in, err := d.Create(t.Context(), spec())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		end, err := in.Wait(t.Context())
		if err != nil || time.Since(start) != time.Hour {
			t.Errorf("Wait returned %v after %v", err, time.Since(start))
		}
		if diff := cmp.Diff(oom, end); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"a"}, d.Live()); diff != "" {
			t.Errorf("an ended sandbox is there until it is destroyed: %s", diff)
		}
		if err := in.Destroy(t.Context()); err != nil || len(d.Live()) != 0 {
			t.Errorf("Destroy: %v, live: %v", err, d.Live())
		}
	})
}

func TestWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec()
		s.WallClock = 10 * time.Second
		in, err := fake.New(fake.Config{}).Create(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if end, err := in.Wait(t.Context()); err != nil || end.Reason != rung.TimedOut {
			t.Errorf("Wait: %+v, %v", end, err)
		}
	})
}

func TestCreateBlocksWithinItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Config{CreateBlock: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := d.Create(ctx, spec()); rung.KindOf(err) != rung.KindTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Create: %v, want a time-out", err)
		}
		if len(d.Live()) != 0 {
			t.Errorf("left: %v", d.Live())
		}
	})
}

func TestCreateError(t *testing.T) {
	want := rung.Errorf(rung.KindExhausted, "no more slots")
	if _, err := fake.New(fake.Config{CreateError: want}).Create(t.Context(), spec()); !errors.Is(err, want) {
		t.Errorf("Create: %v, want %v", err, want)
	}
}

func TestGuestError(t *testing.T) {
	want := errors.New("no guest")
	d := fake.New(fake.Config{Guest: func(driver.Spec) (fake.Guest, error) { return fake.Guest{}, want }})
	if _, err := d.Create(t.Context(), spec()); !errors.Is(err, want) || len(d.Live()) != 0 {
		t.Errorf("Create: %v, live %v", err, d.Live())
	}
}

func TestEventsReachTheirSandbox(t *testing.T) {
	var got []string
	s := spec()
	s.Events = func(e driver.Event) { got = append(got, e.Notice) }
	d := fake.New(fake.Config{})
	in, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	d.Emit("a", driver.Event{Notice: "one"})
	d.Emit("b", driver.Event{Notice: "not ours"})
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Emit("a", driver.Event{Notice: "late"})
	if diff := cmp.Diff([]string{"one"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestDefaultGuest: without a guest the fake still answers, so that managers can be tested with nothing else.
func TestDefaultGuest(t *testing.T) {
	in, err := fake.New(fake.Config{}).Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(t.Context())
	conn, err := in.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, len("HTTP/1.1 204 No Content\r\n\r\n"))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf[:12]) != "HTTP/1.1 204" {
			t.Errorf("answer %q, %v", buf, err)
		}
	}
}

func TestAbilitiesFollowTheScript(t *testing.T) {
	for _, c := range []fake.Config{{}, {Inspect: inspect}, {Usage: usage}, {Inspect: inspect, Usage: usage}} {
		d := fake.New(c)
		in, err := d.Create(t.Context(), spec())
		if err != nil {
			t.Fatal(err)
		}
		var want []driver.Ability
		if _, ok := in.(driver.Inspector); ok {
			want = append(want, driver.CanInspect)
		}
		if _, ok := in.(driver.Meter); ok {
			want = append(want, driver.CanMeter)
		}
		if got := d.Info().Abilities; !slices.Equal(got, want) || len(want) != count(c) {
			t.Errorf("Info says %v, the methods say %v, the script has %d", got, want, count(c))
		}
	}
}

func count(c fake.Config) (n int) {
	if c.Inspect != nil {
		n++
	}
	if c.Usage != nil {
		n++
	}
	return n
}
