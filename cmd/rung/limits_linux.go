package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// least is what a rung itself needs of a limit before the command is started: gVisor's kernel is a program of many threads
// under the same control group.
func least(r rung.Rung) (pids, memory int64) {
	if r == rung.GVisor {
		return 64, 48 << 20
	}
	return 24, rung.MinMemory
}

// within refuses limits below what the rung needs, and above what this host has at all: such a cap caps nothing. The latter
// can be accepted, and then the record names them.
func (h *host) within(l rung.Limits, r rung.Rung) (rung.Limits, error) {
	pids, memory := least(r)
	if l.PIDs < pids {
		return l, rung.Errorf(rung.KindInvalid, "pids: %d is less than the %d that a sandbox on rung %s needs", l.PIDs, pids, r)
	}
	if l.Memory < memory {
		return l, rung.Errorf(rung.KindInvalid, "memory: %s is less than the %s that a sandbox on rung %s needs",
			rung.FormatBytes(l.Memory), rung.FormatBytes(memory), r)
	}
	var over []string
	more := func(limit, want, have string) {
		over = append(over, fmt.Sprintf("%s: %s is more than the %s of this host", limit, want, have))
	}
	// A default is no wish: on a smaller host it is what that has.
	usual := rung.DefaultLimits()
	if n := float64(runtime.NumCPU()); l.CPUs > n {
		if l.CPUs == usual.CPUs {
			l.CPUs = n
		} else {
			more("cpus", fmt.Sprint(l.CPUs), fmt.Sprint(n))
		}
	}
	size := func(limit string, want *int64, usual, total int64, where string) {
		switch {
		case *want <= total:
		case *want == usual:
			*want = total
		default:
			more(limit, rung.FormatBytes(*want), rung.FormatBytes(total)+where)
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		size("memory", &l.Memory, usual.Memory, int64(info.Totalram)*int64(info.Unit), "")
	}
	var fs unix.Statfs_t
	// An ordinary user's disk is memory, and never more than the memory cap.
	if os.Geteuid() == 0 && unix.Statfs(h.StateDir, &fs) == nil {
		size("disk", &l.Disk, usual.Disk, int64(fs.Blocks)*fs.Bsize, " at "+h.StateDir)
	}
	if len(over) == 0 {
		return l, nil
	}
	if l.Best {
		l.Unforced = append(l.Unforced, over...)
		return l, nil
	}
	return l, rung.Errorf(rung.KindInvalid, "%s", strings.Join(over, "; ")).
		WithHint("ask for less, or accept it with --best-effort-limits, which the record will say")
}
