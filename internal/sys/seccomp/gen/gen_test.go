package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/rung-dev/rung/internal/sys/seccomp/filter"
	"github.com/rung-dev/rung/internal/sys/seccomp/filter/filtertest"
	"github.com/rung-dev/rung/internal/sys/seccomp/profile"
)

// TestGenerated fails when a generated file is not what the generator writes today.
func TestGenerated(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile("../" + name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v): run go generate ./internal/sys/seccomp", name, err)
		}
	}
}

// samples are argument lists that tell the conditional rules apart: every family, type and protocol of interest, flags with
// and without bits, and the same with something in the half of the register that the kernel ignores.
func samples() [][6]uint64 {
	var list [][6]uint64
	firsts := []uint64{0, 1, 2, 3, 8, 10, 16, 17, 38, 40, 44, 0x11, 0x00010000, 0x10000000, 0x7e020000, 0x20008, 0xffffffff, 0x003d0f00, 1 << 32, 1<<32 | 1, 1<<32 | 38, ^uint64(0)}
	seconds := []uint64{0, 1, 2, 3, 5, 10, 0x80801, 0x80803, 8, 9, 0x5412, 0x5413, 0x541c, 0x5423, 1<<32 | 0x5412, 0x1ff | 0x2000, 0x81a4, 0xc000, 0x6000}
	for _, a := range firsts {
		for _, b := range seconds {
			for _, c := range []uint64{0, 6, 17, 262, 12, 0x2000, 0x8180} {
				list = append(list, [6]uint64{a, b, c})
			}
		}
	}
	return list
}

// TestProfiles compares each filter with the meaning of its policy, for every number there is.
func TestProfiles(t *testing.T) {
	all := samples()
	for goarch := range targets() {
		list, err := profiles(goarch)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range list {
			t.Run(goarch+"/"+name, func(t *testing.T) { compare(t, b, all) })
		}
	}
}

func compare(t *testing.T, b built, all [][6]uint64) {
	insns, err := filter.Compile(b.policy, b.arches)
	if err != nil {
		t.Fatal(err)
	}
	raw := filter.Bytes(insns)
	audits := []uint32{0, 0x40000003, 0xc000003e, 0xc00000b7, 0x40000028}
	looks := conditional(b.policy)
	for _, audit := range audits {
		deep := map[uint32]bool{}
		var numbers []uint32
		for i := range uint32(520) {
			numbers = append(numbers, i, i|0x40000000)
		}
		numbers = append(numbers, 9999, 0x0f0000, 0x0f0001, 0x0f0002, 0x0f0003, 0x0f0005, 0x3fffffff, 0x7fffffff, 0x80000000, 0xffffffff)
		for _, a := range b.arches {
			for name, nr := range a.Numbers {
				if a.Audit == audit && looks[name] {
					deep[nr|a.Bit] = true
				}
			}
		}
		for _, nr := range numbers {
			list := all[:3]
			if deep[nr] {
				list = all
			}
			for _, args := range list {
				d := filter.Data{Nr: nr, Arch: audit, Args: args}
				got, err := filtertest.Run(raw, d)
				if want := filter.Decide(b.policy, b.arches, d); err != nil || got != want {
					t.Fatalf("%+v: filter %#x (%v), policy %#x", d, got, err, want)
				}
			}
		}
	}
}

// conditional returns the calls that some rule looks at the arguments of.
func conditional(p *filter.Policy) map[string]bool {
	out := map[string]bool{}
	for _, r := range p.Rules {
		for _, name := range r.Names {
			out[name] = out[name] || len(r.When) > 0
		}
	}
	return out
}

// TestHardenedKeepsApart fails when a call is in two lists that contradict each other: the later one would silently mean
// nothing.
func TestHardenedKeepsApart(t *testing.T) {
	seen := map[string]string{}
	for _, p := range []*filter.Policy{profile.Hardened(filter.Notify), profile.Process(filter.Notify)} {
		clear(seen)
		for i, r := range p.Rules {
			for _, name := range r.Names {
				if len(r.When) == 0 && seen[name] == "final" {
					t.Errorf("rule %d: %s was decided before", i, name)
				}
				if seen[name] = "open"; len(r.When) == 0 {
					seen[name] = "final"
				}
			}
		}
	}
}

