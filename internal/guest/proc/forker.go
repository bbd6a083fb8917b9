//go:build linux

package proc

import (
	"runtime"
	"syscall"
)

// Forker is the one thread that forks: a process inherits its capability sets from the thread that forks it, and this
// thread's were emptied before it was let near a request.
type Forker struct{ jobs chan job }

type job struct {
	path string
	argv []string
	attr *syscall.ProcAttr
	done chan<- forked
}

type forked struct {
	pid int
	err error
}

// NewForker starts the thread and runs prepare on it; nil prepares nothing. The thread lives as long as the program.
func NewForker(prepare func() error) (*Forker, error) {
	f := &Forker{jobs: make(chan job)}
	ready := make(chan error, 1)
	go f.run(prepare, ready)
	return f, <-ready
}

func (f *Forker) run(prepare func() error, ready chan<- error) {
	runtime.LockOSThread() // never unlocked
	if prepare != nil {
		if err := prepare(); err != nil {
			ready <- err
			return
		}
	}
	ready <- nil
	for j := range f.jobs {
		pid, err := syscall.ForkExec(j.path, j.argv, j.attr)
		j.done <- forked{pid, err}
	}
}

func (f *Forker) forkExec(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	done := make(chan forked, 1)
	f.jobs <- job{path, argv, attr, done}
	r := <-done
	return r.pid, r.err
}
