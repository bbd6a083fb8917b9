package measure

import (
	"bytes"
	"path"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// maxDepth bounds the walk from the process's cgroup up to the root of what is visible.
const maxDepth = 16

// readCgroup finds the caps as far as a cgroup file system is visible inside. Often none is, which is good, and the host
// tells the caps instead.
func (m *Measurement) readCgroup(r *reader) {
	dir, err := open(unix.AT_FDCWD, cgroupRoot, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		m.failCgroup("no cgroup is visible inside")
		return
	}
	defer unix.Close(dir)
	raw, err := r.read("self/cgroup")
	if err != nil {
		m.failCgroup(err.Error())
		return
	}
	text := bytes.Clone(raw) // the buffer is reused below
	if onCgroup(dir) == nil {
		m.readUnified(r, dir, text)
		return
	}
	m.readLegacy(r, dir, text)
}

func (m *Measurement) failCgroup(why string) {
	for _, field := range []string{"pids_max", "memory_max", "cpu_max"} {
		m.fail(field, why)
	}
}

func (m *Measurement) readUnified(r *reader, dir int, text []byte) {
	p, ok := CgroupPath(text, "")
	if !ok {
		m.failCgroup("no cgroup is visible inside")
		return
	}
	m.PIDsMax = int64(m.least(r, dir, p, "pids_max", "pids.max", asInt))
	m.MemoryMax = int64(m.least(r, dir, p, "memory_max", "memory.max", asInt))
	m.CPUMax = m.least(r, dir, p, "cpu_max", "cpu.max", parseCPUMax)
}

func (m *Measurement) readLegacy(r *reader, dir int, text []byte) {
	pids, _ := CgroupPath(text, "pids")
	memory, _ := CgroupPath(text, "memory")
	cpu, _ := CgroupPath(text, "cpu")
	m.PIDsMax = int64(m.least(r, dir, "pids"+pids, "pids_max", "pids.max", asInt))
	m.MemoryMax = int64(m.least(r, dir, "memory"+memory, "memory_max", "memory.limit_in_bytes", asInt))
	quota := m.least(r, dir, "cpu"+cpu, "cpu_max", "cpu.cfs_quota_us", asInt)
	if quota > 0 {
		if period := m.least(r, dir, "cpu"+cpu, "cpu_max", "cpu.cfs_period_us", asInt); period > 0 {
			m.CPUMax = quota / period
		}
	}
}

// least is the smallest cap between the process's cgroup and the root of what is visible: an ancestor's cap binds too. A
// hierarchy in which the file exists nowhere is an error; one that merely says "max" is 0.
func (m *Measurement) least(r *reader, dir int, p, field, file string, parse func([]byte) (float64, bool)) float64 {
	least, found := 0.0, false
	p = path.Join(".", p)
	for range maxDepth {
		if text, err := r.readAt(dir, path.Join(p, file), onCgroup); err == nil {
			v, ok := parse(text)
			if !ok {
				m.fail(field, file+" is malformed")
				return 0
			}
			found = true
			if v > 0 && (least == 0 || v < least) {
				least = v
			}
		}
		if p == "." {
			break
		}
		p = path.Dir(p)
	}
	if !found {
		m.fail(field, "no "+file+" is visible inside")
	}
	return least
}

func asInt(text []byte) (float64, bool) {
	n, ok := parseMax(text)
	return float64(n), ok
}

func onCgroup(fd int) error {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return err
	}
	if t := int64(st.Type); t != unix.CGROUP2_SUPER_MAGIC && t != unix.CGROUP_SUPER_MAGIC {
		return rung.Errorf(rung.KindInvalid, "not on a cgroup file system")
	}
	return nil
}
