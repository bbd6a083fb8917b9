//go:build linux

package proc

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper collects every child of this process, the ones it started and the orphans that PID 1 (or a subreaper) inherits,
// and hands the status of the started ones over. It is the only caller of wait in the program: os/exec would race with it.
type reaper struct {
	mu      sync.Mutex // held over fork and registration, so that no child is collected before it is known
	waiting map[int]func(syscall.WaitStatus)
	wake    chan struct{} // there may be a child to wait for again
	kill    func(pid int, sig syscall.Signal) error
}

func newReaper(kill func(int, syscall.Signal) error) *reaper {
	r := &reaper{waiting: map[int]func(syscall.WaitStatus){}, wake: make(chan struct{}, 1), kill: kill}
	go r.run()
	return r
}

// start forks under the lock and registers what is to happen at the child's end. ended must not block.
func (r *reaper) start(fork func() (int, error), ended func(syscall.WaitStatus)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, err
	}
	r.waiting[pid] = ended
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return pid, nil
}

// signal sends sig to the pid if it was started here and is not collected yet: only then is the number certainly its own.
func (r *reaper) signal(pid int, group bool, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.waiting[pid]; !ok {
		return syscall.ESRCH
	}
	if group {
		pid = -pid
	}
	return r.kill(pid, sig)
}

func (r *reaper) run() {
	for {
		// WNOWAIT leaves the child uncollected until the lock is held.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			<-r.wake
			continue
		}
		r.collect()
	}
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			ended(status)
		}
	}
}