// TestDenied fixes what each of rung's profiles does with the calls that matter, in words of the policy.
func TestDenied(t *testing.T) {
	eperm, enosys := filter.Errno(filter.EPERM), filter.Errno(filter.ENOSYS)
	for goarch, arches := range targets() {
		list, err := profiles(goarch)
		if err != nil {
			t.Fatal(err)
		}
		check := func(name, call string, want filter.Action, args ...uint64) {
			t.Helper()
			nr, ok := arches[0].Numbers[call]
			if !ok {
				return // legacy call that this machine never had
			}
			d := filter.Data{Nr: nr, Arch: arches[0].Audit}
			copy(d.Args[:], args)
			if got := filter.Decide(list[name].policy, list[name].arches, d); got != want {
				t.Errorf("%s %s: %s%v is %#x, not %#x", goarch, name, call, args, got, want)
			}
		}
		for _, call := range profile.Watched {
			check("hardened", call, eperm)
			check("hardened-notify", call, filter.Notify)
			check("process", call, eperm)
			check("process-notify", call, filter.Notify)
		}
		for _, name := range []string{"hardened-notify", "process-notify"} {
			check(name, "clone3", enosys)
			check(name, "clone", filter.Allow, 0x003d0f00)
			check(name, "clone", filter.Notify, 0x10000000)
			check(name, "socket", filter.Allow, 1, 1, 0)
			check(name, "socket", filter.Notify, 38, 5, 0)
			check(name, "socket", filter.Notify, 1<<32|38, 5, 0)
			check(name, "socket", filter.Notify, 40, 1, 0)
			check(name, "socket", filter.Notify, 16, 3, 6)
			check(name, "socket", filter.Notify, 2, 0x80003, 1)
			check(name, "ioctl", eperm, 0, 0x5412)
			check(name, "ioctl", eperm, 0, 1<<32|0x5412)
			check(name, "ioctl", filter.Allow, 0, 0x5413)
			check(name, "personality", filter.Notify, 0x0040000)
			check(name, "personality", filter.Allow, 0xffffffff)
			check(name, "seccomp", filter.Allow, 1, 1)
			check(name, "seccomp", eperm, 1, 8)
			check(name, "mknodat", eperm, 0, 0, 0x2000)
			check(name, "mbind", eperm)
		}
		check("hardened-notify", "socket", filter.Allow, 2, 0x80801, 6)
		check("hardened-notify", "socket", filter.Allow, 10, 2, 0)
		check("hardened-notify", "socket", eperm, 2, 1, 132)
		check("hardened-notify", "socket", filter.Errno(filter.EPROTONOSUPPORT), 2, 1, 262)
		check("hardened-notify", "socket", filter.Allow, 16, 3, 0)
		check("process-notify", "socket", filter.Notify, 2, 1, 6)
		check("process-notify", "socket", eperm, 16, 3, 0)
		check("container", "unshare", eperm)
		check("container", "chroot", filter.Allow)
		check("container", "clone3", enosys)
		check("container", "socket", eperm, 38, 5, 0)
		check("container", "socket", filter.Allow, 17, 3, 0)
	}
}

// TestOCIMeansTheSame reads the JSON rules as libseccomp does, in any order, and compares them with the policy on the
// machine's own architecture.
func TestOCIMeansTheSame(t *testing.T) {
	all := samples()
	for goarch := range targets() {
		list, err := profiles(goarch)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range list {
			section, err := filter.OCI(b.policy, b.arches)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(goarch+"/"+name, func(t *testing.T) {
				deep := conditional(b.policy)
				for call, nr := range b.arches[0].Numbers {
					list := all[:3]
					if deep[call] {
						list = all
					}
					for _, args := range list {
						want := filter.Decide(b.policy, b.arches, filter.Data{Nr: nr, Arch: b.arches[0].Audit, Args: args})
						got := unordered(t, section, call, args, b.policy.Default)
						if got != want && !(want == b.policy.Above && got == b.policy.Default) {
							t.Fatalf("%s%v: JSON %#x, policy %#x", call, args, got, want)
						}
					}
				}
			})
		}
	}
}

// unordered fails when two rules with different actions apply.
func unordered(t *testing.T, s *filter.Section, call string, args [6]uint64, def filter.Action) filter.Action {
	t.Helper()
	found := map[filter.Action]bool{}
	for _, r := range s.Syscalls {
		if slices.Contains(r.Names, call) && holds(r.Args, args) {
			found[actionOf(r)] = true
		}
	}
	switch len(found) {
	case 0:
		return def
	case 1:
		return slices.Collect(maps.Keys(found))[0]
	}
	t.Fatalf("%s%v: rules contradict each other: %v", call, args, found)
	return 0
}

func actionOf(r filter.Syscall) filter.Action {
	switch {
	case r.Action == "SCMP_ACT_ALLOW":
		return filter.Allow
	case r.Action == "SCMP_ACT_NOTIFY":
		return filter.Notify
	case r.Action == "SCMP_ACT_ERRNO":
		return filter.Errno(*r.ErrnoRet)
	}
	panic(fmt.Sprint("unknown action ", r.Action))
}

func holds(conds []filter.Arg, args [6]uint64) bool {
	seen := map[uint8]bool{}
	for _, c := range conds {
		v := args[c.Index]
		ok := map[string]bool{
			"SCMP_CMP_EQ": v == c.Value, "SCMP_CMP_NE": v != c.Value, "SCMP_CMP_LT": v < c.Value, "SCMP_CMP_LE": v <= c.Value,
			"SCMP_CMP_GT": v > c.Value, "SCMP_CMP_GE": v >= c.Value, "SCMP_CMP_MASKED_EQ": v&c.Value == c.ValueTwo,
		}[c.Op]
		if seen[c.Index] || !ok { // a second condition on one argument would be read as "or"
			return false
		}
		seen[c.Index] = true
	}
	return true
}
