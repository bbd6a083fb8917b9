// Package process builds the rung process: rung-guest and user code under restrictions of the kernel only, without a
// container runtime. Namespaces of its own (user, pid, mount, network, IPC, UTS, cgroup) with only the template's paths in
// them, Landlock, a seccomp filter that refuses internet sockets, rlimits, a control group, no capabilities. It is hygiene
// on top of another tier: one kernel, and a filter and a rule set are all that stand before it.
//
// It also builds the rung none: rung-guest as an ordinary child, the positive control of the escape test.
package process

import (
	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
)

// Kind and KindNone are the names under which Hold and HoldNone are registered with the holder.
const (
	Kind     = "process"
	KindNone = "none"
)

// Driver makes sandboxes of rung process or none.
type Driver struct {
	rung rung.Rung
	host held.Host
}

// New returns the driver of rung r: process or none.
func New(r rung.Rung, host held.Host) *Driver { return &Driver{rung: r, host: host} }

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: "process", Rung: d.rung, Abilities: []driver.Ability{driver.CanInspect, driver.CanMeter}}
}

// Visibility tells which refusals rung sees.
func (d *Driver) Visibility() rung.Visibility {
	return rung.Visibility{
		Seen:   []string{"memory kills", "wall clock", "output cap"},
		Unseen: []string{"refused system calls", "paths refused by Landlock", "refused pids and disk space"},
	}
}

// spec is what the client tells the build in the holder.
type spec struct {
	Tree     held.Tree   `json:"tree"`
	Limits   rung.Limits `json:"limits"`
	Env      []string    `json:"env"`
	Rootless bool        `json:"rootless"`
	IDs      held.IDs    `json:"ids"`
	Landlock int         `json:"landlock_abi"`
	Network  bool        `json:"network"` // the gate's proxy is on the loopback interface
}
