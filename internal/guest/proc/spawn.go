//go:build linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartError says which step of a start failed; Err is the kernel's reason.
type StartError struct {
	Op  string // "cwd", "exec" or "io"
	Arg string
	Err error
}

func (e *StartError) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Arg, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// maxCandidates caps how many directories of a PATH are tried: each may cost a fork.
const maxCandidates = 64

// fork starts the program as the user, in a session of its own, with the three standard descriptors and no others (all
// others are close-on-exec). It has no capabilities: the user is not root, and nothing is inheritable or ambient.
func (t *Table) fork(spec *Spec, io *stdio) (int, error) {
	if err := checkDir(spec); err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: io.theirs[:],
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: spec.User.Credential(), Setctty: io.pty != nil},
	}
	argv := append([]string{spec.Path}, spec.Args...)
	t.cfg.OOM.prefer(true)
	defer t.cfg.OOM.prefer(false)
	err := error(syscall.ENOENT)
	for _, path := range candidates(spec) {
		pid, e := t.cfg.Forker.forkExec(path, argv, attr)
		if e == nil {
			return pid, nil
		}
		// As a shell does: go on when it is not there, and remember that something was there but not for us.
		if !errors.Is(e, syscall.ENOENT) && !errors.Is(e, syscall.ENOTDIR) {
			err = e
		}
		if !errors.Is(e, syscall.ENOENT) && !errors.Is(e, syscall.ENOTDIR) && !errors.Is(e, syscall.EACCES) {
			break
		}
	}
	return 0, &StartError{"exec", spec.Path, err}
}

// candidates are the paths to try. What certainly is not there is left out without a fork; whether the user may execute
// the rest only the kernel can say, as this program may see less of the tree than the user.
func candidates(spec *Spec) []string {
	if strings.Contains(spec.Path, "/") {
		return []string{spec.Path}
	}
	if spec.Path == "" {
		return nil
	}
	var list []string
	for _, kv := range spec.Env {
		path, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		list = nil // the last one counts
		for dir := range strings.SplitSeq(path, ":") {
			file := dir + "/" + spec.Path
			if !strings.HasPrefix(dir, "/") { // never the working directory
				continue
			}
			var st unix.Stat_t
			if err := unix.Stat(file, &st); err == nil || errors.Is(err, unix.EACCES) {
				list = append(list, file)
			}
			if len(list) == maxCandidates {
				break
			}
		}
	}
	return list
}

// checkDir tells a bad working directory from a bad program: the fork reports both the same way.
func checkDir(spec *Spec) error {
	check := func() error {
		var st unix.Stat_t
		if err := unix.Stat(spec.Dir, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return unix.ENOTDIR
		}
		return nil
	}
	err := check()
	if errors.Is(err, unix.EACCES) { // the user may see more
		err = spec.User.As(check)
	}
	if err != nil {
		return &StartError{"cwd", spec.Dir, err}
	}
	return nil
}

// stdio is the two sides of a process's standard descriptors.
type stdio struct {
	theirs [3]uintptr // as the child gets them
	own    []int      // their side, to be closed here after the fork
	input  *os.File   // our side of standard input; nil for /dev/null
	pipe   [outputs]*pipe
	pty    *os.File
}

func (io *stdio) closeTheirs() {
	for _, fd := range io.own {
		unix.Close(fd)
	}
	io.own = nil
}

func (io *stdio) closeOurs() {
	for _, p := range io.pipe {
		if p != nil {
			p.file.Close()
		}
	}
	if io.input != nil {
		io.input.Close()
	}
}

func openIO(spec *Spec) (io *stdio, err error) {
	io = &stdio{}
	defer func() {
		if err != nil {
			io.closeTheirs()
			io.closeOurs()
			io, err = nil, &StartError{"io", spec.Path, err}
		}
	}()
	if spec.PTY != nil {
		return io, io.openPTY(spec)
	}
	if spec.Stdin {
		r, w, err := makePipe()
		if err != nil {
			return io, err
		}
		io.give(0, r)
		io.input = ours(w, "stdin")
	} else {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return io, err
		}
		io.give(0, fd)
	}
	for i := range io.pipe {
		r, w, err := makePipe()
		if err != nil {
			return io, err
		}
		io.give(i+1, w)
		io.pipe[i] = &pipe{file: ours(r, "output"), fd: r}
	}
	return io, nil
}

func (io *stdio) give(at, fd int) {
	io.theirs[at] = uintptr(fd)
	io.own = append(io.own, fd)
}

func makePipe() (r, w int, err error) {
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	return fds[0], fds[1], err
}

// ours makes our side non-blocking, so that the runtime's poller waits for it and not a thread; the child's side is a
// description of its own and stays as programs expect it.
func ours(fd int, name string) *os.File {
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}
