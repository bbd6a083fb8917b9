// Package rung is the vocabulary of the whole system: the rungs of the ladder, what is known about the code (threats),
// the limits of a sandbox, what was measured inside it, and the record a run leaves. It holds values and rules only:
// standard library, no I/O. Technology lives in the folder named for it; everything is wired in cmd/rung.
package rung

import (
	"fmt"
	"slices"
	"strings"
)

// Rung is one isolation tier. The zero value is no rung and never valid.
type Rung string

// The ladder, weakest first. The boundary of each is told by `rung ladder` and SECURITY.md.
const (
	None      Rung = "none"      // no boundary: the positive control of the escape test
	Process   Rung = "process"   // user id, namespaces, Landlock, seccomp, rlimits, cgroup
	Container Rung = "container" // namespaces and the runtime's shipped defaults
	Hardened  Rung = "hardened"  // the same with every default inverted
	GVisor    Rung = "gvisor"    // a user-space kernel
	Wasm      Rung = "wasm"      // linear memory, no system calls
	MicroVM   Rung = "microvm"   // hardware virtualisation, own kernel
	Remote    Rung = "remote"    // somebody else's infrastructure
)

// Rungs is the ladder in order, weakest first.
func Rungs() []Rung {
	return []Rung{None, Process, Container, Hardened, GVisor, Wasm, MicroVM, Remote}
}

// ParseRung returns the rung of that exact name, or a KindInvalid error that lists the names.
func ParseRung(s string) (Rung, error) {
	if slices.Contains(Rungs(), Rung(s)) {
		return Rung(s), nil
	}
	return "", Errorf(KindInvalid, "unknown rung %q", s).WithHint("one of: " + join(Rungs()))
}

// Threat says what is known about the code; it decides which rungs are acceptable (see internal/policy).
type Threat string

// The threats, from best known to worst. Generated is the default.
const (
	Trusted     Threat = "trusted"     // vetted code that passed CI
	Generated   Threat = "generated"   // model-written code, one tenant
	Untrusted   Threat = "untrusted"   // unvetted packages, binaries, several tenants
	Adversarial Threat = "adversarial" // security research
	Compute     Threat = "compute"     // pure functions
)

// Threats lists all threats in the order of their declaration.
func Threats() []Threat { return []Threat{Trusted, Generated, Untrusted, Adversarial, Compute} }

// ParseThreat returns the threat of that exact name, or a KindInvalid error that lists the names.
func ParseThreat(s string) (Threat, error) {
	if slices.Contains(Threats(), Threat(s)) {
		return Threat(s), nil
	}
	return "", Errorf(KindInvalid, "unknown threat %q", s).WithHint("one of: " + join(Threats()))
}

func join[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}

// ValidName reports whether s may name a template or a sandbox: 1 to 64 of [a-z0-9._-], starting with a letter or digit.
// Names become file names, cgroup names and host names, so nothing else is let through.
func ValidName(s string) error {
	if s == "" || len(s) > 64 {
		return Errorf(KindInvalid, "name %q: must be 1 to 64 characters", s)
	}
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return Errorf(KindInvalid, "name %q: only a-z, 0-9, '.', '_' and '-', and the first must be a letter or digit", s)
		}
	}
	return nil
}

// ExitReason says how a run ended. It is decided outside the sandbox: once user code has run, nothing the guest says is
// evidence, so a guest can at most claim Exited or Signaled for its own process.
type ExitReason string

// How a run can end.
const (
	Exited   ExitReason = "exited"   // the command ended by itself with exit_code
	Signaled ExitReason = "signaled" // a signal ended the command; exit_code is 128+n
	TimedOut ExitReason = "timeout"  // the wall clock ran out; exit_code is 124
	OOM      ExitReason = "oom"      // the kernel ended it for its memory limit; exit_code is 137
	Limit    ExitReason = "limit"    // another limit ended it (output bytes); exit_code is 137
	Killed   ExitReason = "killed"   // its owner ended it, by a signal or by dying; exit_code is 137
	Failed   ExitReason = "error"    // rung or the wall failed; exit_code is 125
)

// Exit codes of `rung run` that are not the command's own.
const (
	ExitError   = 125 // rung's own error
	ExitTimeout = 124 // the wall clock ran out
	ExitRefused = 126 // refused by policy
	ExitKilled  = 137 // 128+SIGKILL: ended by a limit or by its owner
)

// Millis is a duration in milliseconds with microsecond resolution, the unit of every timing in a record.
type Millis float64

func (m Millis) String() string { return fmt.Sprintf("%.1f ms", float64(m)) }
