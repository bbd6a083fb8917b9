//go:build linux

package proc

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
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

// witness is everything the child needs, made before the fork: it must not allocate.
type witness struct {
	steps    []measure.Step
	buf      []byte
	fd       int // our pipe
	switched bool
	uid, gid uintptr
}

// witnessTimeout bounds a witness; it does some four hundred system calls.
const witnessTimeout = 5 * time.Second

// Witness forks a process as user processes are forked, has it become the user, and returns what it found out about itself
// (see package measure). It is a process like those that follow, from the same thread, with the same calls, but for the
// exec, which with an empty bounding set and no_new_privs can add nothing.
func (t *Table) Witness(cred *syscall.Credential) (measure.Measurement, error) {
	var m measure.Measurement
	r, w, err := makePipe()
	if err != nil {
		return m, err
	}
	in := ours(r, "witness")
	defer in.Close()
	wit := &witness{steps: measure.Steps(), buf: make([]byte, measure.RecordHead+measure.WitnessBuffer), fd: w}
	if cred != nil {
		wit.switched, wit.uid, wit.gid = true, uintptr(cred.Uid), uintptr(cred.Gid)
	}
	_, err = t.reap.start(func() (int, error) { return t.cfg.Forker.witness(wit) }, func(syscall.WaitStatus) {})
	unix.Close(w)
	if err != nil {
		return m, fmt.Errorf("fork a witness: %w", err)
	}
	if err := in.SetReadDeadline(time.Now().Add(witnessTimeout)); err != nil {
		return m, err
	}
	out, err := io.ReadAll(io.LimitReader(in, maxTestimony))
	if err != nil {
		return m, fmt.Errorf("hear the witness: %w", err)
	}
	if len(out) == 4 {
		return m, &os.SyscallError{Syscall: "become the user", Err: syscall.Errno(*(*uint32)(unsafe.Pointer(unsafe.SliceData(out))))}
	}
	return measure.Witnessed(out), nil
}

const maxTestimony = 1 << 20

// fork runs on the forking thread.
func (w *witness) fork() (int, error) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	pid, errno := w.clone()
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

//go:noinline
//go:norace
//go:nocheckptr
func (w *witness) clone() (uintptr, syscall.Errno) {
	beforeFork()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
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
	head := uintptr(unsafe.Pointer(unsafe.SliceData(w.buf)))
	body := head + measure.RecordHead
	if errno != 0 {
		*(*uint32)(unsafe.Pointer(unsafe.SliceData(w.buf))) = uint32(errno)
		syscall.RawSyscall(syscall.SYS_WRITE, uintptr(w.fd), head, 4)
		return
	}
	for i := range w.steps {
		s := &w.steps[i]
		var n, fd uintptr
		switch {
		case s.File != nil:
			const at = ^uintptr(99) // AT_FDCWD, -100
			fd, _, errno = syscall.RawSyscall6(unix.SYS_OPENAT, at, uintptr(unsafe.Pointer(s.File)), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0, 0, 0)
			if errno == 0 {
				for n < measure.WitnessBuffer {
					var k uintptr
					k, _, errno = syscall.RawSyscall(syscall.SYS_READ, fd, body+n, measure.WitnessBuffer-n)
					if errno != 0 || k == 0 {
						break
					}
					n += k
				}
				syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
			}
		case s.Link != nil:
			const at = ^uintptr(99)
			n, _, errno = syscall.RawSyscall6(unix.SYS_READLINKAT, at, uintptr(unsafe.Pointer(s.Link)), body, 256, 0, 0)
		default:
			a1, a2, a3 := s.A1, s.A2, s.A3
			switch s.Buffer {
			case 1:
				a1 = body
			case 2:
				a2 = body
			}
			var r uintptr
			r, _, errno = syscall.RawSyscall6(s.Call, a1, a2, a3, 0, 0, 0)
			n = s.Size
			if s.Call == unix.SYS_GETGROUPS {
				n = r * 4
			}
			if s.Buffer == 0 {
				*(*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.buf)), measure.RecordHead)) = uint64(r)
				n = 8
			}
		}
		if errno != 0 {
			n = 0
		}
		h := (*[2]uint16)(unsafe.Pointer(unsafe.SliceData(w.buf)))
		h[0], h[1] = uint16(i), uint16(errno)
		*(*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.buf)), 4)) = uint32(n)
		syscall.RawSyscall(syscall.SYS_WRITE, uintptr(w.fd), head, measure.RecordHead+n)
	}
}
