package main

import (
	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// harden makes this process's memory its own before a value is in it: no core dump, also none of a source's program, since
// the limit is inherited and a hard one; no tracer and no /proc/PID/mem of other processes of this user (prctl(2),
// PR_SET_DUMPABLE; ptrace(2)); no swap where the memory may be locked, which is root's privilege.
func harden() error {
	unix.CloseOnExec(leaseFD)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return rung.Errorf(rung.KindUnavailable, "core dumps cannot be forbidden: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return rung.Errorf(rung.KindUnavailable, "core dumps cannot be forbidden: %w", err)
	}
	_ = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT) // best effort: an ordinary user's limit is too low
	return nil
}
