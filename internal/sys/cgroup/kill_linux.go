package cgroup

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// Kill ends every process in the group and returns when none is left; nothing can be started in it afterwards. Bounded by
// ctx and by five seconds.
func (g *Group) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if g.kill >= 0 {
		_, err := retry(func() (int, error) { return unix.Write(g.kill, []byte("1")) })
		if err == nil || gone(err) {
			return g.settle(ctx, false)
		}
	}
	// No atomic kill: forbid forking first, so that the members can only become fewer and one round is usually enough.
	if d := g.with("pids"); d != nil {
		_ = d.write("pids.max", "0") // where it fails the rounds go on until nobody is left
	}
	return g.settle(ctx, true)
}

// settle waits until the group is empty, signalling its members each round where the kernel has not done so.
func (g *Group) settle(ctx context.Context, signal bool) error {
	for wait := time.Millisecond / 4; ; wait = min(2*wait, 20*time.Millisecond) {
		pids, err := g.Procs()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if signal {
			err = g.signal(pids)
		}
		if pause(ctx, wait) != nil {
			return rung.Errorf(rung.KindTimeout, "kill cgroup %s: processes %v are still there: %w", g.ID, pids, errors.Join(err, ctx.Err()))
		}
	}
}

// signal kills the listed members by pidfd. A pid may have been reused since it was read: only those that are still
// members after their pidfd was opened are killed, and that pidfd cannot change its meaning.
func (g *Group) signal(pids []int) error {
	const batch = 256 // bounds the descriptors held at once
	var failed error
	for start := 0; start < len(pids); start += batch {
		part := pids[start:min(start+batch, len(pids))]
		fds := map[int]int{}
		for _, pid := range part {
			if pid <= 0 { // not visible in this PID namespace; as a pid it would mean our own process group
				failed = errors.Join(failed, errors.New("a member is outside this PID namespace"))
				continue
			}
			if pid == unix.Getpid() {
				failed = errors.Join(failed, errors.New("we are a member ourselves"))
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				fds[pid] = fd
			} else if err != unix.ESRCH {
				failed = errors.Join(failed, err)
			}
		}
		still, err := g.Procs()
		failed = errors.Join(failed, err)
		for _, pid := range still {
			if fd, ok := fds[pid]; ok {
				if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
					failed = errors.Join(failed, err)
				}
			}
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	return failed
}
