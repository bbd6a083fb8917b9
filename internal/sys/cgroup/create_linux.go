package cgroup

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// Group is one sandbox's control group: one directory under version 2, one per hierarchy under version 1. Its descriptors
// are close-on-exec. It holds no lock and no state but them, so any process that can Open it can Kill and Remove it.
type Group struct {
	ID      string
	Version int
	Missing []string // limits this host does not enforce: "memory: why; what would help"

	layout *Layout
	dirs   []*dir
	oom    int // open counter file, -1 when there is none: whoever drops its privileges can still read it
	kill   int // version 2: open cgroup.kill, -1 when the kernel has none
}

// Create makes the group of that id with its limits. An id that is taken is KindExists; a limit that did not take is in
// Missing and no error, so that the caller decides. On error nothing is left behind.
func (l Layout) Create(id string, lim Limits) (*Group, error) {
	if err := errors.Join(rung.ValidName(id), lim.check()); err != nil {
		return nil, err
	}
	g := l.group(id)
	reasons := map[string]string{}
	for i := range l.trees {
		t := &l.trees[i]
		root, why := l.root(t, true)
		for _, c := range t.controllers {
			if root == nil || !slices.Contains(root.controllers, c) {
				reasons[c] = why
			}
		}
		if root == nil {
			continue
		}
		err := g.add(&l, root, id)
		root.close()
		if err != nil {
			g.undo()
			return nil, err
		}
	}
	g.limit(lim, reasons)
	g.open()
	return g, nil
}

const noController = "this host has no such cgroup controller"

func (l *Layout) group(id string) *Group {
	return &Group{ID: id, Version: l.Version, layout: l, oom: -1, kill: -1}
}

// add makes the group's directory below root.
func (g *Group) add(l *Layout, root *dir, id string) error {
	path := root.path + "/" + id
	if err := l.mkdir(root.fd, id); err != nil {
		kind := rung.KindUnavailable
		if errors.Is(err, fs.ErrExist) {
			kind = rung.KindExists
		}
		return rung.Errorf(kind, "make cgroup %s: %w", path, err)
	}
	d, err := openDir(root.fd, id, path, root.controllers)
	if err != nil {
		_ = unix.Unlinkat(root.fd, id, unix.AT_REMOVEDIR)
		return rung.Errorf(rung.KindUnavailable, "open cgroup: %w", err)
	}
	g.dirs = append(g.dirs, d)
	return nil
}

// undo takes back a group nobody has entered yet.
func (g *Group) undo() {
	for _, d := range g.dirs {
		_ = unix.Rmdir(d.path)
	}
	g.Close()
}

// Close releases the descriptors; the group itself stays. Idempotent.
func (g *Group) Close() {
	for _, d := range g.dirs {
		d.close()
	}
	g.dirs = nil
	for _, fd := range []*int{&g.oom, &g.kill} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
		*fd = -1
	}
}

// with is the directory that has the controller, nil when none does.
func (g *Group) with(controller string) *dir {
	for _, d := range g.dirs {
		if slices.Contains(d.controllers, controller) {
			return d
		}
	}
	return nil
}

// open keeps what an unprivileged holder will need later.
func (g *Group) open() {
	d, name := g.with("memory"), "memory.oom_control"
	if g.Version == 2 {
		name = "memory.events"
	}
	if d != nil {
		g.oom = openFile(d.fd, name, unix.O_RDONLY)
	}
	if g.Version == 2 && len(g.dirs) > 0 {
		g.kill = openFile(g.dirs[0].fd, "cgroup.kill", unix.O_WRONLY)
	}
}

func openFile(at int, name string, flags int) int {
	fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1
	}
	return fd
}

// limit writes the limits and notes each that did not take. reasons tells why a controller is not there at all.
func (g *Group) limit(lim Limits, reasons map[string]string) {
	for _, c := range []struct {
		name string
		set  func(*dir) string
	}{
		{"memory", func(d *dir) string { return g.memory(d, lim.Memory) }},
		{"pids", func(d *dir) string { return exact(d.set("pids.max", lim.PIDs))(lim.PIDs) }},
		{"cpu", func(d *dir) string { return g.cpu(d, quota(lim.CPUs)) }},
	} {
		why := reasons[c.name]
		if d := g.with(c.name); d != nil {
			why = c.set(d)
			if why == "" {
				continue
			}
		} else if why == "" {
			why = noController
		}
		g.Missing = append(g.Missing, c.name+": "+why+"; "+g.layout.remedy(c.name))
	}
}

// exact compares what the kernel kept with what was asked.
func exact(kept int64, err error) func(want int64) string {
	return func(want int64) string {
		if err != nil {
			return err.Error()
		}
		if kept != want {
			return "the kernel kept " + strconv.FormatInt(kept, 10) + " instead of " + strconv.FormatInt(want, 10)
		}
		return ""
	}
}

// pages allows for rounding down to whole pages (64 KiB at most).
func pages(kept int64, err error) func(want int64) string {
	return func(want int64) string {
		if err == nil && kept > want-64<<10 && kept <= want && kept > 0 {
			return ""
		}
		return exact(kept, err)(want)
	}
}

// memory caps memory and forbids swap: swapped memory would make the cap a suggestion.
func (g *Group) memory(d *dir, n int64) string {
	if g.Version == 2 {
		if why := pages(d.set("memory.max", n))(n); why != "" {
			return why
		}
		// One process of a sandbox killed for memory and the rest running on is a state nobody asked for. Absent before
		// Linux 4.19, where the limit holds all the same.
		_ = d.write("memory.oom.group", "1")
		return noSwap(d.write("memory.swap.max", "0"))
	}
	if why := pages(d.set("memory.limit_in_bytes", n))(n); why != "" {
		return why
	}
	why := pages(d.set("memory.memsw.limit_in_bytes", n))(n)
	if why != "" && d.write("memory.swappiness", "0") == nil {
		return "" // limit reclaim under swappiness 0 does not swap
	}
	if why != "" {
		return noSwap(errors.New(why))
	}
	return ""
}

// noSwap excuses a failure to forbid swap on a host that has none.
func noSwap(err error) string {
	if err == nil {
		return ""
	}
	swaps, readErr := slurp("/proc/swaps")
	if readErr == nil && strings.Count(swaps, "\n") <= 1 { // the heading only
		return ""
	}
	return "swap cannot be forbidden: " + err.Error()
}

func (g *Group) cpu(d *dir, quota int64) string {
	if g.Version == 2 {
		if err := d.write("cpu.max", strconv.FormatInt(quota, 10)+" "+strconv.Itoa(period)); err != nil {
			return err.Error()
		}
		cores, err := cores2(d)
		return exact(int64(math.Round(cores*period)), err)(quota)
	}
	if why := exact(d.set("cpu.cfs_period_us", period))(period); why != "" {
		return why
	}
	return exact(d.set("cpu.cfs_quota_us", quota))(quota)
}

// cores2 reads cpu.max as cores, 0 for no limit.
func cores2(d *dir) (float64, error) {
	text, err := d.read("cpu.max")
	if err != nil {
		return 0, err
	}
	a, b, _ := strings.Cut(text, " ")
	if a == "max" {
		return 0, nil
	}
	q, errQ := strconv.ParseInt(a, 10, 64)
	p, errP := strconv.ParseInt(b, 10, 64)
	if errQ != nil || errP != nil || p <= 0 {
		return 0, &os.PathError{Op: "parse", Path: d.path + "/cpu.max", Err: errors.Join(errQ, errP)}
	}
	return float64(q) / float64(p), nil
}
