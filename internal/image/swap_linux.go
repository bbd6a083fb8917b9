package image

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// swap puts the directory at from in place of the one at to, and that at from: in one step, so that no reader finds nothing.
func swap(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) { // a file system without it
		return swapInSteps(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: from, New: to, Err: err}
	}
	return nil
}
