package held

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/lock"
)

// instance is one sandbox as its client sees it.
type instance struct {
	name    string
	host    Host
	id      string
	link    *holder.Link
	group   *cgroup.Group
	missing []string
	maps    maps
	// measured is the guest's first answer; nil when adopted
	measured []byte
	// spare is the connection of that answer until somebody dials
	spare atomic.Pointer[spare]
	box   *lock.Sandbox // nil once the holder has the locks, and when adopted
	slot  *os.File      // the same

	mu   sync.Mutex // held by Destroy
	gone bool       // guarded by mu
}

const handleVersion = 1

func (in *instance) Handle() driver.Handle {
	return driver.Handle{Driver: in.name, Version: handleVersion, ID: in.id, Dir: in.host.sandbox(in.id)}
}

// Dial hands out the connection of the guest's first answer, which is as good as new, before it opens others.
func (in *instance) Dial(ctx context.Context) (net.Conn, error) {
	if conn := in.takeSpare(); conn != nil {
		return conn, nil
	}
	return in.link.Dial(ctx)
}

// spare is a connection that waits for its second request.
type spare struct {
	net.Conn
	since time.Time
}

// maxSpare is how long it is good for: the guest hangs up on its own after two minutes of silence.
const maxSpare = 30 * time.Second

func (in *instance) takeSpare() net.Conn {
	s := in.spare.Swap(nil)
	if s == nil {
		return nil
	}
	if time.Since(s.since) > maxSpare {
		s.Close()
		return nil
	}
	return s.Conn
}

func (in *instance) Wait(ctx context.Context) (driver.End, error) {
	e, err := in.link.Wait(ctx)
	return driver.End{Reason: e.Reason, Detail: e.Detail, OOM: e.OOM}, err
}

// Destroy ends the holder, which ends every process; what a broken or killed holder left is killed by its control group.
func (in *instance) Destroy(ctx context.Context) error {
	in.mu.Lock() // a second caller waits for the first one's result
	defer in.mu.Unlock()
	if in.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := in.destroy(ctx); err != nil {
		return err
	}
	in.gone = true
	return nil
}

func (in *instance) destroy(ctx context.Context) error {
	if s := in.spare.Swap(nil); s != nil {
		s.Close()
	}
	if err := in.link.Destroy(ctx); err != nil {
		return err
	}
	if in.group != nil {
		if err := in.group.Kill(ctx); err != nil {
			return err
		}
		if err := in.group.Remove(ctx); err != nil {
			return err
		}
	}
	return in.forget(ctx)
}

// alive refuses what makes no sense for a sandbox that was destroyed.
func (in *instance) alive() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.gone {
		return rung.Errorf(rung.KindConflict, "sandbox %s was destroyed", in.id)
	}
	return nil
}

// entrust closes our copies of the locks once the holder has its own: from now on the sandbox is alive exactly as long as
// its holder.
func (in *instance) entrust() error {
	err := errors.Join(in.slot.Close(), in.box.Close())
	in.slot, in.box = nil, nil
	return err
}

// forget removes the sandbox's directory and gives its locks back.
func (in *instance) forget(ctx context.Context) error {
	if in.slot != nil {
		in.slot.Close()
	}
	if in.box != nil {
		return in.box.Remove()
	}
	return in.host.removeDead(ctx, in.id)
}

// Measured implements driver.Measured.
func (in *instance) Measured() json.RawMessage { return in.measured }

// Unenforced implements driver.Limited.
func (in *instance) Unenforced() []string { return in.missing }

// Inspect reads the caps of the control group back from the kernel.
func (in *instance) Inspect(context.Context) (*rung.Isolation, error) {
	if err := in.alive(); err != nil {
		return nil, err
	}
	iso := &rung.Isolation{Sources: map[string]string{}}
	if len(in.maps.uids) == 1 {
		iso.Notes = append(iso.Notes, "one id: rung-guest and user code share it, since the caller has no subordinate ids")
	}
	if len(in.maps.uids) == 2 {
		m := in.maps.uids[1]
		iso.Notes = append(iso.Notes, fmt.Sprintf("the host column of uid_map is the holder's user namespace: its %d to %d are host ids %d to %d",
			m.Inside, m.Inside+m.Size-1, m.Host, m.Host+m.Size-1))
	}
	if rootless() {
		iso.Notes = append(iso.Notes, "work and home are in memory, within the memory cap: the caller is an ordinary user")
	}
	for _, m := range in.missing {
		iso.Notes = append(iso.Notes, "not enforced: "+m)
	}
	if in.group == nil {
		return iso, nil
	}
	var err error
	if iso.PIDsMax, iso.MemoryMax, iso.CPUMax, err = in.group.Read(); err != nil {
		return nil, err
	}
	for _, f := range []string{"pids_max", "memory_max", "cpu_max"} {
		iso.Sources[f] = "host"
	}
	return iso, nil
}

// Adopt takes over the sandbox of a handle.
func (h Host) Adopt(ctx context.Context, name string, handle driver.Handle, events func(driver.Event)) (driver.Instance, error) {
	if handle.Driver != name || handle.Version != handleVersion {
		return nil, rung.Errorf(rung.KindInvalid, "handle of driver %s version %d, not %s version %d",
			handle.Driver, handle.Version, name, handleVersion)
	}
	if err := rung.ValidName(handle.ID); err != nil {
		return nil, err
	}
	in := &instance{name: name, host: h, id: handle.ID}
	var err error
	if in.link, err = holder.Adopt(ctx, h.sandbox(handle.ID), forward(events)); err != nil {
		return nil, err
	}
	layout, err := layouts()
	if err == nil {
		in.group, err = layout.Open(handle.ID)
	}
	if err != nil {
		in.group = nil
	}
	return in, nil
}
