package seccomp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

// floodChild plays the parts in which the child is watched: "exec P" runs the program in its arguments under P; "N P" tries
// ptrace N times under P with a listener that it sends over descriptor 3, and prints how many attempts got EPERM.
func floodChild(role string) error {
	what, p, _ := strings.Cut(role, " ")
	if what == "exec" {
		if _, err := Install(Filter(Profile(p)), false); err != nil {
			return err
		}
		return syscall.Exec(os.Args[1], os.Args[1:], nil)
	}
	count, err := strconv.Atoi(what)
	if err != nil {
		return err
	}
	listener, err := Install(Filter(Profile(p)), true)
	if err != nil {
		return err
	}
	state := []byte(`{"ociVersion":"1.0.2"}`)
	if err := unix.Sendmsg(3, state, unix.UnixRights(int(listener.Fd())), nil, 0); err != nil {
		return err
	}
	if err := listener.Close(); err != nil {
		return err
	}
	if count == 0 { // idle until the test closes the standard input
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	denied := 0
	for range count {
		if _, _, e := syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKDATA, 0x3ffffff, 0, 0, 0, 0); e == unix.EPERM {
			denied++
		}
	}
	for family := range uintptr(50) {
		if family != unix.AF_UNIX && family != unix.AF_INET && family != unix.AF_INET6 && family != unix.AF_NETLINK {
			syscall.Syscall(unix.SYS_SOCKET, family, unix.SOCK_RAW, 0)
		}
	}
	fmt.Println(denied)
	return nil
}

// streams are a child's.
type streams struct {
	stdin  io.WriteCloser
	stdout strings.Builder
}

// watched starts a child that makes count attempts and returns its listener.
func watched(t *testing.T, count int) (*exec.Cmd, *streams, *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var std streams
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("RUNG_SECCOMP_CHILD=flood %d hardened-notify", count))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = &std.stdout, os.Stderr
	if std.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listener, state, err := ReceiveListener(conn.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	if string(state) != `{"ociVersion":"1.0.2"}` {
		t.Errorf("state is %q", state)
	}
	return cmd, &std, listener
}

// collector adds reports up.
type collector struct {
	mu      sync.Mutex
	reports int
	count   map[string]int64
	first   map[string]rung.Denied
}

func (c *collector) report(d rung.Denied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count, c.first = map[string]int64{}, map[string]rung.Denied{}
	}
	c.reports++
	if c.count[d.Syscall] == 0 {
		c.first[d.Syscall] = d
	}
	c.count[d.Syscall] += d.Count
}

func cpu() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestSupervise floods the supervisor: all attempts are refused and counted, reports are few, the host computes little, and
// the supervisor ends by itself when the sandbox does.
func TestSupervise(t *testing.T) {
	const attempts = 2000
	cmd, out, listener := watched(t, attempts)
	var c collector
	start, used := time.Now(), cpu()
	if err := Supervise(t.Context(), listener, c.report); err != nil {
		t.Fatal(err)
	}
	took, used := time.Since(start), cpu()-used
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.stdout.String()); got != strconv.Itoa(attempts) {
		t.Errorf("%s of %d attempts got EPERM", got, attempts)
	}
	if c.count["ptrace"] != attempts || c.count["socket"] != 46 {
		t.Errorf("counted %v", c.count)
	}
	d := c.first["ptrace"]
	if d.PID != cmd.Process.Pid || d.Process == "" || len(d.Args) != 6 || d.Args[1] != 0x3ffffff || d.First.Before(start.Add(-time.Minute)) {
		t.Errorf("first report: %+v", d)
	}
	if least := time.Duration(attempts-answerBurst) * answerEvery; took < least {
		t.Errorf("%d attempts took %v; the bucket should have made it %v", attempts, took, least)
	}
	if most := int(took/reportEvery) + 2 + 46; c.reports > most {
		t.Errorf("%d reports in %v", c.reports, took)
	}
	t.Logf("%d attempts in %v, %v of processor time (test included), %d reports", attempts, took, used, c.reports)
}

// TestSuperviseStops ends the supervisor while the sandbox goes on: what was counted is reported, and later attempts fail.
func TestSuperviseStops(t *testing.T) {
	cmd, _, listener := watched(t, 1_000_000)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan struct{})
	var once sync.Once
	var c collector
	done := make(chan error, 1)
	go func() {
		done <- Supervise(ctx, listener, func(d rung.Denied) { c.report(d); once.Do(func() { close(seen) }) })
	}()
	<-seen
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the supervisor goes on")
	}
	if err := cmd.Wait(); err != nil { // a million refusals by the kernel itself take a moment
		t.Fatal(err)
	}
	if c.count["ptrace"] == 0 {
		t.Error("nothing was counted")
	}
}

// TestSuperviseIdle waits while nothing happens, which costs nothing, and until the sandbox ends.
func TestSuperviseIdle(t *testing.T) {
	cmd, in, listener := watched(t, 0)
	done := make(chan error, 1)
	go func() { done <- Supervise(t.Context(), listener, func(d rung.Denied) { t.Errorf("reported %+v", d) }) }()
	used := cpu()
	select {
	case err := <-done:
		t.Fatalf("ended before the sandbox: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if used = cpu() - used; used > 50*time.Millisecond {
		t.Errorf("waiting took %v of processor time", used)
	}
	if err := errors.Join(in.stdin.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the supervisor outlives the sandbox")
	}
}

func TestReceiveListenerRefuses(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for name, send := range map[string]func(*net.UnixConn) error{
		"nothing":        func(*net.UnixConn) error { return nil },
		"no descriptor":  func(c *net.UnixConn) error { _, err := c.Write([]byte("{}")); return err },
		"not a listener": func(c *net.UnixConn) error { return rightsTo(c, []byte("{}"), fd) },
		"two":            func(c *net.UnixConn) error { return rightsTo(c, []byte("{}"), fd, fd) },
		"too many":       func(c *net.UnixConn) error { return rightsTo(c, []byte("{}"), make([]int, 40)...) },
		"no JSON":        func(c *net.UnixConn) error { return rightsTo(c, []byte("{"), fd) },
		"endless": func(c *net.UnixConn) error {
			_, err := c.Write([]byte(strings.Repeat(" ", 2<<20)))
			return ignorePipe(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			var conns [2]*net.UnixConn
			for i, fd := range pair {
				f := os.NewFile(uintptr(fd), "pair")
				c, err := net.FileConn(f)
				_ = f.Close()
				if err != nil {
					t.Fatal(err)
				}
				conns[i] = c.(*net.UnixConn)
			}
			sent := make(chan error, 1)
			go func() { sent <- errors.Join(send(conns[1]), conns[1].Close()) }()
			f, _, err := ReceiveListener(conns[0])
			_ = conns[0].Close()
			if err == nil || f != nil {
				t.Errorf("accepted: %v", f)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

func rightsTo(c *net.UnixConn, data []byte, fds ...int) error {
	_, _, err := c.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	return err
}

func ignorePipe(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // the receiver had enough
	}
	return err
}
