package fake

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

const handleVersion = 1

// sandbox is one life: reserved, up, ended, destroyed.
type sandbox struct {
	spec  driver.Spec
	guest Guest
	ended chan struct{}  // closed by finish
	gone  chan struct{}  // closed when destroyed completely
	work  sync.WaitGroup // connections and event senders

	mu       sync.Mutex
	end      driver.End           // guarded by mu, set before ended is closed
	up       bool                 // guarded by mu: the guest answers
	done     bool                 // guarded by mu: finish was called
	removing bool                 // guarded by mu: one Destroy does the work, the others wait for gone
	conns    map[net.Conn]bool    // guarded by mu: the guest's ends
	timers   []*time.Timer        // guarded by mu
	sinkMu   sync.Mutex           // held while an event is delivered, so that Destroy can wait for the last one
	sinks    []func(driver.Event) // guarded by sinkMu
}

func newSandbox(spec driver.Spec) *sandbox {
	s := &sandbox{spec: spec, ended: make(chan struct{}), gone: make(chan struct{}), conns: map[net.Conn]bool{}}
	s.watch(spec.Events)
	return s
}

func (s *sandbox) start(guest Guest, wallClock time.Duration, c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guest, s.up = guest, true
	if wallClock > 0 {
		s.timers = append(s.timers, time.AfterFunc(wallClock, func() {
			s.finish(driver.End{Reason: rung.TimedOut, Detail: "the wall clock ran out"})
		}))
	}
	if c.EndAfter > 0 {
		s.timers = append(s.timers, time.AfterFunc(c.EndAfter, func() { s.finish(c.End) }))
	}
	if len(c.Events) > 0 {
		s.work.Go(func() {
			for _, e := range c.Events {
				s.emit(e)
			}
		})
	}
}

// finish ends the sandbox; only the first call decides how.
func (s *sandbox) finish(end driver.End) {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return
	}
	s.done, s.end = true, end
	for _, t := range s.timers {
		t.Stop()
	}
	for c := range s.conns {
		_ = c.Close() // in memory: closing cannot fail
	}
	stop := s.guest.Stop
	s.work.Add(1) // under mu, so that a Destroy that finds the sandbox ended waits for stop all the same
	defer s.work.Done()
	close(s.ended)
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (s *sandbox) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

func (s *sandbox) watch(sink func(driver.Event)) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	if sink != nil {
		s.sinks = append(s.sinks, sink)
	}
}

func (s *sandbox) emit(e driver.Event) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	for _, sink := range s.sinks {
		sink(e)
	}
}

// dial makes a connection whose other end the guest serves, unless the sandbox has ended.
func (s *sandbox) dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil, rung.Errorf(rung.KindConflict, "sandbox %s has ended", s.spec.ID)
	}
	ours, theirs := net.Pipe()
	s.conns[theirs] = true
	s.work.Go(func() {
		s.guest.Serve(theirs)
		_ = theirs.Close() // in memory: closing cannot fail
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, theirs)
	})
	return ours, nil
}

// remove does what Destroy promises, once; every caller waits for it within its own context.
func (s *sandbox) remove(ctx context.Context, forget func()) error {
	s.mu.Lock()
	first := !s.removing
	s.removing = true
	s.mu.Unlock()
	if first {
		go func() {
			s.finish(driver.End{Reason: rung.Killed, Detail: "destroyed"})
			s.work.Wait()
			s.sinkMu.Lock()
			s.sinks = nil
			s.sinkMu.Unlock()
			forget()
			close(s.gone)
		}()
	}
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// instance is one grip on a sandbox; Adopt makes further ones.
type instance struct {
	driver  *Driver
	sandbox *sandbox
}

func (i *instance) Handle() driver.Handle {
	return driver.Handle{Driver: Name, Version: handleVersion, ID: i.sandbox.spec.ID}
}

func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return i.sandbox.dial()
}

func (i *instance) Wait(ctx context.Context) (driver.End, error) {
	select {
	case <-i.sandbox.ended:
		i.sandbox.mu.Lock()
		defer i.sandbox.mu.Unlock()
		return i.sandbox.end, nil
	case <-ctx.Done():
		return driver.End{}, ctx.Err()
	}
}

func (i *instance) Destroy(ctx context.Context) error {
	if hook := i.driver.config.DestroyHook; hook != nil {
		if err := hook(ctx); err != nil {
			return err
		}
	}
	return i.sandbox.remove(ctx, func() { i.driver.forget(i.sandbox) })
}

// inspector and meter add an ability each: a fake without a script for one must not have its method.
type (
	inspector struct{ of *instance }
	meter     struct{ of *instance }
)

func (i inspector) Inspect(ctx context.Context) (*rung.Isolation, error) {
	if err := i.of.live(ctx); err != nil {
		return nil, err
	}
	return i.of.driver.config.Inspect(i.of.sandbox.spec), nil
}

func (m meter) Usage(ctx context.Context) (driver.Usage, error) {
	if err := m.of.live(ctx); err != nil {
		return driver.Usage{}, err
	}
	return m.of.driver.config.Usage(m.of.sandbox.spec), nil
}

func (i *instance) live(ctx context.Context) error {
	select {
	case <-i.sandbox.ended:
		return rung.Errorf(rung.KindConflict, "sandbox %s has ended", i.sandbox.spec.ID)
	default:
		return ctx.Err()
	}
}
