package seccomp

import (
	"errors"
	"os"
	"runtime"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

// maxFilter is the kernel's limit for one filter: 4096 instructions of eight bytes.
const maxFilter = 4096 * 8

// Install gives this process, with all its threads and everything it will start, a filter, for good. It sets
// no-new-privileges on all of them too. With newListener it returns the listener, to be handed to Supervise in a process
// that the filter does not bind; the file is closed on exec.
//
// On an error no thread has the filter. A kernel before 5.7 cannot give a listener to a process with several threads, and
// every Go program has several: the error is then of KindUnavailable.
func Install(filter []byte, newListener bool) (*os.File, error) {
	if len(filter) == 0 || len(filter)%8 != 0 || len(filter) > maxFilter {
		return nil, rung.Errorf(rung.KindInternal, "a system call filter of %d bytes is none", len(filter))
	}
	runtime.LockOSThread() // no-new-privileges belongs to a thread; the kernel copies it to the others together with the filter
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "set no-new-privileges: %w", err)
	}
	// Of two ways to say which thread would not take the filter, the listener leaves only TSYNC_ESRCH: an error number.
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
	if newListener {
		// A thread whose attempt was received waits for the answer even when a signal comes, so that no attempt is counted
		// twice. Kernels before 5.19 do not know it.
		fd, e := load(filter, flags|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
		if e == unix.EINVAL {
			fd, e = load(filter, flags|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
		}
		if e != 0 {
			return nil, refused(e)
		}
		return os.NewFile(fd, "seccomp listener"), nil
	}
	_, e := load(filter, flags)
	if e == unix.EINVAL { // before 5.7; a thread's id is then the answer when it would not take the filter
		var tid uintptr
		if tid, e = load(filter, unix.SECCOMP_FILTER_FLAG_TSYNC); e == 0 && tid != 0 {
			e = unix.ESRCH
		}
	}
	if e != 0 {
		return nil, refused(e)
	}
	return nil, nil
}

func refused(e unix.Errno) error {
	err := rung.Errorf(rung.KindUnavailable, "the kernel refuses the system call filter: %w", e)
	switch {
	case errors.Is(e, unix.ESRCH):
		return err.WithHint("a thread of this program already has another filter")
	case errors.Is(e, unix.EBUSY):
		return err.WithHint("a filter above this process already reports to somebody; only one may")
	}
	return err.WithHint("it needs Linux 5.7 or newer with CONFIG_SECCOMP_FILTER")
}
