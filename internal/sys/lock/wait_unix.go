//go:build unix

package lock

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrHeld says that somebody else held a lock for as long as the caller would wait.
var ErrHeld = errors.New("held by another process")

// The steps of a wait: flock(2) knows no context, so a waiter polls.
const (
	firstPause   = 50 * time.Microsecond
	longestPause = 4 * time.Millisecond
)

// Wait locks an open file, shared or exclusively, and waits for that until ctx is done: ErrHeld then. Other errors are the
// kernel's. The lock is the open file's: it ends when the last copy is closed.
func Wait(ctx context.Context, f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		ok, err := try(f, how)
		if ok || err != nil {
			return err
		}
		if !sleep(ctx, pause) {
			return ErrHeld
		}
	}
}

// try takes the lock if that is possible now.
func try(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
