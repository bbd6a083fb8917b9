package rung

import "time"

// Record is what one run leaves: printed by --json, signed and stored by internal/audit.
type Record struct {
	ID         string     `json:"id"`
	Rung       Rung       `json:"rung"`
	Threat     Threat     `json:"threat"`
	Accepted   string     `json:"accepted_lower,omitempty"` // the rung below the threat's list that the caller accepted by name
	Template   string     `json:"template"`
	Digest     string     `json:"template_digest,omitempty"`
	Command    []string   `json:"command"`
	Driver     DriverInfo `json:"driver"`
	Started    time.Time  `json:"started"`
	ExitCode   int        `json:"exit_code"`
	ExitReason ExitReason `json:"exit_reason"`
	OOMKilled  bool       `json:"oom_killed"`      // the kernel killed something inside for the memory cap
	Error      string     `json:"error,omitempty"` // rung's own error, when exit_reason is error
	Stdout     string     `json:"stdout"`
	Stderr     string     `json:"stderr"`
	Encoding   string     `json:"encoding,omitempty"` // "base64" when stdout or stderr is not UTF-8: then both are base64
	Truncated  bool       `json:"truncated"`          // output beyond the cap was dropped
	Timings    Timings    `json:"timings"`
	Limits     Limits     `json:"limits"`
	Isolation  *Isolation `json:"isolation"`         // nil only when the sandbox never came up
	Egress     string     `json:"egress"`            // an EgressMode; "none": no network exists
	Network    *Network   `json:"network,omitempty"` // what the network was used for; nil without one
	Denied     []Denied   `json:"denied"`
	Visibility Visibility `json:"visibility"`
	Signature  *Signature `json:"signature,omitempty"`
}

// DriverInfo names the code and the runtime that built the wall.
type DriverInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"` // the runtime's own words, such as "crun 1.8.1"
}

// Timings of a run as the caller saw them.
type Timings struct {
	Create  Millis `json:"create_ms"`  // decision to a verified sandbox
	Run     Millis `json:"run_ms"`     // the command's start to its end, output drained
	Destroy Millis `json:"destroy_ms"` // its end to nothing left
}

// Denied is one kind of refused system call or refused use of the network, with how often it was tried.
type Denied struct {
	Syscall string     `json:"syscall,omitempty"`
	Args    []uint64   `json:"args,omitempty"`    // numeric arguments of the first attempt; pointers are the caller's addresses
	PID     int        `json:"pid,omitempty"`     // the process of the first attempt, as numbered in the holder's pid namespace
	Process string     `json:"process,omitempty"` // its command name (comm), which the process can choose
	Network *NetDenial `json:"network,omitempty"` // instead of the system call's members
	Count   int64      `json:"count"`
	First   time.Time  `json:"first"`
}

// Network is what a sandbox's network was used for, as the gate saw it.
type Network struct {
	Rules    int          `json:"rules"` // how many the policy had
	Allowed  []NetAllowed `json:"allowed"`
	Packages []Package    `json:"packages,omitempty"`
	Usage    *NetUsage    `json:"usage,omitempty"` // nil when the gate could not tell any more
	Notes    []string     `json:"notes,omitempty"` // what is weaker here, in words
}

// Visibility says what rung sees of refusals on this rung, and what it does not: absence of an event is not evidence.
type Visibility struct {
	Seen   []string `json:"seen"`
	Unseen []string `json:"unseen"`
}

// Signature is an Ed25519 signature (RFC 8032) over the record's JSON without this field.
type Signature struct {
	Key   string `json:"key"`   // public key, base64
	Value string `json:"value"` // signature, base64
}
