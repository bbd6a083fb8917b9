// Package cgroup caps what a sandbox uses and is the handle by which it is killed: one control group per sandbox, made
// before the first process of the sandbox exists, removed after the last one is gone. It speaks version 2 and version 1
// itself, because both are small, because a start has a budget of a few milliseconds, and because every value written is
// read back: a limit that did not take is reported in Group.Missing, never assumed.
//
// Where groups live. Version 1: <controller mount>/rung/<id> as root, <controller mount>/rung-<uid>/<id> for an ordinary
// user to whom an administrator gave that directory. Version 2: <mount>/rung/<id> as root; for an ordinary user
// rung/<id> below the delegated cgroup that rung itself runs in (a systemd scope or service with Delegate=yes). Version 2
// forbids processes in a group that hands controllers down, so in a delegated group (and for root in a container, whose
// root group is not the real one) the processes found there, rung's own included, are first moved to the leaf
// "rung-self". Nothing outside a group that was handed to us is ever moved.
//
// Mixed hosts, where version 1 holds some controllers and version 2 others, count as version 1; what version 1 lacks is
// reported as missing.
package cgroup

import (
	"path"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// Names under which groups are made.
const (
	parent = "rung"      // directory of all sandboxes of one owner
	self   = "rung-self" // version 2: leaf for the processes that were in the delegated group
)

// maxProc bounds what is read of mountinfo and of member lists; a host beyond it is broken or hostile.
const maxProc = 16 << 20

// Layout is where this host keeps its control groups, as seen by this process.
type Layout struct {
	Version int // 2, 1 (also for mixed hosts), or 0: none mounted

	trees []tree
	user  *int             // whose groups they are, nil for the effective user's
	made  func(dir string) // tests stand in for the kernel, which fills a new group with files
}

// tree is one hierarchy that holds controllers we need.
type tree struct {
	controllers []string // subset of the wanted ones; under version 2 all of them until cgroup.controllers is read
	mount       string   // where the hierarchy is visible
	own         string   // directory of our own group below mount, "" when it lies outside the mount
	readonly    bool
}

// wanted are the controllers that enforce our limits; cpuacct only counts, and is part of cpu under version 2.
var wanted = []string{"memory", "pids", "cpu", "cpuacct"}

func (t *tree) has(controller string) bool { return slices.Contains(t.controllers, controller) }

// parse reads /proc/self/mountinfo and /proc/self/cgroup. It does no I/O, so that every kind of host can be a fixture.
func parse(mountinfo, membership string) Layout {
	mounts := parseMounts(mountinfo)
	paths := parseMembership(membership)
	l := Layout{}
	for _, c := range wanted {
		m := pick(mounts, paths[c], func(m *mounted) bool { return m.fstype == "cgroup" && slices.Contains(m.options, c) })
		if m == nil {
			continue
		}
		l.Version = 1
		if i := slices.IndexFunc(l.trees, func(t tree) bool { return t.mount == m.target }); i >= 0 {
			l.trees[i].controllers = append(l.trees[i].controllers, c)
			continue
		}
		l.trees = append(l.trees, m.tree(paths[c], c))
	}
	if l.Version == 1 {
		return l
	}
	if m := pick(mounts, paths[""], func(m *mounted) bool { return m.fstype == "cgroup2" }); m != nil {
		return Layout{Version: 2, trees: []tree{m.tree(paths[""], "memory", "pids", "cpu")}}
	}
	return l
}

// mounted is one line of mountinfo.
type mounted struct {
	root, target, fstype string
	options              []string // of the file system: under version 1 these name the controllers
	readonly             bool
}

// tree places our own group below the mount: the path in /proc/self/cgroup is relative to the hierarchy, and a mount
// may show only a part of it (containers).
func (m *mounted) tree(own string, controllers ...string) tree {
	t := tree{controllers: controllers, mount: m.target, readonly: m.readonly}
	if rest, ok := below(own, m.root); ok {
		t.own = path.Join(m.target, rest)
	}
	return t
}

func below(p, root string) (string, bool) {
	if p == "" || strings.HasPrefix(p, "/..") {
		return "", false
	}
	if root == "/" || p == root {
		return strings.TrimPrefix(p, root), true
	}
	return strings.CutPrefix(p, root+"/")
}

// pick returns the best of the matching mounts: writable before read-only, showing our own group before not.
func pick(mounts []mounted, own string, match func(*mounted) bool) *mounted {
	var best *mounted
	score := -1
	for i := range mounts {
		m := &mounts[i]
		if !match(m) {
			continue
		}
		s := 0
		if !m.readonly {
			s += 2
		}
		if _, ok := below(own, m.root); ok {
			s++
		}
		if s > score {
			best, score = m, s
		}
	}
	return best
}

// parseMounts returns the cgroup mounts. A later mount on the same directory hides the earlier one, so the last line wins.
func parseMounts(mountinfo string) []mounted {
	var list []mounted
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 {
			continue
		}
		m := mounted{root: unescape(l[3]), target: unescape(l[4]), fstype: r[0], options: strings.Split(r[2], ",")}
		list = slices.DeleteFunc(list, func(o mounted) bool { return o.target == m.target })
		if m.fstype != "cgroup" && m.fstype != "cgroup2" {
			continue
		}
		m.readonly = slices.Contains(strings.Split(l[5], ","), "ro") || slices.Contains(m.options, "ro")
		list = append(list, m)
	}
	return list
}

// parseMembership maps each controller to our path in its hierarchy; "" is the version 2 hierarchy.
func parseMembership(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, p, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(p, "/") {
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			paths[c] = p
		}
	}
	return paths
}

// unescape undoes the octal escapes of mountinfo (space, tab, newline, backslash).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b = append(b, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

// Limits are the caps of one group; all must be positive.
type Limits struct {
	CPUs   float64 // processor time per wall time
	Memory int64   // bytes, without swap
	PIDs   int64   // processes and threads
}

func (l Limits) check() error {
	if !(l.CPUs > 0) || l.Memory <= 0 || l.PIDs <= 0 {
		return rung.Errorf(rung.KindInvalid, "cgroup limits must be positive: cpus %v, memory %d, pids %d", l.CPUs, l.Memory, l.PIDs)
	}
	return nil
}

// Usage is what a group has used so far; a member is 0 where this kernel does not count it.
type Usage struct {
	MemoryPeak int64 // bytes
	CPUMicros  int64
	PIDsPeak   int64
}

// period is the CPU accounting period in microseconds, the kernel's own default: shorter ones cost more, longer ones make
// a throttled program stall noticeably.
const period = 100_000

// minQuota is the least the kernel accepts.
const minQuota = 1000

func quota(cpus float64) int64 { return max(int64(cpus*period+0.5), minQuota) }
