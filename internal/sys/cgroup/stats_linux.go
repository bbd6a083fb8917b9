package cgroup

import (
	"errors"

	"github.com/rung-dev/rung"
)

// OOMKills is the number of processes the kernel has killed for the memory limit. It works from a descriptor opened with
// the group, so also for a holder that has dropped its privileges; after the group was removed it is an error.
func (g *Group) OOMKills() (int64, error) {
	if g.oom < 0 {
		return 0, rung.Errorf(rung.KindUnavailable, "cgroup %s counts no out-of-memory kills", g.ID)
	}
	text, err := readFD(g.oom, 4096)
	if err != nil {
		return 0, rung.Errorf(rung.KindUnavailable, "read the out-of-memory kills of cgroup %s: %w", g.ID, err)
	}
	return field(text, "oom_kill"), nil
}

// Usage reads what the group has used so far. What this kernel does not count stays 0.
func (g *Group) Usage() Usage {
	var u Usage
	number := func(controller, name string) int64 {
		d := g.with(controller)
		if d == nil {
			return 0
		}
		n, _ := d.number(name) // absent on older kernels: not counted
		return n
	}
	u.PIDsPeak = number("pids", "pids.peak")
	if g.Version != 2 {
		u.MemoryPeak = number("memory", "memory.max_usage_in_bytes")
		u.CPUMicros = number("cpuacct", "cpuacct.usage") / 1000
		return u
	}
	u.MemoryPeak = number("memory", "memory.peak")
	if len(g.dirs) > 0 {
		text, _ := g.dirs[0].read("cpu.stat") // counted even without the cpu controller
		u.CPUMicros = field(text, "usage_usec")
	}
	return u
}

// Read reads the caps back from the kernel, for the isolation record: 0 is no cap.
func (g *Group) Read() (pidsMax, memMax int64, cpuMax float64, err error) {
	var errs [3]error
	if d := g.with("pids"); d != nil {
		pidsMax, errs[0] = d.number("pids.max")
	}
	if d := g.with("memory"); d != nil {
		memMax, errs[1] = d.number(map[int]string{1: "memory.limit_in_bytes", 2: "memory.max"}[g.Version])
		if memMax >= 1<<62 { // version 1 writes no limit as the largest page-aligned number
			memMax = 0
		}
	}
	if d := g.with("cpu"); d != nil {
		cpuMax, errs[2] = cores(g.Version, d)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return 0, 0, 0, rung.Errorf(rung.KindInternal, "read the limits of cgroup %s: %w", g.ID, err)
	}
	return pidsMax, memMax, cpuMax, nil
}

func cores(version int, d *dir) (float64, error) {
	if version == 2 {
		return cores2(d)
	}
	q, err := d.read("cpu.cfs_quota_us")
	if err != nil || q == "-1" {
		return 0, err
	}
	n, err1 := d.number("cpu.cfs_quota_us")
	p, err2 := d.number("cpu.cfs_period_us")
	if err := errors.Join(err1, err2); err != nil || p == 0 {
		return 0, err
	}
	return float64(n) / float64(p), nil
}
