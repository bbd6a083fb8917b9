//go:build linux

package proc

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/internal/sys/measure"
)

// The runtime's hooks around a fork, as package syscall uses them: all signals blocked, and in the child no handlers and no
// growth of the stack.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// witness is everything the child needs, made before the fork: it must not allocate. Both processes see it.
type witness struct {
	steps    []measure.Step
	buf      []byte        // the records
	used     uintptr       // of buf
	refused  syscall.Errno // why it could not become the user
	switched bool
	uid, gid uintptr
}

// witnessBuffer holds the most that a witness may have to say: its files in full, and little else.
const witnessBuffer = 10 * (measure.RecordHead + measure.WitnessBuffer)

// Witness forks a process as user processes are forked, has it become the user, and returns what it found out about itself
// (see package measure). It is a process like those that follow, from the same thread, with the same calls, but for the
// exec, which with an empty bounding set and no_new_privs can add nothing. It does some four hundred system calls on files
// of the kernel's, during which this program stands still; the client, which waits for the answer, bounds that.
func (t *Table) Witness(cred *syscall.Credential) (measure.Measurement, error) {
	wit := &witness{steps: measure.Steps(), buf: make([]byte, witnessBuffer)}
	if cred != nil {
		wit.switched, wit.uid, wit.gid = true, uintptr(cred.Uid), uintptr(cred.Gid)
	}
	_, err := t.reap.start(func() (int, error) { return t.cfg.Forker.witness(wit) }, func(syscall.WaitStatus) {})
	if err != nil {
		return measure.Measurement{}, fmt.Errorf("fork a witness: %w", err)
	}
	if wit.refused != 0 {
		return measure.Measurement{}, &os.SyscallError{Syscall: "become the user", Err: wit.refused}
	}
	return measure.Witnessed(wit.buf[:wit.used]), nil
}

// fork runs on the forking thread.
func (w *witness) fork() (int, error) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	r := w.clone()
	if errno := -int(r); errno > 0 && errno < 4096 {
		return 0, syscall.Errno(errno)
	}
	return int(r), nil
}

// clone returns in the parent only, when the child has ended. What the parent uses after the fork must not be on the stack:
// the child has been there.
//
//go:noinline
//go:norace
//go:nocheckptr
func (w *witness) clone() uintptr {
	beforeFork()
	r := rawVfork(witnessFlags | uintptr(syscall.SIGCHLD))
	if r != 0 {
		afterFork()
		return r
	}
	// The child: no allocation, no lock, no stack growth, only bare system calls.
	afterForkInChild()
	w.testify()
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func (w *witness) testify() {
	var errno syscall.Errno
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if w.switched {
		_, _, errno = syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		if errno == 0 {
			_, _, errno = syscall.RawSyscall(unix.SYS_SETGID, w.gid, 0, 0)
		}
		if errno == 0 {
			_, _, errno = syscall.RawSyscall(unix.SYS_SETUID, w.uid, 0, 0)
		}
	}
	if w.refused = errno; errno != 0 {
		return
	}
	var last, size uintptr // where the previous result begins, and its length
	for i := range w.steps {
		s := &w.steps[i]
		if s.SkipMask != 0 && size >= s.SkipAt+8 && *(*uint64)(w.at(last + s.SkipAt))&s.SkipMask != 0 {
			continue
		}
		if w.used > uintptr(len(w.buf))-measure.RecordHead-measure.WitnessBuffer {
			return // steps that are missing are fields that were not measured
		}
		last = w.used + measure.RecordHead
		n, errno := w.step(s, w.at(last))
		if errno != 0 {
			n = 0
		}
		h := (*[2]uint16)(w.at(w.used))
		h[0], h[1] = uint16(i), uint16(errno)
		*(*uint32)(w.at(w.used + 4)) = uint32(n)
		w.used, size = last+n, n
	}
}

// at is a place in the buffer.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (w *witness) at(offset uintptr) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.buf)), offset)
}

// step does one step and returns the length of its result, which is at body.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (w *witness) step(s *measure.Step, body unsafe.Pointer) (n uintptr, errno syscall.Errno) {
	const at = ^uintptr(99) // AT_FDCWD, -100
	switch {
	case s.File != nil:
		return w.read(s.File, uintptr(body))
	case s.Link != nil:
		n, _, errno = syscall.RawSyscall6(unix.SYS_READLINKAT, at, uintptr(unsafe.Pointer(s.Link)), uintptr(body), 256, 0, 0)
		return n, errno
	case s.Count > 0:
		a1, a2 := s.A1, s.A2
		for n = 0; n < s.Count; n++ {
			if s.Vary == 1 {
				a1 = n
			} else {
				a2 = n
			}
			r, _, errno := syscall.RawSyscall(s.Call, a1, a2, s.A3)
			if errno != 0 {
				r = measure.WitnessRefused | uintptr(errno)
			}
			*(*byte)(unsafe.Add(body, n)) = byte(r)
		}
		return n, 0
	}
	a1, a2 := s.A1, s.A2
	switch s.Buffer {
	case 1:
		a1 = uintptr(body)
	case 2:
		a2 = uintptr(body)
	}
	r, _, errno := syscall.RawSyscall(s.Call, a1, a2, s.A3)
	switch {
	case s.Buffer == 0:
		*(*uint64)(body) = uint64(r)
		return 8, errno
	case s.Call == unix.SYS_GETGROUPS:
		return r * 4, errno
	}
	return s.Size, errno
}

// read reads a file to its end or up to a full buffer.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (w *witness) read(file *byte, body uintptr) (n uintptr, errno syscall.Errno) {
	const at = ^uintptr(99)
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, at, uintptr(unsafe.Pointer(file)), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	for n < measure.WitnessBuffer {
		k, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, body+n, measure.WitnessBuffer-n)
		if errno = e; errno != 0 {
			break
		}
		n += k
		if k < measure.WitnessRead {
			break
		}
	}
	syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	return n, errno
}
