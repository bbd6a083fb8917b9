//go:build linux && (amd64 || arm64)

package proc

import (
	_ "unsafe" // for the assembly

	"golang.org/x/sys/unix"
)

// witnessFlags: the witness shares our memory and we wait for its end, as with every program that is started. A copy of the
// memory would cost more than the witness itself, on gVisor a hundred times as much.
const witnessFlags = unix.CLONE_VM | unix.CLONE_VFORK

// rawVfork clones with the flags and returns what the kernel returned.
//
//go:noescape
func rawVfork(flags uintptr) uintptr
