//go:build unix

package image

import (
	"errors"
	"os"
	"syscall"
)

// flock never blocks: a waiter polls, so that its context counts.
func flock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errLocked
		}
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// openPublic opens a file for reading without ever blocking on a FIFO; with follow false a link is an error.
func openPublic(path string, follow bool) (*os.File, error) {
	flags := os.O_RDONLY | syscall.O_NONBLOCK
	if !follow {
		flags |= syscall.O_NOFOLLOW
	}
	return os.OpenFile(path, flags, 0)
}

// sameDevice reports whether two files are on the same file system: a bind without sub-mounts shows both.
func sameDevice(a, b os.FileInfo) bool {
	x, okx := a.Sys().(*syscall.Stat_t)
	y, oky := b.Sys().(*syscall.Stat_t)
	return okx && oky && x.Dev == y.Dev
}
