package held

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/disk"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/lock"
)

// Plan is what a driver wants its holder to build.
type Plan struct {
	Kind       string          // names the build in the holder
	Namespaces bool            // false only for rung none
	HideV2     bool            // the runtime refuses a hybrid cgroup layout
	Link       holder.LinkKind // what the gate reads from, where the spec has a link
	Spec       any             // for the build
	// Prepare is the driver's part of the work that needs no holder, done by the client while the holder starts; may be nil.
	Prepare func() error
}

// Create makes one sandbox by the contract of driver.Driver: it takes the name, an id range and a control group, starts a
// holder with what plan returns, and waits for the guest's first answer.
func (h Host) Create(ctx context.Context, name string, spec driver.Spec, plan func(Site) (Plan, error)) (driver.Instance, error) {
	if err := errors.Join(rung.ValidName(spec.ID), spec.Limits.Validate()); err != nil {
		return nil, err
	}
	in := &instance{name: name, host: h, id: spec.ID}
	var u undo
	defer u.run()
	store := h.disk(ctx, spec)
	u.push(store.drop)
	keep, site, err := h.take(ctx, in, spec, &u)
	if err == nil {
		err = writeFiles(site.Dir, spec.Files)
	}
	if err != nil {
		return nil, err
	}
	p, err := plan(site)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(p.Spec)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "plan of %s: %w", spec.ID, err)
	}
	order := holder.Order{
		Kind: p.Kind, ID: spec.ID, Dir: site.Dir, Namespaces: p.Namespaces, HideV2: p.HideV2, Owned: spec.Owned,
		WallClock: spec.WallClock, Spec: raw,
	}
	order.UIDs, order.GIDs = in.maps.uids, in.maps.gids
	if !site.Rootless && p.Namespaces {
		order.DropUID = firstHolderID + site.Slot
	}
	if spec.Link != nil {
		order.Link, keep = p.Link, append(keep, spec.Link.Gate)
	}
	req := holder.Request{Order: order, Keep: keep, Events: forward(spec.Events)}
	if h.Seed != nil {
		req.Seed = h.Seed()
	}
	req.Prepare = func(ctx context.Context) (holder.Prepared, error) { return in.prepare(ctx, spec, p, store, &u) }
	if in.link, err = holder.Start(ctx, req); err != nil {
		return nil, err
	}
	u.push(func() { _ = in.link.Destroy(context.WithoutCancel(ctx)) })
	if err := in.entrust(); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "locks of %s: %w", spec.ID, err)
	}
	if err := in.hello(ctx); err != nil {
		return nil, err
	}
	u.keep()
	return in, nil
}

// coming is a disk that is being made.
type coming chan made

type made struct {
	disk *os.File
	err  error
}

// disk starts to make the sandbox's disk, which takes as long as everything else together; nil where an ordinary user gets
// memory instead (see Tree).
func (h Host) disk(ctx context.Context, spec driver.Spec) coming {
	if rootless() {
		return nil
	}
	c := make(coming, 1)
	go func() {
		f, err := disk.Maker{StateDir: h.StateDir}.Detached(ctx, spec.Limits.Disk, spec.ID)
		c <- made{f, err}
	}()
	return c
}

// wait returns the disk; there is none for an ordinary user.
func (c coming) wait(ctx context.Context) (*os.File, error) {
	if c == nil {
		return nil, nil
	}
	select {
	case m := <-c:
		return m.disk, m.err
	case <-ctx.Done():
		return nil, rung.Errorf(rung.KindConflict, "waiting for the sandbox's disk: %w", ctx.Err())
	}
}

// drop lets go of a disk nobody took, when it is there.
func (c coming) drop() {
	if c == nil {
		return
	}
	go func() {
		if m := <-c; m.disk != nil {
			m.disk.Close()
		}
	}()
}

// take takes everything a sandbox has on the host. keep are the lock files that the holder must share.
func (h Host) take(ctx context.Context, in *instance, spec driver.Spec, u *undo) (keep []*os.File, site Site, err error) {
	if site.Guest, err = h.guestCopy(); err != nil {
		return nil, site, err
	}
	box, err := lock.NewSandbox(h.RuntimeDir, spec.ID)
	if err != nil {
		return nil, site, err
	}
	in.box = box
	u.push(func() { _ = in.forget(context.WithoutCancel(ctx)) }) // what cannot be removed keeps its directory for the next sweep
	site.ID, site.Dir, site.Rootless = spec.ID, box.Dir, rootless()
	slot, file, err := lock.AcquireSlot(h.RuntimeDir, spec.ID, busy)
	if err != nil {
		return nil, site, err
	}
	in.slot = file
	site.Slot = slot
	if site.IDs, in.maps, err = ids(slot, site.Rootless); err != nil {
		return nil, site, err
	}
	return []*os.File{box.Lock, file}, site, nil
}

// maps are the id maps of a rootless holder's user namespace; empty for root, one id or three lines' worth otherwise.
type maps struct{ uids, gids []rung.IDMap }

