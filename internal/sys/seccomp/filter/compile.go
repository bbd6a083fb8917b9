package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Insn is one instruction of classic BPF (struct sock_filter).
type Insn struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// The instructions used; numbers are those of linux/bpf_common.h.
const (
	opLoad = 0x20 // A = the 32-bit word at offset K
	opAnd  = 0x54 // A &= K
	opJump = 0x05 // skip K instructions
	opJeq  = 0x15
	opJgt  = 0x25
	opJge  = 0x35
	opRet  = 0x06
)

// Offsets in struct seccomp_data, little-endian.
const (
	offNr, offArch, offArgs = 0, 4, 16
)

// MaxInsns is the kernel's limit for one filter (BPF_MAXINSNS).
const MaxInsns = 4096

// Compile turns a policy into instructions for the architectures, of which the first is the machine's own and is tested
// first. The result is the same for the same input.
func Compile(p *Policy, arches []Arch) ([]Insn, error) {
	if len(arches) == 0 {
		return nil, errors.New("no architecture to compile for")
	}
	b := &builder{memo: map[string]int{}, hops: map[int]int{}}
	top := b.ret(p.Foreign)
	for _, arche := range slices.Backward(arches) {
		if arche.Bit != 0 {
			continue // part of the section of the architecture it shares Audit with
		}
		var spans []span
		for j := range arches {
			if arches[j].Audit == arche.Audit {
				spans = append(spans, p.spans(&arches[j])...)
			}
		}
		spans = merge(spans)
		entry := b.stmt(opLoad, offNr, b.tree(spans))
		top = b.branch(opJeq, arche.Audit, entry, top)
	}
	b.stmt(opLoad, offArch, top)
	if len(b.rev) > MaxInsns {
		return nil, fmt.Errorf("the filter has %d instructions; the kernel takes %d", len(b.rev), MaxInsns)
	}
	slices.Reverse(b.rev)
	return b.rev, nil
}

// Bytes writes instructions as the little-endian struct sock_filter array that the kernel and crun take.
func Bytes(insns []Insn) []byte {
	out := make([]byte, 0, 8*len(insns))
	for _, in := range insns {
		out = binary.LittleEndian.AppendUint16(out, in.Code)
		out = append(out, in.Jt, in.Jf)
		out = binary.LittleEndian.AppendUint32(out, in.K)
	}
	return out
}

// span is a range of numbers from start to the next span's start with one meaning.
type span struct {
	start uint32
	rules []Rule // those that name the call, in order; conditions decide
	other Action // where no rule holds
	key   string // equal keys mean the same
}

func (p *Policy) spans(a *Arch) []span {
	byNr := map[uint32][]Rule{}
	for _, r := range p.Rules {
		for _, name := range r.Names {
			if nr, ok := a.Numbers[name]; ok {
				byNr[nr] = append(byNr[nr], Rule{Action: r.Action, When: r.When})
			}
		}
	}
	var out []span
	assigned := map[uint32]bool{}
	for _, nr := range a.Numbers {
		assigned[nr] = true
	}
	meaning := func(nr uint32, other Action) {
		s := span{start: nr + a.Bit, other: other}
		if list, named := byNr[nr]; named {
			s.other = p.Default
			s.rules = simplify(list, &s.other)
		}
		s.key = fmt.Sprint(s.rules, s.other)
		out = append(out, s)
	}
	top := p.highest(a)
	for nr := range top + 1 {
		if assigned[nr] {
			meaning(nr, p.Default)
		} else {
			meaning(nr, p.Unassigned)
		}
	}
	meaning(top+1, p.Above)
	for nr := range byNr {
		if nr > top {
			meaning(nr, p.Above)
			if _, next := byNr[nr+1]; !next {
				meaning(nr+1, p.Above)
			}
		}
	}
	return out
}

// simplify cuts what can not be reached after an unconditional rule, and drops trailing rules that say what would happen
// anyway.
func simplify(rules []Rule, other *Action) []Rule {
	if i := slices.IndexFunc(rules, func(r Rule) bool { return len(r.When) == 0 }); i >= 0 {
		*other = rules[i].Action
		rules = rules[:i]
	}
	for len(rules) > 0 && rules[len(rules)-1].Action == *other {
		rules = rules[:len(rules)-1]
	}
	return rules
}

func merge(spans []span) []span {
	slices.SortStableFunc(spans, func(a, b span) int { return int(int64(a.start) - int64(b.start)) })
	return slices.CompactFunc(spans, func(a, b span) bool { return a.key == b.key })
}

