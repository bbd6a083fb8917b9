// Package measure reads what the kernel really enforces on the calling process: identity, capabilities, seccomp,
// namespaces, interfaces, open descriptors. The same code runs in a user process inside a sandbox (the effective
// isolation record) and in any container or VM (`rung whereami`).
//
// Two rules hold throughout. A value that could not be read is named in Measurement.Errors and never passes for a good one:
// Isolation turns it into the weakest value its field has. And nothing read is trusted for its form: every file is
// opened below one /proc descriptor, checked to be on the file system it claims, read up to a cap, and parsed by
// functions that are fuzzed.
//
// A measurement costs a few dozen system calls, because it is on the path of every run.
package measure

import "github.com/rung-dev/rung"

// Measurement is the state of one process as it sees itself. The JSON names equal those of rung.Isolation where the field
// exists there, and are the keys of Errors.
type Measurement struct {
	UID            int               `json:"uid"`
	GID            int               `json:"gid"`
	Groups         []int             `json:"groups"`
	UIDMap         []rung.IDMap      `json:"uid_map"`
	Capabilities   []string          `json:"capabilities"` // effective, permitted, inheritable or ambient
	Bounding       []string          `json:"bounding"`
	NoNewPrivs     bool              `json:"no_new_privs"`
	SeccompMode    int               `json:"seccomp_mode"`
	SeccompFilters int               `json:"seccomp_filters"` // -1 where the kernel does not say
	LSM            string            `json:"lsm"`
	RootReadOnly   bool              `json:"root_readonly"`
	Namespaces     map[string]string `json:"namespaces"` // kind -> "kind:[inode]"
	Kernel         string            `json:"kernel"`
	BootID         string            `json:"boot_id"`
	GVisor         bool              `json:"gvisor"`
	GVisorSigns    []string          `json:"gvisor_signs,omitempty"`
	Interfaces     []string          `json:"interfaces"`
	// Descriptors are those that came through exec. What this process opened itself is close-on-exec (Go opens everything
	// so) and an inherited descriptor cannot be, which tells the two apart without knowing who opened what.
	Descriptors []int             `json:"descriptors"`
	PIDsMax     int64             `json:"pids_max"`
	MemoryMax   int64             `json:"memory_max"`
	CPUMax      float64           `json:"cpu_max"`
	Errors      map[string]string `json:"errors,omitempty"` // field -> why it could not be read
}

// Kinds are the namespaces that are measured, in the order of their names under /proc/self/ns.
func Kinds() []string { return []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} }

// HostFacts is what an inside measurement is compared with.
type HostFacts struct {
	BootID     string
	Namespaces map[string]string
}

func (m *Measurement) fail(field, why string) {
	if m.Errors == nil {
		m.Errors = make(map[string]string)
	}
	if _, ok := m.Errors[field]; !ok {
		m.Errors[field] = why
	}
}
