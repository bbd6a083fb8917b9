package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// startPeers gives slirp4netns and pasta a namespace each, with the MTU that both recommend for throughput. The process that
// holds it is a cat, which ends when this program does.
func (w *world) startPeers() error {
	holder, err := w.start("", "unshare", "--net", "cat")
	if err != nil {
		return err
	}
	w.slirp = holder.cmd.Process.Pid
	if err := until(func() bool { return otherNamespace(w.slirp) }); err != nil {
		return err
	}
	if _, err := w.start("", "slirp4netns", "--configure", "--mtu=65520", "--disable-dns", strconv.Itoa(w.slirp), "tap0"); err != nil {
		return err
	}
	pasta, err := w.start("", "pasta", "--foreground", "--quiet", "--runas", "0", "--config-net", "--mtu", "65520", "--interface", "up0",
		"--address", "203.0.113.130", "--netmask", "25", "--gateway", "203.0.113.129",
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none", "--", "cat")
	if err != nil {
		return err
	}
	if err := until(func() bool { w.pasta = child(pasta.cmd.Process.Pid, "cat"); return w.pasta != 0 }); err != nil {
		return err
	}
	for name, pid := range map[string]int{"slirp4netns": w.slirp, "pasta": w.pasta} {
		err := until(func() bool { _, err := w.within(pid, "connect", echoAddr, "1"); return err == nil })
		if err != nil {
			return fmt.Errorf("%s: nothing passes: %w", name, err)
		}
	}
	return nil
}

// until waits for something that other programs do and do not tell.
func until(done func() bool) error {
	for range 200 {
		if done() {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("not within ten seconds")
}

func otherNamespace(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err == nil && other != own
}

// child is the child of a process that runs that program, 0 while there is none.
func child(pid int, name string) int {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid), "-x", name).Output()
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(bytes.TrimSpace(out))))
	return n
}
