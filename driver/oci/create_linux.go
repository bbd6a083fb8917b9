package oci

import (
	"context"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/tap"
)

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Expecter = (*Driver)(nil)
	_ driver.Seer     = (*Driver)(nil)
)

// Check implements driver.Driver. It starts no sandbox: what the wall really is gets measured in each one.
func (d *Driver) Check(ctx context.Context) (driver.Status, error) {
	var s driver.Status
	if d.runtime == (Runtime{}) || !usable(d.runtime) {
		return s, missing(d.rung)
	}
	var err error
	if s.Version, err = d.runtime.version(ctx, d.host); err != nil {
		return s, err
	}
	if d.runtime.Name == "runc" {
		s.Notes = append(s.Notes, "crun is not found; runc starts two to three times slower")
	}
	if d.rung == rung.GVisor {
		s.Notes = append(s.Notes, "the pids cap counts gVisor's own host threads, several for each process inside")
	}
	limits, notes, err := held.CheckHost()
	s.Limits, s.Notes = limits, append(s.Notes, notes...)
	return s, err
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, sp driver.Spec) (driver.Instance, error) {
	if d.runtime == (Runtime{}) {
		return nil, missing(d.rung)
	}
	return d.host.Create(ctx, "oci", sp, func(site held.Site) (held.Plan, error) {
		s := spec{Rung: d.rung, Runtime: d.runtime, Limits: sp.Limits, Env: sp.Env, Rootless: site.Rootless, IDs: site.IDs, Network: sp.Link != nil}
		s.Tree = held.Tree{
			Template: sp.Template, Guest: site.Guest, IDs: site.IDs, Disk: sp.Limits.Disk, Memory: sp.Limits.Memory,
			StateDir: d.host.StateDir, RuntimeDir: d.host.RuntimeDir, Rootless: site.Rootless, UID: held.UserUID,
			Files: held.Paths(sp.Files),
		}
		if site.IDs.Single() {
			s.Tree.UID = 0
		}
		if d.rung == rung.Container {
			// Plain containers run as the host's root in a writable copy of the tree, and so does this one.
			s.Tree.IDs, s.Tree.Writable, s.Tree.UID = held.IDs{}, true, 0
		}
		return held.Plan{
			Kind: Kind, Namespaces: true, Link: holder.TAPLink, HideV2: held.Hybrid() && d.runtime.Name == "crun", Spec: s,
			Prepare: s.bundle(site.ID, site.Dir).write,
		}, nil
	})
}

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, handle driver.Handle, events func(driver.Event)) (driver.Instance, error) {
	return d.host.Adopt(ctx, "oci", handle, events)
}

// Expect implements driver.Expecter.
func (d *Driver) Expect(sp driver.Spec) rung.Expectation {
	uid := held.UserUID
	e := rung.Expectation{
		NoNetwork: sp.Link == nil, Descriptors: []int{0, 1, 2}, Namespaces: []string{"pid", "mnt", "net", "ipc", "uts"},
	}
	if sp.Link != nil {
		e.Interfaces = []string{"lo", tap.Name}
	}
	held.ExpectLimits(&e, sp.Limits)
	switch d.rung {
	case rung.Container:
		uid, e.Seccomp = 0, true
	case rung.Hardened:
		e.Seccomp, e.UserNS, e.NoCaps, e.NoNewPrivs, e.RootReadOnly = true, true, true, true, true
		e.Namespaces = append(e.Namespaces, "user", "cgroup")
		e.GuestApart = true
	case rung.GVisor:
		e.GVisor, e.OwnKernel, e.NoCaps, e.NoNewPrivs, e.RootReadOnly, e.GuestApart = true, true, true, true, true, true
		e.Namespaces = nil // the names inside are gVisor's own
	}
	if held.SingleID() {
		uid, e.GuestApart = 0, false
	}
	e.UID = &uid
	return e
}
