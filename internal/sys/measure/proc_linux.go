package measure

import (
	"strconv"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

// readCap is the most that is read of one small file. oneRead is what a file of /proc surely returns in its first read when
// it is that short: the kernel fills a page with whole records, and no record of the files read here is half a page long.
// So a first read shorter than oneRead is the whole file, which spares a call for each.
const (
	readCap = 8 << 10
	oneRead = 2 << 10
)

// mountCap is the most that is read of mountinfo, whose lines can be long (overlay file systems name all their layers).
const mountCap = 1 << 20

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
	n, err := fill(fd, r.buf, oneRead)
	return r.buf[:n], err
}

// mounts reads the process's mount table.
func (r *reader) mounts() ([]Mount, error) {
	if r.err != nil {
		return nil, r.err
	}
	fd, err := open(r.proc, "self/mountinfo", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := onProc(fd); err != nil {
		return nil, err
	}
	buf := make([]byte, mountCap)
	n, err := fill(fd, buf, 0)
	if err != nil {
		return nil, err
	}
	return ParseMountInfo(buf[:n])
}

// fill reads until the end, until buf is full, or until a read returns less than short.
func fill(fd int, buf []byte, short int) (n int, err error) {
	for n < len(buf) {
		k := 0
		err := retry(func() (e error) { k, e = unix.Read(fd, buf[n:]); return e })
		if err != nil {
			return 0, err
		}
		n += max(k, 0)
		if k <= 0 || k < short {
			break
		}
	}
	return n, nil
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
