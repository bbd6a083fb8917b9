//go:build linux

package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openPTY makes a terminal. It is opened as the user, who then owns the slave's name in /dev/pts.
func (io *stdio) openPTY(spec *Spec) error {
	var master, slave int
	err := spec.User.As(func() (err error) {
		master, slave, err = openpty()
		return err
	})
	if err != nil {
		return err
	}
	io.pty = ours(master, "pty")
	io.give(0, slave)
	io.theirs[1], io.theirs[2] = uintptr(slave), uintptr(slave)
	io.pipe[Stdout] = &pipe{file: io.pty, fd: master}
	io.input = io.pty
	return setSize(master, *spec.PTY)
}

func openpty() (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil {
			unix.Close(master)
		}
	}()
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, 0, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return 0, 0, err
	}
	slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	return master, slave, err
}

func setSize(fd int, s Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: s.Cols, Row: s.Rows})
}

// Resize changes the size of the process's terminal.
func (p *Process) Resize(s Size) error {
	if p.pty == nil {
		return ErrNoInput
	}
	raw, err := p.pty.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = setSize(int(fd), s) })
	if failed != nil {
		return failed
	}
	return err
}

// ScoreAdj lowers what the kernel's OOM killer thinks of the processes that are started, so that it takes them before this
// program, whose end would be the sandbox's. The value is inherited by fork, so this program takes it on for the fork's
// duration: the child's own file is not writable to another user.
type ScoreAdj struct {
	file *os.File
	own  []byte
}

// userScore is halfway to the most likely victim.
const userScore = "500"

// OpenScoreAdj must be called before the program becomes undumpable, as its file then belongs to root. It returns nil
// where the kernel does not let it: the score is a preference, no limit depends on it.
func OpenScoreAdj() *ScoreAdj {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	own := make([]byte, 8)
	n, err := f.ReadAt(own, 0)
	if v, e := strconv.Atoi(string(trim(own[:n]))); e != nil || n == 0 || v >= 500 {
		f.Close()
		return nil
	}
	_ = err // io.EOF: the value is shorter than the buffer
	return &ScoreAdj{f, own[:n]}
}

func trim(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}

func (s *ScoreAdj) prefer(user bool) {
	if s == nil {
		return
	}
	score := s.own
	if user {
		score = []byte(userScore)
	}
	s.file.WriteAt(score, 0) // best effort: see OpenScoreAdj
}