// builder emits a program from its end to its start. Every jump of classic BPF goes forward, so the target of whatever is
// emitted always exists already; a label is an index into rev. What is too far for an 8-bit offset is reached through a
// hop: a copy of the return, or an unconditional jump, whose offset has 32 bits.
type builder struct {
	rev  []Insn
	memo map[string]int // an instruction with its targets -> where it is
	hops map[int]int    // label -> its latest hop
}

func (b *builder) emit(in Insn) int {
	b.rev = append(b.rev, in)
	return len(b.rev) - 1
}

func (b *builder) once(make func() Insn, key ...any) int {
	k := strings.TrimSpace(fmt.Sprintln(key...))
	if l, ok := b.memo[k]; ok {
		return l
	}
	l := b.emit(make())
	b.memo[k] = l
	return l
}

func (b *builder) ret(a Action) int {
	return b.once(func() Insn { return Insn{Code: opRet, K: uint32(a)} }, opRet, a)
}

// distance is what the next instruction would write as its offset to reach l.
func (b *builder) distance(l int) int { return len(b.rev) - l - 1 }

func (b *builder) near(l int) int {
	if b.distance(l) <= 255 {
		return l
	}
	if h, ok := b.hops[l]; ok && b.distance(h) <= 255 {
		return h
	}
	b.hops[l] = b.hop(l)
	return b.hops[l]
}

func (b *builder) hop(l int) int {
	if b.rev[l].Code == opRet {
		return b.emit(b.rev[l])
	}
	return b.emit(Insn{Code: opJump, K: uint32(b.distance(l))})
}

func (b *builder) branch(op uint16, k uint32, yes, no int) int {
	if yes == no {
		return yes
	}
	return b.once(func() Insn {
		y, n := b.near(yes), b.near(no)
		for b.distance(y) > 255 || b.distance(n) > 255 { // the second hop may have pushed the first target away by one
			y, n = b.near(y), b.near(n)
		}
		return Insn{Code: op, K: k, Jt: uint8(b.distance(y)), Jf: uint8(b.distance(n))}
	}, op, k, yes, no)
}

// stmt emits an instruction that continues with the very next one, which therefore has to be next.
func (b *builder) stmt(op uint16, k uint32, next int) int {
	return b.once(func() Insn {
		if next != len(b.rev)-1 {
			b.hop(next)
		}
		return Insn{Code: op, K: k}
	}, op, k, next)
}

// tree is the binary search over spans with the number in A.
func (b *builder) tree(spans []span) int {
	if len(spans) == 1 {
		return b.leaf(spans[0])
	}
	mid := len(spans) / 2
	right := b.tree(spans[mid:])
	left := b.tree(spans[:mid])
	return b.branch(opJge, spans[mid].start, right, left)
}

func (b *builder) leaf(s span) int {
	l := b.ret(s.other)
	for _, r := range slices.Backward(s.rules) {
		no := l
		l = b.ret(r.Action)
		for _, c := range slices.Backward(r.When) {
			l = b.cond(c, l, no)
		}
	}
	return l
}

func (b *builder) cond(c Cond, yes, no int) int {
	switch c.Op {
	case Eq:
		return b.masked(c.Arg, ^uint64(0), c.Value, yes, no)
	case Ne:
		return b.masked(c.Arg, ^uint64(0), c.Value, no, yes)
	case MaskedEq:
		return b.masked(c.Arg, c.Mask, c.Value, yes, no)
	case Ge:
		return b.order(opJge, c, yes, no)
	case Gt:
		return b.order(opJgt, c, yes, no)
	case Le:
		return b.order(opJgt, c, no, yes)
	default:
		return b.order(opJge, c, no, yes)
	}
}

func (b *builder) masked(arg uint8, mask, v uint64, yes, no int) int {
	l := b.word(offArgs+8*uint32(arg), uint32(mask), uint32(v), yes, no)
	return b.word(offArgs+8*uint32(arg)+4, uint32(mask>>32), uint32(v>>32), l, no)
}

func (b *builder) word(off, mask, v uint32, yes, no int) int {
	if mask == 0 {
		return yes
	}
	l := b.branch(opJeq, v, yes, no)
	if mask != 0xffffffff {
		l = b.stmt(opAnd, mask, l)
	}
	return b.stmt(opLoad, off, l)
}

// order compares 64 bits: the high words decide unless they are equal.
func (b *builder) order(op uint16, c Cond, yes, no int) int {
	off := offArgs + 8*uint32(c.Arg)
	low := b.stmt(opLoad, off, b.branch(op, uint32(c.Value), yes, no))
	same := b.branch(opJeq, uint32(c.Value>>32), low, no)
	return b.stmt(opLoad, off+4, b.branch(opJgt, uint32(c.Value>>32), yes, same))
}
