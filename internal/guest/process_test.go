//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/internal/guest"
)

func TestRun(t *testing.T) {
	g := start(t, nil)
	if err := g.Health(ctx(t)); err != nil {
		t.Fatal(err)
	}
	out, errs, exit := g.run(t, `echo out; echo err >&2; exit 3`)
	if out != "out\n" || errs != "err\n" || exit.Code != 3 || !exit.Exited || exit.Status != "exit status 3" {
		t.Errorf("got %q %q %+v", out, errs, exit)
	}
	out, _, _ = g.run(t, `echo $RUNG_TEST $USER $HOME $(id -u) $(id -g) $(id -G); pwd; echo /proc/self/fd/*; ps -o sid= -p $$ | tr -d ' '; echo $$`)
	lines := strings.Split(out, "\n")
	want := fmt.Sprintf("1 tester %s %d %d %d", g.user.Home, g.user.UID, g.user.GID, g.user.GID)
	if lines[0] != want || lines[1] != g.user.Home {
		t.Errorf("got %q, want %q", lines, want)
	}
	if lines[2] != "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3" && lines[2] != "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2" {
		t.Errorf("descriptors: %s", lines[2]) // 3 is the directory itself being read
	}
	if lines[3] != lines[4] {
		t.Errorf("not a session of its own: %s, pid %s", lines[3], lines[4])
	}
}

