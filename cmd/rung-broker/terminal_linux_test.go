package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pty opens a terminal: what is typed goes into the first, what runs on it has the second.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// typed runs secret add on a terminal, with one text typed at each prompt. It returns the exit code, and what it printed
// beside the prompts.
func (h *host) typed(name string, texts ...string) (int, string) {
	h.t.Helper()
	master, slave := pty(h.t)
	cmd := h.command("secret", "add", name)
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	prompts, err := cmd.StderrPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	said := bufio.NewReader(prompts)
	for _, text := range texts {
		prompt, err := said.ReadString(':')
		h.printed.WriteString(prompt)
		if err != nil {
			break
		}
		// The prompt comes before the terminal falls silent; wait for that, or the test would see its own echo.
		for silent := false; !silent; {
			tio, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				h.t.Fatal(err)
			}
			silent = tio.Lflag&unix.ECHO == 0
		}
		if _, err := master.WriteString(text); err != nil {
			h.t.Fatal(err)
		}
	}
	rest, err := io.ReadAll(said)
	if err != nil {
		h.t.Fatal(err)
	}
	h.printed.Write(rest)
	err = cmd.Wait()
	tio, e := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if e != nil || tio.Lflag&unix.ECHO == 0 {
		h.t.Errorf("the terminal stays mute: %v", e)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(rest)
	}
	return 0, string(rest)
}

func TestTerminal(t *testing.T) {
	h := newHost(t)
	if code, said := h.typed("A", value+"\n", value+"\n"); code != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
	if out := h.must("", "secret", "check", "A"); !strings.Contains(out, "ok (terminal)") {
		t.Errorf("%s", out)
	}
	if code, said := h.typed("B", value+"\n", value+"x\n"); code != 125 || !strings.Contains(said, "not the same") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if code, said := h.typed("B", "\n", "\n"); code != 125 || !strings.Contains(said, "empty") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if code, said := h.typed("B", "half\x03"); code != 130 {
		t.Errorf("interrupted: exit code %d: %s", code, said)
	}
	h.fails("no secret B", "secret", "check", "B")
	if bytes.Contains(h.printed.Bytes(), []byte("half")) {
		t.Error("what was typed is printed")
	}
	h.search()
}
