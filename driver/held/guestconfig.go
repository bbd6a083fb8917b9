package held

import (
	"encoding/json"
	"strconv"

	"github.com/rung-dev/rung"
)

// What every sandbox has at the same place inside.
const (
	GuestInside = "/.rung/guest"
	GuestPath   = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// GuestConfig is the argument of `rung-guest serve`; internal/guest reads it.
type GuestConfig struct {
	ControlFD int             `json:"control_fd"`
	User      GuestUser       `json:"user"`
	Workdir   string          `json:"workdir"`
	Env       []string        `json:"env,omitempty"`
	DropCaps  bool            `json:"drop_caps"`
	Init      bool            `json:"init"`
	Spare     bool            `json:"spare,omitempty"` // see internal/guest: where UserProcesses cannot keep user code below the cap
	Confine   json.RawMessage `json:"confine,omitempty"`
}

// GuestUser is whom user code runs as.
type GuestUser struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Home string `json:"home"`
}

// User is the account of user code with that uid: root in container, "user" elsewhere.
func User(uid int) GuestUser {
	if uid == 0 {
		return GuestUser{Name: "root", Home: "/root"}
	}
	return GuestUser{Name: "user", UID: uid, GID: uid, Home: "/home/user"}
}

// TmpSize is the size of a tmpfs in a sandbox with that memory cap, as a mount option: what is written there is charged
// as memory, so it stays a small part of the cap.
func TmpSize(memory int64) string { return strconv.FormatInt(min(memory/4, 64<<20), 10) }

// TmpInodes is how many names that tmpfs may hold, as a mount option: each costs kernel memory under the cap as well, and
// without a bound a million empty files end in a memory kill instead of ENOSPC.
func TmpInodes(memory int64) string {
	size, _ := strconv.ParseInt(TmpSize(memory), 10, 64) // written by us
	return strconv.FormatInt(max(size/(16<<10), 1024), 10)
}

// MaskedPaths are what hardened walls hide in /proc beyond the runtimes' default list: addresses and configuration of the
// host's kernel, which tell an attacker what to aim at (escape.md KRN-21). /sys is not mounted there at all.
func MaskedPaths() []string {
	return []string{"/proc/kallsyms", "/proc/config.gz", "/proc/kmsg", "/proc/modules", "/proc/vmallocinfo", "/proc/slabinfo"}
}

// ExpectLimits adds what the control group must show, unless the caller accepted less.
func ExpectLimits(e *rung.Expectation, l rung.Limits) {
	if l.Best {
		return
	}
	e.PIDsMax, e.MemoryMax, e.CPUMax = l.PIDs, l.Memory, l.CPUs
}

// UserProcesses is RLIMIT_NPROC for a sandbox whose user code has a uid of its own: a little below the cap of the control
// group, so that a fork bomb leaves rung-guest, which is another uid, the threads it needs. The limit is rung-guest's too,
// which has a dozen threads before it starts anything. Without a control group it is the only cap there is.
func UserProcesses(l rung.Limits) uint64 { return uint64(max(l.PIDs-16, 24)) }

// DefaultMasked and DefaultReadOnly are the paths that container engines hide and protect by default (containerd's and
// moby's list); the first without those of /sys.
func DefaultMasked() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
	}
}

// DefaultReadOnly: see DefaultMasked.
func DefaultReadOnly() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
