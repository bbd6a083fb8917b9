//go:build linux

// Package ident is who rung-guest acts for: the users of the sandbox as its /etc/passwd names them, and doing file work
// as one of them.
package ident

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// User is a user of the sandbox.
type User struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Home string `json:"home"`
}

// Self reports whether the program itself already is the user.
func (u User) Self() bool { return u.UID == os.Geteuid() && u.GID == os.Getegid() }

// Credential is what a child needs to become the user, nil when it already is.
func (u User) Credential() *syscall.Credential {
	if u.Self() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}

// As runs fn as the user: effective ids of one thread, no groups. The thread ends with fn, so nothing can be left behind
// on it. While fn runs, the real and saved ids stay the program's own, so the user can neither signal nor trace the thread.
// fn must not start goroutines that rely on the ids, nor processes.
func (u User) As(fn func() error) error {
	if u.Self() {
		return fn()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if err := become(u); err != nil {
			done <- fmt.Errorf("act as %s: %w", u.Name, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// become changes this thread only; the functions of package syscall would change all of them.
func become(u User) error {
	const keep = ^uintptr(0)
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, keep, uintptr(u.GID), keep); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(u.UID), keep); e != 0 {
		return e
	}
	uid, _, _ := syscall.RawSyscall(syscall.SYS_GETEUID, 0, 0, 0)
	gid, _, _ := syscall.RawSyscall(syscall.SYS_GETEGID, 0, 0, 0)
	if int(uid) != u.UID || int(gid) != u.GID {
		return errors.New("the ids did not change")
	}
	return nil
}

// ErrUnknown is returned for a user that the sandbox does not have, or that nobody may act as.
var ErrUnknown = errors.New("unknown user")

// maxPasswd caps how much of a file of names is read.
const maxPasswd = 1 << 20

// Lookup finds a user by name in a passwd file.
func Lookup(passwd, name string) (User, error) {
	found, err := User{}, ErrUnknown
	scan(passwd, func(f []string) bool {
		if len(f) < 6 || f[0] != name {
			return false
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 31)
		gid, err2 := strconv.ParseUint(f[3], 10, 31)
		if err1 == nil && err2 == nil {
			found, err = User{Name: name, UID: int(uid), GID: int(gid), Home: f[5]}, nil
		}
		return true
	})
	return found, err
}

// Names reads a passwd or group file into id → name.
func Names(path string) map[uint32]string {
	names := map[uint32]string{}
	scan(path, func(f []string) bool {
		if len(f) >= 3 {
			if id, err := strconv.ParseUint(f[2], 10, 32); err == nil {
				if _, ok := names[uint32(id)]; !ok {
					names[uint32(id)] = f[0]
				}
			}
		}
		return len(names) >= 10_000
	})
	return names
}

// scan calls line for each line's fields until it returns true. A file that cannot be read has no lines: a sandbox without
// names is not an error.
func scan(path string, line func([]string) bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(io.LimitReader(f, maxPasswd)); s.Scan(); {
		if line(strings.Split(s.Text(), ":")) {
			return
		}
	}
}
