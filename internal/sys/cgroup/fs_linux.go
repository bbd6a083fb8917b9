package cgroup

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dir is one open directory of a hierarchy. Everything below it is reached through the descriptor: the path may mean
// something else by then, the descriptor cannot.
type dir struct {
	path        string
	fd          int
	controllers []string
}

func openDir(at int, name, path string, controllers []string) (*dir, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &dir{path: path, fd: fd, controllers: controllers}, nil
}

func (d *dir) close() { _ = unix.Close(d.fd) }

// read returns a control file's text without the final newline, at most 64 KiB of it.
func (d *dir) read(name string) (string, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: d.path + "/" + name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	s, err := readFD(fd, 64<<10)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: d.path + "/" + name, Err: err}
	}
	return strings.TrimSuffix(s, "\n"), nil
}

// readFD reads a control file from its start. Control files are generated on read, and may come in pieces.
func readFD(fd, limit int) (string, error) {
	var small [4096]byte
	n, err := retry(func() (int, error) { return unix.Pread(fd, small[:], 0) })
	if err != nil {
		return "", err
	}
	b := append([]byte(nil), small[:n]...)
	for n > 0 && len(b) < limit {
		n, err = retry(func() (int, error) { return unix.Pread(fd, small[:], int64(len(b))) })
		if err != nil {
			return "", err
		}
		b = append(b, small[:n]...)
	}
	return string(b), nil
}

// write sets a control file in one write: the kernel parses each write on its own.
func (d *dir) write(name, value string) error {
	fd, err := unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: d.path + "/" + name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := retry(func() (int, error) { return unix.Write(fd, []byte(value)) }); err != nil {
		return &os.PathError{Op: "write " + value + " to", Path: d.path + "/" + name, Err: err}
	}
	return nil
}

// set writes a number and returns what the kernel kept.
func (d *dir) set(name string, value int64) (int64, error) {
	if err := d.write(name, strconv.FormatInt(value, 10)); err != nil {
		return 0, err
	}
	return d.number(name)
}

// number reads a control file that holds one number; "max" and anything beyond int64 read as 0, no limit.
func (d *dir) number(name string) (int64, error) {
	s, err := d.read(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if s == "max" || errors.Is(err, strconv.ErrRange) {
		return 0, nil
	}
	if err != nil {
		return 0, &os.PathError{Op: "parse", Path: d.path + "/" + name, Err: err}
	}
	return int64(n), nil
}

// subdirs names the groups below d.
func (d *dir) subdirs() ([]string, error) {
	f, err := openDir(d.fd, ".", d.path, nil)
	if err != nil {
		return nil, err
	}
	list := os.NewFile(uintptr(f.fd), d.path)
	defer func() { _ = list.Close() }()
	entries, err := list.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func retry[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err != unix.EINTR {
			return v, err
		}
	}
}

// field returns the number after key in a "key value" file, 0 when it is not there.
func field(text, key string) int64 {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64) // a counter the kernel garbled counts as none
			return n
		}
	}
	return 0
}
