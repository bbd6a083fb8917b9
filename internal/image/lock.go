package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// errLocked says that somebody else holds the lock.
var errLocked = errors.New("locked by another process")

const (
	lockPoll = 20 * time.Millisecond
	lockWait = 30 * time.Minute // a build of the same name may take minutes; nothing takes longer
)

// tryLock opens path, creating it where create says so, and locks it. The lock counts only if path still names the locked
// file: whoever removes a lock file does so while holding it, so a waiter must not end up on the removed one.
func tryLock(path string, exclusive, create bool) (*os.File, error) {
	for {
		flags := os.O_RDWR
		if create {
			flags |= os.O_CREATE
		}
		f, err := os.OpenFile(path, flags, 0o644)
		if errors.Is(err, fs.ErrPermission) && !exclusive {
			f, err = os.Open(path) // a shared lock needs no more than reading
		}
		if err != nil {
			return nil, err
		}
		if err := flock(f, exclusive); err != nil {
			_ = f.Close() // nothing was written
			return nil, err
		}
		if current(f, path) {
			return f, nil
		}
		_ = f.Close() // nothing was written
	}
}

func current(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(held, named)
}

// lock waits for an exclusive lock on path until ctx is done, half an hour at most.
func lock(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		f, err := tryLock(path, true, true)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}
