package measure

import (
	"strconv"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

// readCap is the most that is read of one /proc file. Only mountinfo comes near it.
const readCap = 64 << 10

// reader reads files below one descriptor of /proc, all into one buffer: what read returns is valid until the next call.
type reader struct {
	proc int
	err  error // why proc is not open
	buf  []byte
}

func openProc() *reader {
	r := &reader{}
	r.proc, r.err = open(unix.AT_FDCWD, "/proc", unix.O_PATH|unix.O_DIRECTORY)
	if r.err == nil {
		r.err = onProc(r.proc)
	}
	return r
}

func (r *reader) close() {
	if r.proc >= 0 {
		unix.Close(r.proc) // nothing was written, so there is no error worth telling
	}
}

// onProc refuses what merely lies at /proc's place: a directory or file from an image, or a bind over a single file.
func onProc(fd int) error {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return err
	}
	if int64(st.Type) != unix.PROC_SUPER_MAGIC {
		return rung.Errorf(rung.KindInvalid, "not on a proc file system")
	}
	return nil
}

// read returns the first readCap bytes of a file below /proc.
func (r *reader) read(name string) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.readAt(r.proc, name, onProc)
}

// readAt opens without blocking, so that a FIFO laid in the way cannot hold the measurement.
func (r *reader) readAt(dir int, name string, check func(int) error) ([]byte, error) {
	fd, err := open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := check(fd); err != nil {
		return nil, err
	}
	if r.buf == nil {
		r.buf = make([]byte, readCap)
	}
	n := 0
	for n < len(r.buf) {
		k := 0
		err := retry(func() (e error) { k, e = unix.Read(fd, r.buf[n:]); return e })
		if err != nil {
			return nil, err
		}
		if k <= 0 {
			break
		}
		n += k
	}
	return r.buf[:n], nil
}

func (r *reader) link(name string) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	var buf [64]byte // "kind:[inode]" is at most 30 bytes; a longer target is cut and fails the caller's check
	n, err := unix.Readlinkat(r.proc, name, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// descriptors lists the open descriptors without the one used for listing.
func (r *reader) descriptors() ([]int, error) {
	if r.err != nil {
		return nil, r.err
	}
	dir, err := open(r.proc, "self/fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	if err := onProc(dir); err != nil {
		return nil, err
	}
	var list []int
	var names []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if fd, err := strconv.Atoi(name); err == nil && fd != dir {
				list = append(list, fd)
			}
		}
	}
	return list, nil
}

func open(dir int, name string, flags int) (fd int, err error) {
	err = retry(func() (e error) { fd, e = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0); return e })
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// retry repeats a call that a signal interrupted: Go's scheduler sends itself signals all the time.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
