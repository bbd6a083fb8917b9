//go:build linux && (amd64 || arm64)

package userns

import (
	"syscall"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// The runtime's own preparations around a fork: they block all signals on this thread and let it go on. The child keeps
// them blocked, which is what makes it harmless: a Go signal handler must never run in it. Package syscall uses them the
// same way, and the runtime keeps these names for programs that fork by themselves.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// rawPark clones with the flags and returns what the kernel returned; the child does not return. It asks to die with its
// parent, ends by itself if that is not parent any more, and pauses for ever. It touches no memory.
//
//go:noescape
func rawPark(flags, parent uintptr) uintptr

// park clones a child into a new user namespace. It shares memory and descriptors with us, so that neither is copied.
//
//go:norace
//go:noinline
func park() (int, error) {
	parent := unix.Getpid()
	beforeFork()
	r := rawPark(unix.CLONE_VM|unix.CLONE_FILES|unix.CLONE_NEWUSER, uintptr(parent))
	afterFork()
	if errno := -int(r); errno > 0 && errno < 4096 {
		return 0, syscall.Errno(errno)
	}
	return int(r), nil
}
