//go:build linux

// Package harden is what rung-guest does to itself before it serves: it keeps user code from reaching into it, and keeps
// only the capabilities it needs to switch users and to signal.
package harden

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// kept is what is left of the program's capabilities: to become the user, and to signal processes that are the user's.
const kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// Private makes the program undumpable: without this, a process with the same uid, or in the moment between its setuid and
// its exec a child that shares our memory, could be attached to and this program's memory read and written.
func Private() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("harden: undumpable: %w", err)
	}
	return nil
}

// Descriptors marks everything above the standard descriptors close-on-exec, so that what the runtime left open never
// reaches a user process.
func Descriptors() error {
	err := unix.CloseRange(3, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Before Linux 5.11, and where the call is not known.
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("harden: descriptors: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("harden: descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// Drop gives up on all threads what a user process must never get: it empties the ambient and inheritable sets, sets
// no_new_privs, and keeps only the capabilities of kept that the program has. It reads back what it set and fails when
// anything else came out. The bounding set is not among it: see EmptyBounding, which must come first.
func Drop() error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"no_new_privs", noNewPrivs},
		{"capabilities", dropCaps}, // empties the ambient set too: what is not inheritable cannot be ambient
		{"check", check},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("harden: %s: %w", s.name, err)
		}
	}
	return nil
}

// all does the system call on every thread of the program: capabilities and no_new_privs are a thread's own.
func all(call, a1, a2 uintptr) error {
	if _, _, e := syscall.AllThreadsSyscall6(call, a1, a2, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// noNewPrivs has nothing to do where the runtime has set it, before there were threads.
func noNewPrivs() error {
	if on, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0); e == 0 && on == 1 {
		return nil
	}
	return all(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
}

// bounding reports whether c is in the bounding set; an error means that the kernel does not know c.
func bounding(c uintptr) (bool, error) {
	r, _, e := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, c, 0)
	if e != 0 {
		return false, e
	}
	return r == 1, nil
}

// EmptyBounding empties the bounding set of the calling thread and checks that it is empty. What the thread forks inherits
// that; so only the one thread that forks needs it, and the others, which never execute anything, are spared: on rung
// process, whose user namespace gives all forty-one, every capability would cost a stop of all threads. It needs
// CAP_SETPCAP, which Drop gives up. The caller must have locked its goroutine to the thread.
func EmptyBounding() error {
	if err := dropBounding(); err != nil {
		return fmt.Errorf("harden: bounding set: %w", err)
	}
	for c := range uintptr(64) {
		if in, err := bounding(c); err == nil && in {
			return fmt.Errorf("harden: capability %d is still in the bounding set", c)
		}
	}
	return nil
}

func dropBounding() error {
	for c := range uintptr(64) {
		in, err := bounding(c)
		if err != nil {
			return nil // past the kernel's last one
		}
		if !in {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// check reads back this thread's state; AllThreadsSyscall guarantees that the others did the same.
func check() error {
	eff, perm, inh, err := capget()
	if err != nil {
		return err
	}
	if eff&^kept != 0 || perm&^kept != 0 || inh != 0 {
		return fmt.Errorf("capabilities are %#x, %#x, %#x", eff, perm, inh)
	}
	for c := range uintptr(64) {
		in, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0, 0)
		if e == 0 && in == 1 {
			return fmt.Errorf("capability %d is still in the ambient set", c)
		}
	}
	nnp, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0)
	if e != 0 || nnp != 1 {
		return errors.New("no_new_privs is off")
	}
	return nil
}
