package main

import (
	"fmt"
	"slices"

	moby "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/rung-dev/rung/internal/sys/seccomp/filter"
)

// dockerCaps are the capabilities of a container that asked for nothing.
var dockerCaps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// container resolves moby's profile for a machine. moby resolves it for the machine it runs on, hence this.
func container(goarch string, arches []filter.Arch) (*filter.Policy, error) {
	source := moby.DefaultProfile()
	p := &filter.Policy{
		// What the runtimes make of the profile: runc answers ENOSYS above the highest call named, libseccomp kills what
		// comes through an architecture that is not listed.
		Above:   filter.Errno(filter.ENOSYS),
		Foreign: filter.KillProcess,
	}
	var err error
	if p.Default, err = action(source.DefaultAction, source.DefaultErrnoRet); err != nil {
		return nil, err
	}
	p.Unassigned = p.Default
	for _, call := range source.Syscalls {
		if !applies(call, goarch) {
			continue
		}
		r := filter.Rule{}
		if r.Action, err = action(call.Action, call.ErrnoRet); err != nil {
			return nil, err
		}
		for _, name := range call.Names {
			if slices.ContainsFunc(arches, func(a filter.Arch) bool { _, ok := a.Numbers[name]; return ok }) {
				r.Names = append(r.Names, name) // the profile also names calls of machines we do not build for
			}
		}
		for _, arg := range call.Args {
			c, err := condition(arg)
			if err != nil {
				return nil, err
			}
			r.When = append(r.When, c)
		}
		if len(r.Names) > 0 {
			p.Rules = append(p.Rules, r)
		}
	}
	return p, nil
}

func applies(call *moby.Syscall, goarch string) bool {
	held := func(c string) bool { return slices.Contains(dockerCaps, c) }
	if f := call.Excludes; f != nil && (slices.Contains(f.Arches, goarch) || slices.ContainsFunc(f.Caps, held) || f.MinKernel != nil) {
		return false
	}
	f := call.Includes
	if f == nil {
		return true
	}
	return (len(f.Arches) == 0 || slices.Contains(f.Arches, goarch)) &&
		!slices.ContainsFunc(f.Caps, func(c string) bool { return !held(c) })
}

func action(a specs.LinuxSeccompAction, errno *uint) (filter.Action, error) {
	switch {
	case a == specs.ActAllow:
		return filter.Allow, nil
	case a == specs.ActErrno && errno != nil:
		return filter.Errno(uint16(*errno)), nil
	case a == specs.ActErrno:
		return filter.Errno(filter.EPERM), nil
	}
	return 0, fmt.Errorf("moby's profile uses an action this program does not know: %s", a)
}

func condition(a specs.LinuxSeccompArg) (filter.Cond, error) {
	ops := map[specs.LinuxSeccompOperator]filter.Op{
		specs.OpEqualTo: filter.Eq, specs.OpNotEqual: filter.Ne, specs.OpGreaterEqual: filter.Ge,
		specs.OpGreaterThan: filter.Gt, specs.OpLessEqual: filter.Le, specs.OpLessThan: filter.Lt,
		specs.OpMaskedEqual: filter.MaskedEq,
	}
	op, ok := ops[a.Op]
	if !ok {
		return filter.Cond{}, fmt.Errorf("moby's profile uses a comparison this program does not know: %s", a.Op)
	}
	c := filter.Cond{Arg: uint8(a.Index), Op: op, Value: a.Value}
	if op == filter.MaskedEq { // the specification puts the mask first
		c.Mask, c.Value = a.Value, a.ValueTwo
	}
	return c, nil
}
