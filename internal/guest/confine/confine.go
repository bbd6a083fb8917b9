// Package confine is how rung-guest walls itself in on rung `process`, where no container runtime does it: it is started as
// the first process of fresh namespaces, with the prepared root tree of its sandbox, and gives up everything before it
// serves anybody. All of it happens before any user code exists. It runs as rung-guest's own user from the start, with the
// capabilities for it as ambient ones; the server gives those up next (package harden).
package confine

// Config is what Apply enforces, in this order.
type Config struct {
	Root     string   `json:"root"`     // prepared root directory; becomes / by pivot_root(2)
	Masked   []string `json:"masked"`   // paths hidden behind /dev/null or an empty directory
	ReadOnly []string `json:"readonly"` // paths remounted read-only
	Rlimits  []Rlimit `json:"rlimits"`
	// Writable are the directories user code may write below, for Landlock; everything else is read-only to it.
	Writable []string `json:"writable"`
	// Devices are the device files user code may open for writing.
	Devices []string `json:"devices"`
	// Connect are the TCP ports that user code may connect to, for Landlock (from its ABI 4); there is no other way to a port.
	Connect []uint16 `json:"connect,omitempty"`
	// Landlock is the ABI to enforce, exactly; 0 = none (the driver has said so in the record).
	Landlock int `json:"landlock_abi"`
	// Seccomp is the filter program: struct sock_filter in memory order, base64 in JSON.
	Seccomp []byte `json:"seccomp"`
}

// Rlimit is one setrlimit(2) with soft and hard limit equal.
type Rlimit struct {
	Resource int    `json:"resource"`
	Value    uint64 `json:"value"`
}

// Report is what Apply achieved.
type Report struct {
	LandlockABI int // enforced, 0 = none asked
}
