//go:build linux

package seccomp

import (
	"encoding/binary"
	"unsafe"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

// Layout of struct seccomp_notif: id u64, pid u32, flags u32, then struct seccomp_data: nr s32, arch u32, instruction
// pointer u64, six arguments u64. struct seccomp_notif_resp: id u64, val s64, error s32, flags u32. A newer kernel may
// append to both; it says how much, and gets buffers of that size.
const (
	noteSize, answerSize         = 80, 24
	maxNoteSize                  = 4096
	idValid              uintptr = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
)

// note is one attempt, waiting for its answer.
type note struct {
	id   uint64
	tid  int // the thread, in our pid namespace; 0 when it is not there
	nr   int
	args [6]uint64
}

// notes are the buffers to receive and answer with.
type notes struct{ in, out []byte }

func newNotes() (*notes, error) {
	var sizes struct{ notif, resp, data uint16 }
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&sizes)))
	if e != 0 {
		return nil, rung.Errorf(rung.KindUnavailable, "this kernel does not report denied system calls: %w", e).
			WithHint("it needs Linux 5.0 or newer")
	}
	if sizes.notif < noteSize || sizes.resp < answerSize || sizes.notif > maxNoteSize || sizes.resp > maxNoteSize {
		return nil, rung.Errorf(rung.KindInternal, "the kernel's seccomp notification has an unknown form")
	}
	return &notes{in: make([]byte, sizes.notif), out: make([]byte, sizes.resp)}, nil
}

func (b *notes) receive(fd int) (note, error) {
	clear(b.in) // the kernel refuses a buffer with something in it
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&b.in[0]))); e != 0 {
		return note{}, e
	}
	le := binary.NativeEndian
	n := note{id: le.Uint64(b.in), tid: int(int32(le.Uint32(b.in[8:]))), nr: int(int32(le.Uint32(b.in[16:])))}
	for i := range n.args {
		n.args[i] = le.Uint64(b.in[32+8*i:])
	}
	return n, nil
}

func (b *notes) answer(fd int, id uint64, errno unix.Errno) error {
	clear(b.out) // flags stay zero
	le := binary.NativeEndian
	le.PutUint64(b.out, id)
	le.PutUint32(b.out[16:], uint32(-int32(errno)))
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&b.out[0]))); e != 0 {
		return e
	}
	return nil
}

func (b *notes) valid(fd int, id uint64) bool {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), idValid, uintptr(unsafe.Pointer(&id)))
	return e == 0
}

// load gives the calling thread, and with it every thread of the process, the filter.
func load(filter []byte, flags uintptr) (uintptr, unix.Errno) {
	insns := make([]unix.SockFilter, len(filter)/8)
	for i := range insns {
		b := filter[8*i:]
		insns[i] = unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])}
	}
	prog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	return r, e
}
