//go:build linux

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// bpfMap makes a map of one entry: the smallest thing bpf(2) makes.
func bpfMap() (int, error) {
	attr := struct{ kind, key, value, entries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	n, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// ioUring makes a ring of one entry.
func ioUring() (int, error) {
	var params [120]byte // struct io_uring_params, all zero
	n, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// typeInto puts a byte into a terminal's input as if somebody had typed it.
func typeInto(tty int) error {
	b := byte('x')
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(tty), unix.TIOCSTI, uintptr(unsafe.Pointer(&b))); e != 0 {
		return e
	}
	return nil
}