// ids gives a slot its ids. Ranges of different slots never overlap, so nobody who gets out of one sandbox can signal or
// trace the processes of another.
func ids(slot int, rootless bool) (IDs, maps, error) {
	if !rootless {
		return IDs{Base: firstID + uint32(slot)*rootCount, Count: rootCount}, maps{}, nil
	}
	own := func(id int) rung.IDMap { return rung.IDMap{Inside: 0, Host: uint32(id), Size: 1} }
	m := maps{uids: []rung.IDMap{own(os.Geteuid())}, gids: []rung.IDMap{own(os.Getegid())}}
	uids, gids, ok := subordinate()
	if !ok {
		return IDs{Count: 1}, m, nil
	}
	first := uint32(slot) * rootlessCount
	if first+rootlessCount > min(uids.Size, gids.Size) {
		return IDs{}, m, rung.Errorf(rung.KindExhausted, "all %d ranges of your subordinate ids are in use", min(uids.Size, gids.Size)/rootlessCount).
			WithHint("wait for a sandbox to end, or widen your line in /etc/subuid and /etc/subgid")
	}
	m.uids = append(m.uids, rung.IDMap{Inside: 1, Host: uids.Base + first, Size: rootlessCount})
	m.gids = append(m.gids, rung.IDMap{Inside: 1, Host: gids.Base + first, Size: rootlessCount})
	return IDs{Base: 1, Count: rootlessCount}, m, nil
}

// prepare is what the client does while the holder starts: the control group, the driver's part, the disk.
func (in *instance) prepare(ctx context.Context, spec driver.Spec, p Plan, store coming, u *undo) (ready holder.Prepared, err error) {
	if err := in.limit(spec, u); err != nil {
		return ready, err
	}
	ready.Cgroup = in.group != nil
	if p.Prepare != nil {
		if err := p.Prepare(); err != nil {
			return ready, err
		}
	}
	if p.Namespaces {
		ready.File, err = store.wait(ctx)
	}
	return ready, err
}

// busy reports whether an earlier sandbox still has processes, so that its id range must not be given out again.
func busy(id string) bool {
	layout, err := layouts()
	if err != nil {
		return false
	}
	g, err := layout.Open(id)
	if err != nil {
		return false
	}
	procs, err := g.Procs()
	return err != nil || len(procs) > 0
}

// limit makes the control group and refuses what the host cannot enforce, unless the caller accepted that.
func (in *instance) limit(spec driver.Spec, u *undo) error {
	layout, err := layouts()
	if err != nil {
		return err
	}
	g, err := layout.Create(spec.ID, cgroup.Limits{CPUs: spec.Limits.CPUs, Memory: spec.Limits.Memory, PIDs: spec.Limits.PIDs})
	if err != nil {
		return err
	}
	if len(g.Paths()) > 0 {
		in.group = g
	}
	u.push(func() { _ = g.Remove(context.Background()) })
	if len(g.Missing) > 0 && !spec.Limits.Best {
		return rung.Errorf(rung.KindUnavailable, "this host does not enforce: %s", strings.Join(g.Missing, "; ")).
			WithHint("as root everything is enforced; or accept it with --best-effort-limits, which the record will say")
	}
	in.missing = g.Missing
	return nil
}

func forward(events func(driver.Event)) func(*rung.Denied, string) {
	if events == nil {
		return nil
	}
	return func(d *rung.Denied, notice string) { events(driver.Event{Denied: d, Notice: notice}) }
}

// helloTimeout bounds the guest's first answer.
const helloTimeout = 30 * time.Second

// hello waits for the guest's first answer: an HTTP request over the control channel. When it does not come, the holder's
// account of the end says more than the broken connection does.
func (in *instance) hello(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	err := in.health(bounded)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return rung.Errorf(rung.KindConflict, "waiting for the guest: %w", ctx.Err())
	}
	last, done := context.WithTimeout(ctx, time.Second)
	defer done()
	if e, werr := in.link.Wait(last); werr == nil {
		return rung.Errorf(rung.KindUnavailable, "the sandbox ended before its guest answered: %s", firstLines(e.Detail))
	}
	return rung.Errorf(rung.KindUnavailable, "the guest does not answer: %w", err)
}

// health asks for the guest's measurement, which is needed next, instead of its bare health.
func (in *instance) health(ctx context.Context) error {
	conn, err := in.link.Dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	last := false
	in.measured, last, err = get(conn, "/rung/v1/measure")
	if !stop() || err != nil || last {
		conn.Close()
		return err
	}
	in.spare.Store(&spare{conn, time.Now()})
	return nil
}

// maxAnswer bounds the guest's answer; a measurement is a few KiB.
const maxAnswer = 256 << 10

// get asks for one path with a minimal request and takes the body of a plain answer with a length, and whether it is the
// connection's last: a full HTTP client would cost more than the answer. No user code has run, but a guest that answers anything else is refused all the same.
func get(conn net.Conn, path string) (body []byte, last bool, err error) {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: guest\r\n\r\n"); err != nil {
		return nil, false, err
	}
	r := textproto.NewReader(bufio.NewReader(io.LimitReader(conn, maxAnswer)))
	status, err := r.ReadLine()
	if err != nil {
		return nil, false, err
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		return nil, false, err
	}
	size, err := strconv.ParseUint(header.Get("Content-Length"), 10, 31)
	if err != nil || size > maxAnswer || !strings.HasPrefix(status, "HTTP/1.1 200") {
		return nil, false, rung.Errorf(rung.KindInternal, "unexpected answer %q to %s", status, path)
	}
	body = make([]byte, size)
	if _, err = io.ReadFull(r.R, body); err == nil && r.R.Buffered() > 0 {
		err = rung.Errorf(rung.KindInternal, "more than one answer to %s", path)
	}
	return body, strings.EqualFold(header.Get("Connection"), "close"), err
}

func firstLines(s string) string {
	if len(s) > 1000 {
		s = s[:1000] + "…"
	}
	return strings.TrimSpace(s)
}
