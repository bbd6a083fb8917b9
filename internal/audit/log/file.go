package log

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/rung-dev/rung"
)

// OpenFile opens a regular file below root, never by a link: O_NOFOLLOW does not keep os.Root from following links that
// stay inside, so what has the name is compared with what was opened. A file that is being replaced is an error.
func OpenFile(root *os.Root, name string, flags int) (*os.File, error) {
	named, err := root.Lstat(name)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && flags&os.O_CREATE != 0:
	case err != nil:
		return nil, err
	case !named.Mode().IsRegular():
		return nil, irregular(name)
	}
	// Non-blocking: it may have become a pipe meanwhile.
	f, err := root.OpenFile(name, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && missing { // just made, by us or by somebody at the same time
		named, err = root.Lstat(name)
	}
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(info, named)) {
		err = irregular(name)
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func irregular(name string) error {
	return rung.Errorf(rung.KindUnavailable, "%s is not a regular file, or was replaced while it was opened", name).
		WithHint("only rung's own user can write there: find out who put it there, and remove it")
}
