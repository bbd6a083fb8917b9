// Package oci builds the rungs container, hardened and gvisor: one bundle writer, three walls, enforced by an OCI runtime
// (crun or runc; runsc for gvisor). See the OCI runtime specification for every field it writes.
//
// The work is split over two processes. The client decides (Driver.Create): runtime, file tree, ids, limits. The holder
// builds (Hold): it mounts the tree in its own mount namespace, writes the bundle and starts the runtime in the
// foreground, as its child, inside the sandbox's control group.
package oci

import (
	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
)

// Kind is the name under which Hold is registered with the holder.
const Kind = "oci"

// Driver makes sandboxes of one of the three rungs.
type Driver struct {
	rung    rung.Rung
	host    held.Host
	runtime Runtime
}

// New returns the driver of rung r (container, hardened or gvisor). runtime may be the zero value when none was found:
// then Check says so.
func New(r rung.Rung, host held.Host, runtime Runtime) *Driver {
	return &Driver{rung: r, host: host, runtime: runtime}
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: "oci", Rung: d.rung, Abilities: []driver.Ability{driver.CanInspect, driver.CanMeter}}
}

// Visibility tells which refusals rung sees.
func (d *Driver) Visibility() rung.Visibility {
	switch d.rung {
	case rung.Hardened:
		return rung.Visibility{
			Seen:   []string{"watched system calls (seccomp user notification)", "memory kills", "wall clock", "output cap"},
			Unseen: []string{"calls refused by the filter but not watched", "permission failures on files", "refused pids and disk space"},
		}
	case rung.GVisor:
		return rung.Visibility{
			Seen:   []string{"memory kills of the whole sandbox", "wall clock", "output cap"},
			Unseen: []string{"calls the user-space kernel refuses", "permission failures on files", "refused pids and disk space"},
		}
	default:
		return rung.Visibility{
			Seen:   []string{"memory kills", "wall clock", "output cap"},
			Unseen: []string{"refused system calls (the runtime's default filter answers them)", "permission failures on files", "refused pids and disk space"},
		}
	}
}

// spec is what the client tells the build in the holder.
type spec struct {
	Rung     rung.Rung   `json:"rung"`
	Runtime  Runtime     `json:"runtime"`
	Tree     held.Tree   `json:"tree"`
	Limits   rung.Limits `json:"limits"`
	Env      []string    `json:"env"`
	Rootless bool        `json:"rootless"`
	IDs      held.IDs    `json:"ids"`
	Network  bool        `json:"network"` // the holder made an interface
}
