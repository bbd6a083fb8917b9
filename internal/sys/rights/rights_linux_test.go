package rights_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/internal/sys/rights"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

func open(t *testing.T, n int) (files []*os.File) {
	t.Helper()
	for range n {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestFilesArrive(t *testing.T) {
	a, b := pair(t)
	for n := range 4 {
		if err := rights.Send(a, []byte("x"), open(t, n)...); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 8)
		got, read, err := rights.Receive(b, text, 3)
		if err != nil || read != 1 || len(got) != n {
			t.Fatalf("%d files: %d files, %d bytes, %v", n, len(got), read, err)
		}
		for _, f := range got {
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("a received file would be inherited: %v", err)
			}
		}
		rights.Close(got)
	}
	a.Close()
	if got, n, err := rights.Receive(b, make([]byte, 1), 1); len(got) != 0 || n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d files, %d bytes, %v", len(got), n, err)
	}
}

func TestTooManyAreClosed(t *testing.T) {
	a, b := pair(t)
	for _, n := range []int{2, 3, 9} {
		sent := open(t, n)
		before := descriptors(t)
		if err := rights.Send(a, []byte("x"), sent...); err != nil {
			t.Fatal(err)
		}
		if got, _, err := rights.Receive(b, make([]byte, 1), 1); !errors.Is(err, rights.ErrTooMany) || got != nil {
			t.Errorf("%d files: %v, %v", n, got, err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d files: %d descriptors, before %d", n, after, before)
		}
	}
}