func TestMeasure(t *testing.T) {
	g := start(t, nil)
	raw, err := g.Measure(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		UID      int `json:"uid"`
		GuestUID int `json:"guest_uid"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.UID != g.user.UID || got.GuestUID != os.Geteuid() {
		t.Errorf("got %s", raw)
	}
}

func TestStartErrors(t *testing.T) {
	g := start(t, nil)
	script := g.user.Home + "/plain"
	os.WriteFile(script, []byte("x"), 0o644)
	for _, c := range []struct {
		cmd  client.Cmd
		kind rung.Kind
	}{
		{client.Cmd{Path: "no-such-program"}, rung.KindNotFound},
		{client.Cmd{Path: "/no/such/program"}, rung.KindNotFound},
		{client.Cmd{Path: script}, rung.KindRefused},
		{client.Cmd{Path: "/"}, rung.KindRefused},
		{client.Cmd{Path: ""}, rung.KindInvalid},
		{client.Cmd{Path: "true", Dir: "/no/such/dir"}, rung.KindInvalid},
		{client.Cmd{Path: "true", Dir: script}, rung.KindInvalid},
		{client.Cmd{Path: "true", Args: []string{"a\x00b"}}, rung.KindInvalid},
		{client.Cmd{Path: "true", User: "nobody-of-that-name"}, rung.KindInvalid},
	} {
		_, err := g.Guest.Start(ctx(t), c.cmd)
		if rung.KindOf(err) != c.kind {
			t.Errorf("%+v: %v (%s), want %s", c.cmd, err, rung.KindOf(err), c.kind)
		}
	}
}

func TestStdin(t *testing.T) {
	g := start(t, nil)
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "cat", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 50_000)
	go func() {
		io.Copy(p, bytes.NewReader(data))
		p.CloseStdin()
	}()
	out, _, exit := finish(t, p)
	if out != string(data) || exit.Code != 0 {
		t.Errorf("%d bytes came back of %d, %+v", len(out), len(data), exit)
	}
	p, err = g.Guest.Start(ctx(t), client.Cmd{Path: "cat"})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, exit := finish(t, p); out != "" || exit.Code != 0 {
		t.Errorf("without stdin: %q %+v", out, exit)
	}
}

func TestOutputExact(t *testing.T) {
	g := start(t, nil)
	const size = 100 << 20
	script := fmt.Sprintf(`(head -c %d /dev/zero | tr '\0' 'o') & (head -c %d /dev/zero | tr '\0' 'e' >&2) & wait`, size, size)
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "sh", Args: []string{"-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	got, want := [2]io.Writer{sha256.New(), sha256.New()}, [2][]byte{}
	begin := time.Now()
	exit, err := p.Wait(got[0], got[1])
	t.Logf("%d MiB in %v", 2*size>>20, time.Since(begin))
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v %v", exit, err)
	}
	for i, c := range "oe" {
		h := sha256.New()
		for range size >> 20 {
			h.Write(bytes.Repeat([]byte{byte(c)}, 1<<20))
		}
		want[i] = h.Sum(nil)
	}
	for i, h := range got {
		if sum := h.(interface{ Sum([]byte) []byte }).Sum(nil); !bytes.Equal(sum, want[i]) {
			t.Errorf("output %d differs", i)
		}
	}
}

func TestTimeoutKeepsOutput(t *testing.T) {
	g := start(t, nil)
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "sh", Args: []string{"-c", `echo before; trap '' TERM; sleep 100 & sleep 100; echo after`}, Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	out, _, exit := finish(t, p)
	if out != "before\n" || !exit.TimedOut {
		t.Errorf("got %q %+v", out, exit)
	}
}

// tree is a process with a descendant that left its session and its parents, and holds the output open.
const tree = `(setsid sh -c 'sleep 1000 & echo $!; exit' &) ; sleep 0.2; setsid sleep 1001 & echo $!; sleep 1002 & echo $!; echo ready; wait`

func TestKillTree(t *testing.T) {
	g := start(t, nil)
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "sh", Args: []string{"-c", tree}})
	if err != nil {
		t.Fatal(err)
	}
	lines := &lineWriter{want: 4, got: make(chan []string, 1)}
	ended := make(chan client.Exit, 1)
	go func() {
		exit, _ := p.Wait(lines, io.Discard)
		ended <- exit
	}()
	pids := <-lines.got
	if err := p.Kill(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if !gone(p.PID) {
		t.Errorf("%d lives after Kill returned", p.PID)
	}
	if exit := <-ended; exit.Code != -1 || exit.Status != "signal: killed" || exit.Signal() != 9 {
		t.Errorf("exit %+v", exit)
	}
	for _, s := range pids[:3] {
		pid, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "end of "+s, func() bool { return gone(pid) })
	}
	if err := p.Kill(ctx(t)); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("second kill: %v", err)
	}
}

// lineWriter sends the first lines once there are enough.
type lineWriter struct {
	want int
	buf  bytes.Buffer
	got  chan []string
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.buf.Write(p)
	if lines := strings.Split(l.buf.String(), "\n"); l.want > 0 && len(lines) > l.want {
		l.want = 0
		l.got <- lines
	}
	return len(p), nil
}

// A daemon that keeps the pipe does not keep the end from being reported, and is not killed for it.
func TestDaemonHoldsPipe(t *testing.T) {
	g := start(t, nil)
	begin := time.Now()
	out, _, exit := g.run(t, `(setsid sh -c 'sleep 0.1; echo late; sleep 3; echo never >&1; sleep 1000' &) ; echo $$`)
	if took := time.Since(begin); took > 2500*time.Millisecond || exit.Code != 0 {
		t.Errorf("took %v, %+v", took, exit)
	}
	if !strings.HasSuffix(out, "late\n") {
		t.Errorf("output %q", out)
	}
}

// A client that is cut off leaves process and output behind; another connection finds both.
func TestCutAndAttach(t *testing.T) {
	g := start(t, func(c *guest.Config) { c.Output = 1 << 20 })
	c, cancel := context.WithCancel(ctx(t))
	p, err := g.Guest.Start(c, client.Cmd{Path: "sh", Stdin: true, Args: []string{"-c", `i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo half; read x; echo got $x; exit 7`}})
	if err != nil {
		t.Fatal(err)
	}
	first := &cutter{limit: 50_000, cut: cancel}
	if _, err := p.Wait(first, io.Discard); err == nil {
		t.Fatal("the stream was not cut")
	}
	if list, err := g.Running(ctx(t)); err != nil || len(list) != 1 || int(list[0].PID) != p.PID {
		t.Fatalf("running: %+v %v", list, err)
	}
	q, err := g.Attach(ctx(t), p.PID, int64(first.buf.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if q.Stdout != int64(first.buf.Len()) {
		t.Fatalf("replay begins at %d, not %d", q.Stdout, first.buf.Len())
	}
	if _, err := q.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	rest, _, exit := finish(t, q)
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("half\ngot hello\n")
	if got := first.buf.String() + rest; got != want.String() || exit.Code != 7 {
		t.Errorf("%d bytes, want %d; %+v", len(got), want.Len(), exit)
	}
	// It can still be attached to for a while, and is not listed.
	again, err := g.Attach(ctx(t), p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, exit := finish(t, again); out != want.String() || exit.Code != 7 {
		t.Errorf("after the end: %d bytes, %+v", len(out), exit)
	}
	none, err := g.Attach(ctx(t), p.PID, -1)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, _ := finish(t, none); out != "" {
		t.Errorf("without replay: %q", out)
	}
	if list, _ := g.Running(ctx(t)); len(list) != 0 {
		t.Errorf("running after the end: %+v", list)
	}
}

// cutter cuts the stream after limit bytes.
type cutter struct {
	buf   bytes.Buffer
	limit int
	cut   func()
}

func (c *cutter) Write(p []byte) (int, error) {
	n, _ := c.buf.Write(p)
	if c.buf.Len() > c.limit {
		c.cut()
	}
	return n, nil
}

// Without a client the oldest output goes and the process is not held up.
func TestRingDropsOldest(t *testing.T) {
	g := start(t, func(c *guest.Config) { c.Output = 64 << 10 })
	c, cancel := context.WithCancel(ctx(t))
	p, err := g.Guest.Start(c, client.Cmd{Path: "sh", Args: []string{"-c", `head -c 1000000 /dev/zero; echo; echo last`}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	p.Close()
	waitFor(t, "the end", func() bool {
		list, err := g.Running(ctx(t))
		return err == nil && len(list) == 0
	})
	q, err := g.Attach(ctx(t), p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ := finish(t, q)
	if !strings.HasSuffix(out, "\nlast\n") || q.Stdout+int64(len(out)) != 1_000_006 || len(out) < 32<<10 {
		t.Errorf("kept %d bytes from %d on", len(out), q.Stdout)
	}
}

// A slow client holds the process back and loses nothing.
func TestBackPressure(t *testing.T) {
	g := start(t, func(c *guest.Config) { c.Output = 64 << 10 })
	p, err := g.Guest.Start(ctx(t), client.Cmd{Path: "sh", Args: []string{"-c", `head -c 20000000 /dev/zero; echo done >&2`}})
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowWriter{}
	exit, err := p.Wait(slow, slow)
	if err != nil || exit.Code != 0 || slow.n != 20_000_005 {
		t.Errorf("%d bytes, %+v, %v", slow.n, exit, err)
	}
}

type slowWriter struct{ n int }

func (s *slowWriter) Write(p []byte) (int, error) {
	if s.n += len(p); s.n%7 == 0 {
		<-time.After(time.Millisecond) // being slow is the point, nothing is waited for
	}
	return len(p), nil
}

func TestZombies(t *testing.T) {
	g := start(t, nil)
	// Orphans that end while the process runs are inherited by the guest, and must not stay behind as zombies.
	if _, _, exit := g.run(t, `for i in 1 2 3 4 5 6 7 8; do (true & (sleep 0.05 &) ) ; done; sleep 0.3`); exit.Code != 0 {
		t.Fatalf("%+v", exit)
	}
	waitFor(t, "no children", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", g.cmd.Process.Pid, g.cmd.Process.Pid))
		return err == nil && len(bytes.TrimSpace(raw)) == 0
	})
}
