//go:build unix

package posture

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung/internal/sys/measure"
)

// System is what Whereami looks at: the real one from Here, or one made up by a test.
type System struct {
	Root   string // where the files are: "/" outside tests
	Self   measure.Measurement
	Mounts []measure.Mount
	Getenv func(string) string
	// Open opens a file for reading or writing and closes it at once: whether it could be used, without using it.
	Open func(path string, write bool) error
	// Dial connects to a pathname socket and hangs up: whether somebody answers.
	Dial func(path string) error

	mountErr error
}

// dialTimeout bounds one connect. A local socket answers at once or its queue is full, which still means it is there.
const dialTimeout = 200 * time.Millisecond

// Here is the system this process runs on.
func Here() System {
	mounts, err := measure.Mounts()
	return System{
		Root: "/", Self: measure.Self(), Mounts: mounts, mountErr: err, Getenv: os.Getenv,
		Open: func(path string, write bool) error {
			flags := os.O_RDONLY
			if write {
				flags = os.O_WRONLY
			}
			f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
			if err != nil {
				return err
			}
			return f.Close()
		},
		Dial: func(path string) error {
			c, err := net.DialTimeout("unix", path, dialTimeout)
			if err != nil {
				return err
			}
			return c.Close()
		},
	}
}

// readCap is the most that is read of one file.
const readCap = 64 << 10

// read returns the beginning of a file, "" where there is none to be had: for signs that is the same as no sign. It opens
// without blocking and reads nothing that is not a regular file.
func (s System) read(path string) string {
	f, err := os.OpenFile(filepath.Join(s.Root, path), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, readCap))
	if err != nil {
		return ""
	}
	return string(text)
}

// word is the first line of a small file, fit for print.
func (s System) word(path string) string {
	line, _, _ := strings.Cut(s.read(path), "\n")
	return clean(strings.Trim(line, "\x00 "))
}

func (s System) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(s.Root, path))
	return err == nil
}

// maxNames bounds the listing of one directory.
const maxNames = 4096

func (s System) names(dir string) []string {
	f, err := os.OpenFile(filepath.Join(s.Root, dir), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(maxNames)
	if err != nil {
		return nil
	}
	return names
}

// top is the mount that lies on top at exactly this point.
func (s System) top(point string) (measure.Mount, bool) {
	for _, v := range slices.Backward(s.Mounts) {
		if v.Point == point {
			return v, true
		}
	}
	return measure.Mount{}, false
}
