package userns

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// ForMapping makes a user namespace that maps ids owner..owner+size-1 to host..host+size-1, for users and groups alike.
// As the map of an idmapped mount it shows a file that its file system says belongs to owner+x as belonging to host id
// host+x; a process of a sandbox whose own namespace maps 0 to host then sees x. So a template unpacked as root has owner
// 0, one whose files lie in a subordinate range has the start of that range. The caller must be privileged over both
// ranges, and /proc must be the one of its PID namespace. The namespace lives as long as the file is open or used.
func ForMapping(owner, host, size uint32) (*os.File, error) {
	m := []rung.IDMap{{Inside: owner, Host: host, Size: size}}
	if err := checkMaps(m); err != nil {
		return nil, err
	}
	// With another namespace's /proc the child's number would name somebody else.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, rung.Errorf(rung.KindUnavailable, "make a user namespace: /proc is not that of this PID namespace")
	}
	runtime.LockOSThread() // the child dies with its parent thread, which therefore must not end before it
	defer runtime.UnlockOSThread()
	pid, err := park()
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "make a user namespace: clone: %w", err).
			WithHint("allow user namespaces: sysctl user.max_user_namespaces (and kernel.unprivileged_userns_clone, where it exists)")
	}
	defer end(pid)
	f, err := settle(pid, mapText(m))
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "make a user namespace of ids %d to %d, %d of them: %w", owner, host, size, err)
	}
	return f, nil
}

// settle writes the maps of the child's namespace and opens it.
func settle(pid int, text string) (*os.File, error) {
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/" + strconv.Itoa(pid), Err: err}
	}
	defer func() { _ = unix.Close(proc) }()
	for _, name := range []string{"uid_map", "gid_map"} {
		fd, err := unix.Openat(proc, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(text))
			_ = unix.Close(fd)
		}
		if err != nil {
			return nil, &os.PathError{Op: "write", Path: name, Err: err}
		}
	}
	fd, err := unix.Openat(proc, "ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "ns/user", Err: err}
	}
	return os.NewFile(uintptr(fd), "user namespace"), nil
}

// end kills the child and takes its end. It sends no signal when it ends, so that nobody's wait for any child gets it.
func end(pid int) {
	_ = unix.Kill(pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(pid, nil, unix.WCLONE, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
