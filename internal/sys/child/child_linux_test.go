package child

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, script string, change func(*exec.Cmd)) *Child {
	t.Helper()
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: "/"}
	if change != nil {
		change(cmd)
	}
	c, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEnds(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0": "", "exit 7": "exit status 7", "kill -9 $$": "signal: killed",
		`[ "$(readlink /proc/self/fd/0)$(readlink /proc/self/fd/2)" = /dev/null/dev/null ]`: "",
		`[ -z "$HOME" ]`: "",
	} {
		c := start(t, script, nil)
		for range 2 { // the second time from memory
			got := ""
			if err := c.Wait(); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%q ended with %q, not %q", script, got, want)
			}
		}
		if err := syscall.Kill(c.PID, 0); err == nil {
			t.Errorf("%q was not collected", script)
		}
	}
}

func TestKill(t *testing.T) {
	c := start(t, "exec sleep 1000", nil)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("ended with %v", err)
	}
	if err := c.Kill(); err != nil {
		t.Errorf("killing what has ended: %v", err)
	}
}

// Kill while somebody waits must reach the child, not wait for its end.
func TestKillWhileWaiting(t *testing.T) {
	c := start(t, "exec sleep 1000", nil)
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting")
	}
}

func TestFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := start(t, "echo out; echo extra >&3", func(cmd *exec.Cmd) { cmd.Stdout, cmd.ExtraFiles = w, []*os.File{w} })
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil || string(text) != "out\nextra\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	if _, err := Start(&exec.Cmd{Path: "/nowhere", Args: []string{"x"}}); err == nil {
		t.Error("a program that is not there was started")
	}
	if _, err := Start(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh"}, Stdout: io.Discard}); err == nil {
		t.Error("a writer that is no file was taken")
	}
}
