package rung

import (
	"fmt"
	"slices"
	"strings"
)

// Isolation is the effective isolation record: what is really enforced around a user process, measured at start. Fields
// come from inside (a user process read its own /proc) or from the host; Sources names which, per JSON field.
type Isolation struct {
	UID           int               `json:"uid"`             // user id inside
	GID           int               `json:"gid"`             // group id inside
	UIDMap        []IDMap           `json:"uid_map"`         // /proc/self/uid_map: empty slice on kernels without user namespaces
	Capabilities  []string          `json:"capabilities"`    // effective or permitted or ambient or inheritable: anything held
	Bounding      []string          `json:"bounding"`        // what an exec could still gain
	NoNewPrivs    bool              `json:"no_new_privs"`    // PR_SET_NO_NEW_PRIVS
	SeccompMode   int               `json:"seccomp_mode"`    // 0 none, 1 strict, 2 filter
	SeccompFilter int               `json:"seccomp_filters"` // number of filters; -1 where the kernel does not say
	LSM           string            `json:"lsm"`             // AppArmor or SELinux label, "unconfined" or ""
	Landlock      int               `json:"landlock_abi"`    // ABI enforced on the process, 0 when Landlock is not used
	RootReadOnly  bool              `json:"root_readonly"`
	Namespaces    map[string]bool   `json:"namespaces"`    // kind -> differs from the host's
	Kernel        string            `json:"kernel"`        // release as seen inside
	SharedKernel  bool              `json:"shared_kernel"` // boot id inside equals the host's
	GVisor        bool              `json:"gvisor"`
	PIDsMax       int64             `json:"pids_max"`        // effective cap, 0 = none found
	MemoryMax     int64             `json:"memory_max"`      // effective cap in bytes, 0 = none found
	CPUMax        float64           `json:"cpu_max"`         // effective cap in cores, 0 = none found
	Interfaces    []string          `json:"interfaces"`      // network interfaces inside; lo alone means no network
	Descriptors   []int             `json:"descriptors"`     // open descriptors a user process starts with
	GuestUID      int               `json:"guest_uid"`       // user id of rung-guest inside; equals UID where they are not separate
	Sources       map[string]string `json:"sources"`         // JSON field -> "inside" or "host"
	Notes         []string          `json:"notes,omitempty"` // what could not be had here, in words
}

// IDMap is one line of a uid_map: ids Inside..Inside+Size-1 are Host..Host+Size-1 in the parent namespace.
type IDMap struct {
	Inside uint32 `json:"inside"`
	Host   uint32 `json:"host"`
	Size   uint32 `json:"size"`
}

// Expectation is what a driver promises for one sandbox; a nil or zero member promises nothing. Verify compares it with
// the measurement.
type Expectation struct {
	UID          *int     `json:"uid,omitempty"`
	UserNS       bool     `json:"userns,omitempty"`  // the uid map is not the host's identity map
	NoCaps       bool     `json:"no_caps,omitempty"` // nothing held, nothing to gain
	NoNewPrivs   bool     `json:"no_new_privs,omitempty"`
	Seccomp      bool     `json:"seccomp,omitempty"`      // at least one filter
	Landlock     int      `json:"landlock_abi,omitempty"` // exactly this ABI
	RootReadOnly bool     `json:"root_readonly,omitempty"`
	Namespaces   []string `json:"namespaces,omitempty"` // must differ from the host's
	GVisor       bool     `json:"gvisor,omitempty"`
	OwnKernel    bool     `json:"own_kernel,omitempty"` // boot id must differ from the host's
	PIDsMax      int64    `json:"pids_max,omitempty"`
	MemoryMax    int64    `json:"memory_max,omitempty"`
	CPUMax       float64  `json:"cpu_max,omitempty"`
	NoNetwork    bool     `json:"no_network,omitempty"`  // no interface but lo
	Interfaces   []string `json:"interfaces,omitempty"`  // exactly these, in order of their names
	Descriptors  []int    `json:"descriptors,omitempty"` // exactly these
	GuestApart   bool     `json:"guest_apart,omitempty"` // rung-guest has a uid of its own
}

// Verify returns nil when the measurement keeps every promise, else one KindUnverified error that names each field that
// does not. It never short-circuits, so that a report shows all of them.
func (want Expectation) Verify(got *Isolation) error {
	if got == nil {
		return Errorf(KindUnverified, "nothing was measured inside the sandbox")
	}
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(want.UID == nil || *want.UID == got.UID, "uid is %d", got.UID)
	check(!want.UserNS || !identity(got.UIDMap), "uid map is the host's")
	check(!want.NoCaps || len(got.Capabilities) == 0, "capabilities held: %s", strings.Join(got.Capabilities, ","))
	check(!want.NoCaps || len(got.Bounding) == 0, "capabilities to gain: %s", strings.Join(got.Bounding, ","))
	check(!want.NoNewPrivs || got.NoNewPrivs, "no_new_privs is off")
	check(!want.Seccomp || got.SeccompMode == 2, "seccomp mode is %d", got.SeccompMode)
	check(want.Landlock == got.Landlock || want.Landlock == 0, "landlock ABI is %d, not %d", got.Landlock, want.Landlock)
	check(!want.RootReadOnly || got.RootReadOnly, "root is writable")
	for _, ns := range want.Namespaces {
		check(got.Namespaces[ns], "%s namespace is the host's", ns)
	}
	check(!want.GVisor || got.GVisor, "this is not gVisor")
	check(!want.OwnKernel || !got.SharedKernel, "the kernel is the host's")
	check(want.PIDsMax == 0 || want.PIDsMax == got.PIDsMax, "pids cap is %d, not %d", got.PIDsMax, want.PIDsMax)
	check(want.MemoryMax == 0 || within(got.MemoryMax, want.MemoryMax), "memory cap is %d, not %d", got.MemoryMax, want.MemoryMax)
	check(want.CPUMax == 0 || got.CPUMax > 0 && got.CPUMax <= want.CPUMax*1.01, "cpu cap is %v, not %v", got.CPUMax, want.CPUMax)
	check(!want.NoNetwork || onlyLoopback(got.Interfaces), "network interfaces: %s", strings.Join(got.Interfaces, ","))
	check(want.Interfaces == nil || sameNames(want.Interfaces, got.Interfaces), "network interfaces: %s", strings.Join(got.Interfaces, ","))
	check(want.Descriptors == nil || slices.Equal(want.Descriptors, got.Descriptors), "open descriptors: %v", got.Descriptors)
	check(!want.GuestApart || got.GuestUID != got.UID, "rung-guest shares the user's uid %d", got.UID)
	if len(bad) == 0 {
		return nil
	}
	return Errorf(KindUnverified, "the wall is not what was asked: %s", strings.Join(bad, "; "))
}

// within allows for the kernel rounding a cap down to whole pages (64 KiB at most).
func within(got, want int64) bool { return got > 0 && got <= want && want-got < 64<<10 }

func identity(m []IDMap) bool {
	return len(m) == 0 || len(m) == 1 && m[0].Inside == m[0].Host && m[0].Size == 1<<32-1
}

func sameNames(want, got []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got)))
}

func onlyLoopback(list []string) bool {
	return !slices.ContainsFunc(list, func(name string) bool { return name != "lo" })
}
