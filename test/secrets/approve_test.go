//go:build linux

package secrets

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const approved = `
version: 1
egress:
  rules:
    - {host: api.example, approve: true}
`

// pty is a new pseudo terminal: pty(7).
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	raw := int(master.Fd())
	n, err := unix.IoctlGetInt(raw, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(raw, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// seated is a run whose owner sits at a terminal and answers each question. piped gives the command another input.
func (h *house) seated(piped bool, answers ...string) (screen string, code int) {
	h.Helper()
	master, slave := pty(h.T)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	args := append(flags("container"), "--policy", h.file("policy.yaml"), "--in", h.file("steps")+":/work/steps", "--", "/work/inside", "/work/steps")
	cmd := exec.CommandContext(ctx, program("rung"), args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stderr = h.env, h.dir, slave, slave
	var out bytes.Buffer
	cmd.Stdout = &out
	if piped {
		cmd.Stdin = strings.NewReader("")
	}
	// The terminal is the session's own, for /dev/tty: TIOCSCTTY.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	slave.Close()
	said, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		var all strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			all.Write(buf[:n])
			if strings.Contains(string(buf[:n]), "[y/N]") && len(answers) > 0 {
				_, _ = master.WriteString(answers[0] + "\n")
				answers = answers[1:]
			}
			if err != nil { // EIO when the last of them is closed
				said <- all.String()
				return
			}
		}
	}()
	_ = cmd.Wait() // the exit code tells
	select {
	case screen = <-said:
	case <-time.After(10 * time.Second):
		h.Error("somebody still has the terminal")
	}
	<-ended
	h.Logf("%s\n%s", screen, out.String())
	return out.String() + screen, cmd.ProcessState.ExitCode()
}

// TestApprove: requests of a rule with approve wait for their owner's word, each for its own; without a terminal nobody is
// asked and none passes.
func TestApprove(t *testing.T) {
	h := newHouse(t)
	if err := os.WriteFile(h.file("policy.yaml"), []byte(approved), 0o644); err != nil {
		t.Fatal(err)
	}
	steps := []step{{"do": "http", "url": "https://api.example/first"}, {"do": "http", "url": "https://api.example/second"}}
	if err := os.WriteFile(h.file("steps"), []byte(script(steps)), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		piped   bool
		answers []string
		passed  string
	}{
		"yes then no":       {false, []string{"y", "n"}, "/first"},
		"no then yes":       {false, []string{"", "YES"}, "/second"},
		"neither is a word": {false, []string{"maybe", "yy"}, ""},
		"another input":     {true, []string{"y", "n"}, "/first"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			h := &house{T: t, dir: h.dir, env: h.env}
			world.take()
			screen, code := h.seated(c.piped, c.answers...)
			passed := ""
			for _, r := range world.take() {
				passed += r.Path
			}
			if code != 0 || passed != c.passed || !strings.Contains(screen, "GET /first") || !strings.Contains(screen, "api.example") {
				t.Errorf("exit %d, passed %q, not %q", code, passed, c.passed)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		h := &house{T: t, dir: h.dir, env: h.env}
		world.take()
		r := h.inside("container", steps, "--policy", h.file("policy.yaml"))
		if got := world.take(); len(got) != 0 || r[0].Status != 403 || !strings.Contains(r[0].Body, "approval") {
			t.Errorf("%v, %+v", got, r)
		}
	})
}
