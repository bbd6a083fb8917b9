// Package filter is a small policy language for system calls, its compiler to classic BPF, and its writer of runtime-spec
// JSON. It is pure: it runs when code is generated and in tests, never on the way of a run, which only reads the bytes that
// came out.
//
// # Why a compiler of our own
//
// Runtimes compile a profile with libseccomp at every start. moby's profile becomes a thousand instructions in one line,
// and the kernel runs a new filter once for each system call number to prepare its cache of constant answers; together
// that was measured at 29 ms for each start. Compile makes a binary search over ranges of numbers instead: nine or ten
// comparisons for any number, a third of the instructions, and no compilation at start.
//
// # What a policy means
//
// The first rule in the policy's order that names the call and whose conditions all hold decides; see Decide, which is the
// definition that Compile is tested against. Conditions look at what the kernel looks at: an int argument is compared
// with Int, which ignores the upper half of the register as the kernel does. A denial of an exact 64-bit value would be
// bypassed by setting a bit the kernel ignores (CVE-2019-10063 was that).
package filter

import (
	"fmt"
	"slices"
)

// Action is the kernel's seccomp return value (SECCOMP_RET_*).
type Action uint32

// The actions that need no number.
const (
	Allow       Action = 0x7fff0000
	Notify      Action = 0x7fc00000 // ask the holder of the listener; ENOSYS while nobody holds it
	KillProcess Action = 0x80000000
)

// Errno answers the call with an error number without running it.
func Errno(n uint16) Action { return 0x00050000 | Action(n) }

// The error numbers that policies use. They have the same value on every architecture that rung supports; spelled out
// because the standard library's would be those of the machine that generates.
const (
	EPERM           = 1
	ENOSYS          = 38
	EPROTONOSUPPORT = 93
)

// Op compares an argument.
type Op uint8

// The comparisons; all are unsigned and on 64 bits.
const (
	Eq       Op = iota
	Ne          // not equal
	MaskedEq    // argument & Mask == Value
	Ge
	Gt
	Le
	Lt
)

// Cond is a condition on one argument.
type Cond struct {
	Arg         uint8 // 0 to 5
	Op          Op
	Value, Mask uint64 // Mask is for MaskedEq only, and Value has no bit outside it
}

// Int says that an int (or unsigned int) argument is v: the kernel ignores the upper half of its register, and so does this.
func Int(arg uint8, v uint32) Cond { return Bits(arg, 0xffffffff, uint64(v)) }

// Bits says that the bits of mask in an argument are those of v.
func Bits(arg uint8, mask, v uint64) Cond {
	return Cond{Arg: arg, Op: MaskedEq, Value: v, Mask: mask}
}

// Rule gives the named calls an action where all conditions hold.
type Rule struct {
	Names  []string
	Action Action
	When   []Cond
}

// Policy is an ordered list of rules and what happens where none holds.
type Policy struct {
	Rules []Rule
	// Default answers a call that exists and that no rule decides.
	Default Action
	// Unassigned answers a number below the highest one the policy names that no call has.
	Unassigned Action
	// Above answers numbers above the highest one the policy names, on that architecture: calls invented after it was
	// written. ENOSYS makes a C library fall back to the older call, where EPERM makes it give up.
	Above Action
	// Foreign answers calls through an architecture that is not among those compiled for, such as the 32-bit entry.
	Foreign Action
}

// Arch is a table of system calls.
type Arch struct {
	OCI     string            // name in the runtime spec, such as SCMP_ARCH_X86_64
	Audit   uint32            // AUDIT_ARCH_*: what the kernel tells a filter
	Bit     uint32            // added to every number: 0x40000000 for x32, which shares amd64's Audit
	Numbers map[string]uint32 // without Bit
}

// private is where 32-bit ARM's own calls begin, far above the common ones; they do not count as the highest.
const private = 0x0f0000

// highest returns the highest common number that the policy names on the architecture.
func (p *Policy) highest(a *Arch) uint32 {
	top := uint32(0)
	for i := range p.Rules {
		for _, name := range p.Rules[i].Names {
			if nr, ok := a.Numbers[name]; ok && nr < private {
				top = max(top, nr)
			}
		}
	}
	return top
}

// Data is what the kernel shows a filter (struct seccomp_data) without the instruction pointer.
type Data struct {
	Nr, Arch uint32
	Args     [6]uint64
}

// Decide says what a policy means, slowly and obviously.
func Decide(p *Policy, arches []Arch, d Data) Action {
	var a *Arch
	for i := range arches {
		if arches[i].Audit == d.Arch && (a == nil || d.Nr >= arches[i].Bit) {
			a = &arches[i] // x32 comes after amd64 and takes the numbers from its bit on
		}
	}
	if a == nil {
		return p.Foreign
	}
	nr := d.Nr - a.Bit
	assigned, named := false, false
	for name, n := range a.Numbers {
		if n != nr {
			continue
		}
		assigned = true
		for i := range p.Rules {
			if !slices.Contains(p.Rules[i].Names, name) {
				continue
			}
			if named = true; p.Rules[i].holds(d.Args) {
				return p.Rules[i].Action
			}
		}
	}
	switch {
	case named:
		return p.Default
	case nr > p.highest(a):
		return p.Above
	case !assigned:
		return p.Unassigned
	}
	return p.Default
}

func (r *Rule) holds(args [6]uint64) bool {
	for _, c := range r.When {
		if !c.holds(args[c.Arg]) {
			return false
		}
	}
	return true
}

func (c Cond) holds(v uint64) bool {
	switch c.Op {
	case Eq:
		return v == c.Value
	case Ne:
		return v != c.Value
	case MaskedEq:
		return v&c.Mask == c.Value
	case Ge:
		return v >= c.Value
	case Gt:
		return v > c.Value
	case Le:
		return v <= c.Value
	default:
		return v < c.Value
	}
}

// Check refuses a policy with a name that none of the tables knows (a typing error would silently deny or allow nothing),
// a condition that can never hold, or an unknown comparison.
func Check(p *Policy, tables []Arch) error {
	for i := range p.Rules {
		for _, name := range p.Rules[i].Names {
			known := slices.ContainsFunc(tables, func(a Arch) bool { _, ok := a.Numbers[name]; return ok })
			if !known {
				return fmt.Errorf("rule %d: no architecture has a system call %q", i, name)
			}
		}
		for _, c := range p.Rules[i].When {
			if c.Arg > 5 || c.Op > Lt || c.Op == MaskedEq && c.Value&^c.Mask != 0 {
				return fmt.Errorf("rule %d: impossible condition %+v", i, c)
			}
		}
	}
	return nil
}
