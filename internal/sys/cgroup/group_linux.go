package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// bound is the longest any wait here takes when the caller's context has no deadline.
const bound = 5 * time.Second

// Open finds the group of that id again, for whoever clears up after a dead owner. KindNotFound when no part of it is left.
func (l Layout) Open(id string) (*Group, error) {
	if err := rung.ValidName(id); err != nil {
		return nil, err
	}
	g := l.group(id)
	for i := range l.trees {
		root, _ := l.root(&l.trees[i], false)
		if root == nil {
			continue
		}
		d, err := openDir(root.fd, id, root.path+"/"+id, root.controllers)
		root.close()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			g.Close()
			return nil, rung.Errorf(rung.KindInternal, "open cgroup: %w", err)
		}
		g.dirs = append(g.dirs, d)
	}
	if len(g.dirs) == 0 {
		return nil, rung.Errorf(rung.KindNotFound, "no cgroup of sandbox %s", id)
	}
	g.open()
	return g, nil
}

// List names every sandbox that has a group, of this user, sorted. Groups of an ordinary user's other systemd scopes are
// not seen from here; systemd removes them with their scope.
func (l Layout) List() ([]string, error) {
	var ids []string
	for i := range l.trees {
		root, _ := l.root(&l.trees[i], false)
		if root == nil {
			continue
		}
		names, err := root.subdirs()
		root.close()
		if err != nil {
			return nil, rung.Errorf(rung.KindInternal, "list cgroups: %w", err)
		}
		ids = append(ids, names...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// FD is the open directory for CLONE_INTO_CGROUP (SysProcAttr.UseCgroupFD), -1 when the group has not exactly one
// hierarchy of version 2. It stays the group's.
func (g *Group) FD() int {
	if g.Version != 2 || len(g.dirs) != 1 {
		return -1
	}
	return g.dirs[0].fd
}

// JoinPaths are the files into which a process writes "0" to enter the group. Under version 1 these are the tasks files,
// which move the writing thread only, so the writer must have one thread: a write to cgroup.procs moves a whole process
// but first waits for all CPUs to pass a quiet point, 8 to 18 ms measured, where tasks takes 15 µs.
func (g *Group) JoinPaths() []string {
	name := "/tasks"
	if g.Version == 2 {
		name = "/cgroup.procs"
	}
	paths := make([]string, len(g.dirs))
	for i, d := range g.dirs {
		paths[i] = d.path + name
	}
	return paths
}

// Paths are the group's directories.
func (g *Group) Paths() []string {
	paths := make([]string, len(g.dirs))
	for i, d := range g.dirs {
		paths[i] = d.path
	}
	return paths
}

// Add moves a running process into the group. Start is the better way: it costs less and leaves no moment outside.
func (g *Group) Add(pid int) error {
	if pid <= 0 {
		return rung.Errorf(rung.KindInvalid, "add pid %d to cgroup %s", pid, g.ID)
	}
	for _, d := range g.dirs {
		if err := d.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return rung.Errorf(rung.KindUnavailable, "add pid %d to cgroup: %w", pid, err)
		}
	}
	return nil
}

// Procs lists the processes in any part of the group and below it, as pids of the caller's PID namespace; 0 stands for
// one that namespace cannot see.
func (g *Group) Procs() ([]int, error) {
	var pids []int
	for _, d := range g.dirs {
		if err := procs(d, 0, &pids); err != nil && !gone(err) {
			return nil, rung.Errorf(rung.KindInternal, "members of cgroup %s: %w", g.ID, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// maxDepth bounds the walk below a group: a sandbox that could make groups of its own could nest them.
const maxDepth = 16

func procs(d *dir, depth int, pids *[]int) error {
	fd, err := unix.Openat(d.fd, "cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: d.path + "/cgroup.procs", Err: err}
	}
	text, err := readFD(fd, maxProc)
	_ = unix.Close(fd)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		*pids = append(*pids, pid)
	}
	return d.children(depth, func(sub *dir) error { return procs(sub, depth+1, pids) })
}

// children calls f for each group directly below d.
func (d *dir) children(depth int, f func(*dir) error) error {
	// The link count spares the common case, no children, the listing; a file system that does not keep it says 1.
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err == nil && st.Nlink == 2 {
		return nil
	}
	names, err := d.subdirs()
	if err != nil {
		return err
	}
	if len(names) > 0 && depth >= maxDepth {
		return rung.Errorf(rung.KindExhausted, "cgroups below %s are nested too deep", d.path)
	}
	for _, name := range names {
		sub, err := openDir(d.fd, name, d.path+"/"+name, d.controllers)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		err = f(sub)
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// Remove removes the group, waiting for its last process to be gone. It does not kill. Idempotent: a group that is not
// there is removed. Bounded by ctx and by five seconds.
func (g *Group) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for wait := time.Millisecond / 4; ; wait = min(2*wait, 20*time.Millisecond) {
		err := g.rmdir()
		if err == nil {
			g.Close()
			return nil
		}
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return rung.Errorf(rung.KindInternal, "remove cgroup %s: %w", g.ID, err)
		}
		if pause(ctx, wait) != nil {
			pids, _ := g.Procs()
			return rung.Errorf(rung.KindTimeout, "remove cgroup %s: %w (processes %v)", g.ID, err, pids)
		}
	}
}

func (g *Group) rmdir() error {
	for _, d := range g.dirs {
		err := unix.Rmdir(d.path)
		if err == unix.EBUSY || err == unix.ENOTEMPTY {
			if sub := d.children(0, rmtree); sub != nil && !gone(sub) {
				return sub
			}
			err = unix.Rmdir(d.path)
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

func rmtree(d *dir) error {
	if err := d.children(1, rmtree); err != nil {
		return err
	}
	if err := unix.Rmdir(d.path); err != nil && !gone(err) {
		return err
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
