//go:build linux

package proc

import "syscall"

// Forker is the one thread that forks: a process inherits its capability sets from the thread that forks it, and this
// thread's were emptied before it was let near a request. It sends the signals too: under Landlock each thread of this
// program has a domain of its own, and a process takes signals only from the domain it was forked in (kernel,
// Documentation/userspace-api/landlock.rst, "IPC scoping").
type Forker struct{ jobs chan func() }

// NewForker returns a forker; its thread is the one that calls Run.
func NewForker() *Forker { return &Forker{jobs: make(chan func())} }

// Run makes the calling thread the one that forks, until stop is closed. The caller's goroutine must be locked to it.
func (f *Forker) Run(stop <-chan struct{}) {
	for {
		select {
		case job := <-f.jobs:
			job()
		case <-stop:
			return
		}
	}
}

// do runs a job on the thread and waits for it.
func (f *Forker) do(job func()) {
	done := make(chan struct{})
	f.jobs <- func() { job(); close(done) }
	<-done
}

func (f *Forker) forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	f.do(func() { pid, err = syscall.ForkExec(path, argv, attr) })
	return pid, err
}

func (f *Forker) kill(pid int, sig syscall.Signal) (err error) {
	f.do(func() { err = syscall.Kill(pid, sig) })
	return err
}

func (f *Forker) witness(w *witness) (pid int, err error) {
	f.do(func() { pid, err = w.fork() })
	return pid, err
}
