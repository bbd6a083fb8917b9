//go:build linux

package confine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raiseEffective makes all permitted capabilities effective again on every thread: leaving uid 0 cleared the effective
// set only (capabilities(7), "Effect of user ID changes").
func raiseEffective() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return e
	}
	return nil
}
