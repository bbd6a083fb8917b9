package process

import (
	"context"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/sys/holder"
)

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Expecter = (*Driver)(nil)
	_ driver.Seer     = (*Driver)(nil)
)

// Check implements driver.Driver.
func (d *Driver) Check(context.Context) (driver.Status, error) {
	s := driver.Status{Version: "linux " + held.Kernel()}
	if d.rung == rung.None {
		return s, nil
	}
	var err error
	s.Limits, s.Notes, err = held.CheckHost()
	if abi := held.LandlockABI(); abi == 0 {
		s.Notes = append(s.Notes, "this kernel has no Landlock: paths are restricted by the mount namespace alone")
	}
	return s, err
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, sp driver.Spec) (driver.Instance, error) {
	return d.host.Create(ctx, "process", sp, func(site held.Site) (held.Plan, error) {
		s := spec{Limits: sp.Limits, Env: sp.Env, Rootless: site.Rootless, IDs: site.IDs, Landlock: held.LandlockABI(), Network: sp.Link != nil}
		s.Tree = held.Tree{
			Template: sp.Template, Guest: site.Guest, IDs: site.IDs, Disk: sp.Limits.Disk, Memory: sp.Limits.Memory,
			StateDir: d.host.StateDir, RuntimeDir: d.host.RuntimeDir, Rootless: site.Rootless, UID: held.UserUID,
			Files: held.Paths(sp.Files),
		}
		if site.IDs.Single() {
			s.Tree.UID = 0
		}
		if d.rung == rung.None {
			return held.Plan{Kind: KindNone, Spec: s}, nil
		}
		return held.Plan{Kind: Kind, Namespaces: true, Link: holder.ProxyLink, Spec: s}, nil
	})
}

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, handle driver.Handle, events func(driver.Event)) (driver.Instance, error) {
	return d.host.Adopt(ctx, "process", handle, events)
}

// Expect implements driver.Expecter. Rung none promises nothing, not even its limits.
func (d *Driver) Expect(sp driver.Spec) rung.Expectation {
	if d.rung == rung.None {
		return rung.Expectation{}
	}
	uid := held.UserUID
	e := rung.Expectation{
		UID: &uid, UserNS: true, NoCaps: true, NoNewPrivs: true, Seccomp: true, RootReadOnly: true, NoNetwork: true,
		Landlock: held.LandlockABI(), Descriptors: []int{0, 1, 2}, GuestApart: true,
		Namespaces: []string{"pid", "mnt", "net", "ipc", "uts", "user", "cgroup"},
	}
	if held.SingleID() {
		uid, e.GuestApart = 0, false
	}
	held.ExpectLimits(&e, sp.Limits)
	return e
}
