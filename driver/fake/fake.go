// Package fake is a driver without a wall: sandboxes are values in memory, scripted by a Config, for tests of what stands
// above the driver interface. It does what the contract says about order, ends and clean-up and nothing about isolation.
// The guest is whatever Config.Guest serves in this process; without one, a guest that answers /health and nothing else.
package fake

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// Name is Info.Name of every fake.
const Name = "fake"

// Guest is what stands for rung-guest in one sandbox. Serve handles one connection until it ends; Stop ends every process
// the guest started and is called once, after which Serve is not called again. Stop may be nil.
type Guest struct {
	Serve func(net.Conn)
	Stop  func()
}

// Config is the script. Its zero value makes sandboxes that come up at once and live until they are destroyed.
type Config struct {
	Rung        rung.Rung                          // what Info says; rung.None when empty
	Status      driver.Status                      // what Check finds
	CheckError  error                              // what Check and Create answer, as a host that cannot would
	CreateError error                              // what Create answers
	CreateBlock time.Duration                      // Create takes that long, or until its context is done
	Guest       func(driver.Spec) (Guest, error)   // called once per sandbox
	EndAfter    time.Duration                      // each sandbox ends by itself after that long; 0 = never
	End         driver.End                         // how it then ended; Reason is rung.Exited when empty
	Events      []driver.Event                     // sent for each sandbox once it is up
	Inspect     func(driver.Spec) *rung.Isolation  // nil: the fake has no ability to inspect
	Usage       func(driver.Spec) driver.Usage     // nil: the fake has no ability to meter
	DestroyHook func(ctx context.Context) error    // called by each Destroy before it does anything; its error is returned
	Expect      func(driver.Spec) rung.Expectation // nil: no promises
}

// Driver is a fake driver; make it with New.
type Driver struct {
	config Config

	mu        sync.Mutex
	sandboxes map[string]*sandbox // guarded by mu: live and ended ones, until destroyed
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Instance  = (*instance)(nil)
	_ driver.Inspector = inspector{}
	_ driver.Meter     = meter{}
)

// New returns a driver that follows the script.
func New(config Config) *Driver {
	if config.Rung == "" {
		config.Rung = rung.None
	}
	if config.End.Reason == "" {
		config.End.Reason = rung.Exited
	}
	return &Driver{config: config, sandboxes: map[string]*sandbox{}}
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	info := driver.Info{Name: Name, Rung: d.config.Rung}
	if d.config.Inspect != nil {
		info.Abilities = append(info.Abilities, driver.CanInspect)
	}
	if d.config.Usage != nil {
		info.Abilities = append(info.Abilities, driver.CanMeter)
	}
	return info
}

// Check implements driver.Driver.
func (d *Driver) Check(ctx context.Context) (driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return d.config.Status, err
	}
	return d.config.Status, d.config.CheckError
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := d.admit(ctx, spec); err != nil {
		return nil, err
	}
	s, err := d.reserve(spec)
	if err != nil {
		return nil, err
	}
	guest := Guest{Serve: serveHealth}
	if d.config.Guest != nil {
		guest, err = d.config.Guest(spec)
	}
	if err != nil {
		d.forget(s)
		return nil, err
	}
	s.start(guest, spec.WallClock, d.config)
	return d.instance(s), nil
}

// admit is everything that can be wrong before anything exists.
func (d *Driver) admit(ctx context.Context, spec driver.Spec) error {
	if err := rung.ValidName(spec.ID); err != nil {
		return err
	}
	if spec.Template.Root == "" {
		return rung.Errorf(rung.KindInvalid, "sandbox %s: no template", spec.ID)
	}
	if err := spec.Limits.Validate(); err != nil {
		return err
	}
	if d.config.CheckError != nil {
		return d.config.CheckError
	}
	if d.config.CreateBlock > 0 {
		select {
		case <-time.After(d.config.CreateBlock):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return rung.Errorf(rung.KindTimeout, "create sandbox %s: %w", spec.ID, err)
	}
	return d.config.CreateError
}

func (d *Driver) reserve(spec driver.Spec) (*sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.sandboxes[spec.ID]; taken {
		return nil, rung.Errorf(rung.KindExists, "sandbox %s exists", spec.ID)
	}
	s := newSandbox(spec)
	d.sandboxes[spec.ID] = s
	return s, nil
}

func (d *Driver) forget(s *sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sandboxes[s.spec.ID] == s {
		delete(d.sandboxes, s.spec.ID)
	}
}

// find returns the sandbox of that id once it is up, else nil.
func (d *Driver) find(id string) *sandbox {
	d.mu.Lock()
	s := d.sandboxes[id]
	d.mu.Unlock()
	if s == nil || !s.isUp() {
		return nil
	}
	return s
}

func (d *Driver) instance(s *sandbox) driver.Instance {
	i := &instance{driver: d, sandbox: s}
	switch {
	case d.config.Inspect != nil && d.config.Usage != nil:
		return struct {
			*instance
			inspector
			meter
		}{i, inspector{i}, meter{i}}
	case d.config.Inspect != nil:
		return struct {
			*instance
			inspector
		}{i, inspector{i}}
	case d.config.Usage != nil:
		return struct {
			*instance
			meter
		}{i, meter{i}}
	default:
		return i
	}
}

// Adopt implements driver.Driver. A fake's sandboxes live in the Driver value, so only that one can adopt them.
func (d *Driver) Adopt(ctx context.Context, handle driver.Handle, events func(driver.Event)) (driver.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if handle.Driver != Name || handle.Version != handleVersion {
		return nil, rung.Errorf(rung.KindInvalid, "handle of %s version %d is not one of %s", handle.Driver, handle.Version, Name)
	}
	s := d.find(handle.ID)
	if s == nil {
		return nil, rung.Errorf(rung.KindNotFound, "sandbox %s: no holder", handle.ID)
	}
	s.watch(events)
	return d.instance(s), nil
}

// Expect implements driver.Expecter. Without a script it promises nothing.
func (d *Driver) Expect(spec driver.Spec) rung.Expectation {
	if d.config.Expect == nil {
		return rung.Expectation{}
	}
	return d.config.Expect(spec)
}

// Emit sends an event of the sandbox, as its wall would; it does nothing for one that does not exist.
func (d *Driver) Emit(id string, e driver.Event) {
	if s := d.find(id); s != nil {
		s.emit(e)
	}
}

// Finish ends the sandbox from outside, as the kernel, a clock or a broken runtime would.
func (d *Driver) Finish(id string, end driver.End) {
	if s := d.find(id); s != nil {
		s.finish(end)
	}
}

// Live lists the ids of all sandboxes that have not been destroyed, sorted.
func (d *Driver) Live() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]string, 0, len(d.sandboxes))
	for id := range d.sandboxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// serveHealth is the guest of a fake without one: enough to be found alive.
func serveHealth(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body) // an error shows at the next read
		answer := "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
		if req.Method == http.MethodGet && strings.TrimSuffix(req.URL.Path, "/") == "/health" {
			answer = "HTTP/1.1 204 No Content\r\n\r\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}
