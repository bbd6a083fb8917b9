package cgroup

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// Start starts cmd inside the group: there is no moment at which the new process, or a child of it, is outside. Under
// version 2 the kernel clones into the group (Linux 5.7). Version 1 has no such call, but a child is born into the groups
// of the thread that forks it: a thread of ours enters (15 µs each, see JoinPaths), forks, and goes back. Whatever state
// the caller gave its own thread is therefore not inherited.
func (g *Group) Start(cmd *exec.Cmd) error { return g.StartWith(cmd, cmd.Start) }

// StartWith is Start for somebody who starts what cmd describes in another way.
func (g *Group) StartWith(cmd *exec.Cmd, start func() error) error {
	if len(g.dirs) == 0 {
		return start()
	}
	if fd := g.FD(); fd >= 0 {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
		return start()
	}
	return g.Inside(start, cmd.SysProcAttr == nil || cmd.SysProcAttr.Pdeathsig == 0)
}

// Inside runs f on a thread that is in the group (version 1 only), so that whatever f forks is born there. The thread
// must go back afterwards; an ordinary user may enter a group it owns but not return to the root group, and then the
// thread has to end, which a child with a parent-death signal would take for the death of its parent: mayEnd says that f
// starts no such child.
func (g *Group) Inside(f func() error, mayEnd bool) error {
	if g.Version == 2 {
		return rung.Errorf(rung.KindUnsupported, "cgroup %s: threads are not moved under version 2", g.ID)
	}
	way, err := g.wayBack()
	defer closeAll(way)
	if err != nil && !mayEnd {
		return rung.Errorf(rung.KindUnavailable, "start inside cgroup %s with a parent-death signal: %w", g.ID, err)
	}
	return onThread(func() (back bool, err error) {
		err = g.enter()
		if err == nil {
			err = f()
		}
		return g.leave(way), err
	})
}

// enter moves the calling thread into the group.
func (g *Group) enter() error {
	for _, d := range g.dirs {
		if err := d.write("tasks", "0"); err != nil {
			return rung.Errorf(rung.KindUnavailable, "enter cgroup %s: %w", g.ID, err)
		}
	}
	return nil
}

// leave moves the calling thread back to where its process is, and reports whether all of it succeeded.
func (g *Group) leave(way []int) bool {
	ok := len(way) == len(g.dirs)
	for _, fd := range way {
		_, err := retry(func() (int, error) { return unix.Write(fd, []byte("0")) })
		ok = ok && err == nil
	}
	return ok
}

// wayBack opens the tasks files of our own groups. They are opened before the thread moves, because permission is
// decided then.
func (g *Group) wayBack() (fds []int, err error) {
	for _, d := range g.dirs {
		own := ""
		for i := range g.layout.trees {
			if t := &g.layout.trees[i]; slices.Contains(t.controllers, d.controllers[0]) {
				own = t.own
			}
		}
		if own == "" {
			return fds, errors.New("rung's own cgroup is not visible")
		}
		fd, err := unix.Open(own+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fds, rung.Errorf(rung.KindUnavailable, "open %s/tasks: %w", own, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// onThread runs f on some thread but the main one, and ends that thread if f says it is not back. The main thread is
// spared because memory is charged to the group of its process's leader, and because it cannot end.
func onThread(f func() (back bool, err error)) error {
	done := make(chan error, 1)
	stray := 0 // the thread that has to end
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			other := make(chan struct{})
			go func() { // cannot run here, where this goroutine is locked
				defer close(other)
				run()
			}()
			<-other
			runtime.UnlockOSThread()
			return
		}
		back, err := f()
		if back {
			runtime.UnlockOSThread()
		} else {
			stray = unix.Gettid()
		}
		done <- err
	}
	go run()
	err := <-done
	if stray != 0 {
		awaitEnd(stray)
	}
	return err
}

// awaitEnd waits for a thread of ours to be gone: until then our whole process counts as a member of the group.
func awaitEnd(tid int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for wait := 20 * time.Microsecond; unix.Tgkill(unix.Getpid(), tid, 0) != unix.ESRCH; wait = min(2*wait, time.Millisecond) {
		if pause(ctx, wait) != nil {
			return
		}
	}
}
