//go:build unix

// Package below opens files below a directory that others may have written into: by no link, and nothing but files.
package below

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// What a name can turn out to be.
var (
	ErrIrregular = errors.New("not a regular file")
	ErrReplaced  = errors.New("replaced while it was opened")
)

// Open opens a regular file below root, never by a link: O_NOFOLLOW does not keep os.Root from following links that stay
// inside, so what has the name is compared with what was opened, and looked at before, so that opening changes nothing of
// what is no file. ErrIrregular and ErrReplaced are its own; other errors are the system's.
func Open(root *os.Root, name string, flags int) (*os.File, fs.FileInfo, error) {
	named, err := root.Lstat(name)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && flags&os.O_CREATE != 0:
	case err != nil:
		return nil, nil, err
	case !named.Mode().IsRegular():
		return nil, nil, ErrIrregular
	}
	// Non-blocking: it may have become a pipe meanwhile.
	f, err := root.OpenFile(name, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && missing { // just made, by us or by somebody at the same time
		named, err = root.Lstat(name)
	}
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = ErrIrregular
	case !os.SameFile(info, named):
		err = ErrReplaced
		if now, e := root.Lstat(name); e == nil && !now.Mode().IsRegular() {
			err = ErrIrregular // a link has led elsewhere
		}
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// Private reports whether a file is this user's and nobody else may read or write it.
func Private(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}
