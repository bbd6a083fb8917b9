//go:build linux

package harden

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropCaps keeps what is in kept of the permitted set, makes it effective, and empties the inheritable one, on all threads.
func dropCaps() error {
	_, perm, _, err := capget()
	if err != nil {
		return err
	}
	perm &= kept
	head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{
		{Effective: uint32(perm), Permitted: uint32(perm)},
		{Effective: uint32(perm >> 32), Permitted: uint32(perm >> 32)},
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(head)
	runtime.KeepAlive(data)
	if e != 0 {
		return e
	}
	return nil
}

func capget() (eff, perm, inh uint64, err error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return 0, 0, 0, err
	}
	join := func(low, high uint32) uint64 { return uint64(high)<<32 | uint64(low) }
	return join(data[0].Effective, data[1].Effective), join(data[0].Permitted, data[1].Permitted), join(data[0].Inheritable, data[1].Inheritable), nil
}
