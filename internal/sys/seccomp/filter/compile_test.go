package filter_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rung-dev/rung/internal/sys/seccomp/filter"
	"github.com/rung-dev/rung/internal/sys/seccomp/filter/filtertest"
)

// TestCompileAgreesWithDecide makes random policies, with all comparisons, several conditions and rules, over two
// architectures and a third that shares the first's identity, and compares the compiled program with the definition.
func TestCompileAgreesWithDecide(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		p, arches := randomPolicy(r)
		insns, err := filter.Compile(p, arches)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again, _ := filter.Compile(p, arches)
		if string(filter.Bytes(insns)) != string(filter.Bytes(again)) {
			t.Fatalf("seed %d: two compilations differ", seed)
		}
		for range 1000 {
			d := randomData(r)
			got, err := filtertest.Run(filter.Bytes(insns), d)
			if want := filter.Decide(p, arches, d); err != nil || got != want {
				t.Fatalf("seed %d: %+v: compiled says %#x (%v), the policy %#x", seed, d, got, err, want)
			}
		}
	}
}

var words = []uint64{0, 1, 2, 3, 0xf, 1 << 31, 0xffffffff, 1 << 32, 1<<32 | 1, 1<<32 | 2, 1 << 63, 1<<64 - 1}

func randomWord(r *rand.Rand) uint64 {
	if r.IntN(4) == 0 {
		return r.Uint64()
	}
	return words[r.IntN(len(words))]
}

func randomPolicy(r *rand.Rand) (*filter.Policy, []filter.Arch) {
	size := 1 + r.IntN(400)
	arches := []filter.Arch{{Audit: 1}, {Audit: 2}, {Audit: 1, Bit: 0x40000000}}
	for i := range arches {
		arches[i].Numbers = map[string]uint32{}
		for nr := range size {
			if r.IntN(10) > 0 {
				arches[i].Numbers[fmt.Sprint("c", (nr+i)%size)] = uint32(nr)
			}
		}
	}
	arches[1].Numbers["private"] = 0x0f0002
	actions := []filter.Action{filter.Allow, filter.Notify, filter.KillProcess, filter.Errno(1), filter.Errno(38), filter.Errno(7)}
	pick := func() filter.Action { return actions[r.IntN(len(actions))] }
	p := &filter.Policy{Default: pick(), Unassigned: pick(), Above: pick(), Foreign: pick()}
	for range r.IntN(200) {
		rule := filter.Rule{Action: pick()}
		for range 1 + r.IntN(3) {
			rule.Names = append(rule.Names, fmt.Sprint("c", r.IntN(size)))
		}
		if r.IntN(50) == 0 {
			rule.Names = append(rule.Names, "private")
		}
		for range r.IntN(3) {
			c := filter.Cond{Arg: uint8(r.IntN(6)), Op: filter.Op(r.IntN(7)), Value: randomWord(r)}
			if c.Op == filter.MaskedEq {
				c.Mask = randomWord(r)
				c.Value &= c.Mask
			}
			rule.When = append(rule.When, c)
		}
		p.Rules = append(p.Rules, rule)
	}
	return p, arches[:1+r.IntN(3)]
}

func randomData(r *rand.Rand) filter.Data {
	d := filter.Data{Nr: uint32(r.IntN(450)), Arch: uint32(r.IntN(4))}
	switch r.IntN(8) {
	case 0:
		d.Nr |= 0x40000000
	case 1:
		d.Nr = r.Uint32()
	case 2:
		d.Nr = 0x0f0001 + uint32(r.IntN(3))
	}
	for i := range d.Args {
		d.Args[i] = randomWord(r)
	}
	return d
}

func TestCompileRefuses(t *testing.T) {
	if _, err := filter.Compile(&filter.Policy{}, nil); err == nil {
		t.Error("no architecture: no error")
	}
	numbers := map[string]uint32{"a": 1}
	for name, rule := range map[string]filter.Rule{
		"unknown name":    {Names: []string{"b"}},
		"argument":        {Names: []string{"a"}, When: []filter.Cond{{Arg: 6}}},
		"value over mask": {Names: []string{"a"}, When: []filter.Cond{filter.Bits(0, 1, 2)}},
	} {
		p := &filter.Policy{Rules: []filter.Rule{rule}}
		if filter.Check(p, []filter.Arch{{Numbers: numbers}}) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestBytes fixes the layout: it is the kernel's.
func TestBytes(t *testing.T) {
	b := filter.Bytes([]filter.Insn{{Code: 0x15, Jt: 1, Jf: 2, K: 0x01020304}})
	if binary.LittleEndian.Uint64(b) != 0x01020304_02_01_0015 {
		t.Errorf("got % x", b)
	}
}
