package filter

import (
	"fmt"
	"math/bits"
	"slices"
)

// Section is the seccomp member of a runtime-spec configuration (LinuxSeccomp).
type Section struct {
	DefaultAction   string    `json:"defaultAction"`
	DefaultErrnoRet uint16    `json:"defaultErrnoRet"`
	Architectures   []string  `json:"architectures"`
	Flags           []string  `json:"flags"`
	ListenerPath    string    `json:"listenerPath,omitempty"`
	Syscalls        []Syscall `json:"syscalls"`
}

// Syscall is a LinuxSyscall.
type Syscall struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *uint16  `json:"errnoRet,omitempty"`
	Args     []Arg    `json:"args,omitempty"`
}

// Arg is a LinuxSeccompArg. For SCMP_CMP_MASKED_EQ the value is the mask and valueTwo what is left of the argument.
type Arg struct {
	Index    uint8  `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo,omitempty"`
	Op       string `json:"op"`
}

var opNames = [...]string{Eq: "EQ", Ne: "NE", MaskedEq: "MASKED_EQ", Ge: "GE", Gt: "GT", Le: "LE", Lt: "LT"}

// OCI writes the policy for runtimes that compile it with libseccomp.
//
// libseccomp knows no order: rules of one call with different actions must not overlap, an unconditional rule silently
// wins over the others, and runtimes turn two conditions on one argument into an "or". So each rule is rewritten as the
// set of argument patterns (masked values) that no earlier rule with another action covers; rules that say what the
// default says are left out, as the runtimes drop them anyway. Unassigned, Above and Foreign are the runtime's own: runc
// answers ENOSYS above the highest number named and libseccomp kills foreign architectures, crun has no rule for new ones.
func OCI(p *Policy, arches []Arch) (*Section, error) {
	s := &Section{Flags: []string{}}
	var errno *uint16
	if s.DefaultAction, errno = actionName(p.Default); errno == nil {
		return nil, fmt.Errorf("the default action has to be an errno")
	}
	s.DefaultErrnoRet = *errno
	for _, a := range arches {
		s.Architectures = append(s.Architectures, a.OCI)
	}
	for _, g := range group(p) {
		rules, err := disjoint(g.rules, p.Default)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.names[0], err)
		}
		for _, r := range rules {
			call := Syscall{Names: g.names}
			call.Action, call.ErrnoRet = actionName(r.Action)
			for _, c := range r.When {
				call.Args = append(call.Args, c.arg())
			}
			s.Syscalls = append(s.Syscalls, call)
		}
	}
	return s, nil
}

func actionName(a Action) (string, *uint16) {
	switch {
	case a == Allow:
		return "SCMP_ACT_ALLOW", nil
	case a == Notify:
		return "SCMP_ACT_NOTIFY", nil
	case a == KillProcess:
		return "SCMP_ACT_KILL_PROCESS", nil
	}
	n := uint16(a)
	return "SCMP_ACT_ERRNO", &n
}

func (c Cond) arg() Arg {
	a := Arg{Index: c.Arg, Value: c.Value, Op: "SCMP_CMP_" + opNames[c.Op]}
	if c.Op == MaskedEq {
		a.Value, a.ValueTwo = c.Mask, c.Value
	}
	return a
}

// calls are names that have the same rules.
type calls struct {
	names []string
	rules []Rule
}

// group collects the names with equal rules, sorted, so that the result is short and always the same.
func group(p *Policy) []calls {
	rules := map[string][]Rule{}
	for _, r := range p.Rules {
		for _, name := range r.Names {
			rules[name] = append(rules[name], Rule{Action: r.Action, When: r.When})
		}
	}
	byKey := map[string]*calls{}
	for name, list := range rules {
		key := fmt.Sprint(list)
		if byKey[key] == nil {
			byKey[key] = &calls{rules: list}
		}
		byKey[key].names = append(byKey[key].names, name)
	}
	var out []calls
	for _, g := range byKey {
		slices.Sort(g.names)
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b calls) int { return slices.Compare(a.names, b.names) })
	return out
}

// disjoint rewrites ordered rules as unordered ones.
func disjoint(rules []Rule, def Action) ([]Rule, error) {
	var out []Rule
	for i, r := range rules {
		var before []Rule
		for _, e := range rules[:i] {
			if e.Action != r.Action {
				before = append(before, e)
			}
			if len(e.When) == 0 {
				return out, nil // nothing after it is reached
			}
		}
		if r.Action == def {
			continue
		}
		if len(before) == 0 {
			out = append(out, r)
			continue
		}
		pieces, err := subtract(r, before)
		if err != nil {
			return nil, err
		}
		for _, c := range pieces {
			out = append(out, Rule{Action: r.Action, When: c.conds()})
		}
	}
	return out, nil
}

// cube is a set of argument values: those whose bits under mask are v, in each of the six.
type cube struct{ mask, v [6]uint64 }

func newCube(r Rule) (cube, error) {
	var c cube
	for _, w := range r.When {
		if w.Op == Eq {
			w.Mask = ^uint64(0)
		} else if w.Op != MaskedEq {
			return c, fmt.Errorf("an overlap of %s cannot be written for libseccomp", opNames[w.Op])
		}
		if both := c.mask[w.Arg] & w.Mask; c.v[w.Arg]&both != w.Value&both {
			return c, fmt.Errorf("two conditions on argument %d contradict each other", w.Arg)
		}
		c.mask[w.Arg] |= w.Mask
		c.v[w.Arg] |= w.Value
	}
	return c, nil
}

func (c cube) conds() []Cond {
	var out []Cond
	for i, m := range c.mask {
		if m != 0 {
			out = append(out, Bits(uint8(i), m, c.v[i]))
		}
	}
	return out
}

func (c cube) size() (n int) {
	for _, m := range c.mask {
		n += bits.OnesCount64(m)
	}
	return n
}

// subtract returns r without what the earlier rules cover. The widest go first: what they cover needs no splitting for
// the narrower ones inside.
func subtract(r Rule, before []Rule) ([]cube, error) {
	whole, err := newCube(r)
	if err != nil {
		return nil, err
	}
	var cut []cube
	for _, e := range before {
		c, err := newCube(e)
		if err != nil {
			return nil, err
		}
		cut = append(cut, c)
	}
	slices.SortStableFunc(cut, func(a, b cube) int { return a.size() - b.size() })
	pieces := []cube{whole}
	for _, c := range cut {
		var next []cube
		for _, p := range pieces {
			next = append(next, p.minus(c)...)
		}
		pieces = next
	}
	return pieces, nil
}

// minus splits p into cubes that together are p without c: one for each bit that c fixes and p does not, from the top,
// where that bit differs and those above it agree.
func (p cube) minus(c cube) []cube {
	for i := range p.mask {
		if both := p.mask[i] & c.mask[i]; p.v[i]&both != c.v[i]&both {
			return []cube{p} // they have nothing in common
		}
	}
	var out []cube
	for i := range c.mask {
		for free := c.mask[i] &^ p.mask[i]; free != 0; {
			bit := uint64(1) << (63 - bits.LeadingZeros64(free))
			free &^= bit
			piece := p
			piece.mask[i] |= bit
			piece.v[i] |= ^c.v[i] & bit
			out = append(out, piece)
			p.mask[i] |= bit
			p.v[i] |= c.v[i] & bit
		}
	}
	return out
}
