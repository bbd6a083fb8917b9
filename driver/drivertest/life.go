package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

func (s *suite) waitCancelled(t *testing.T) {
	b := s.create(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if end, err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait on a live sandbox: %+v, %v, want the context's error", end, err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Wait returned %v after its context was done", d)
	}
	if got := b.sh(t, "echo alive"); got != "alive\n" {
		t.Errorf("a cancelled Wait harmed the sandbox: %q", got)
	}
}

// wallClock: the bound is kept from outside, whatever the code inside does.
func (s *suite) wallClock(t *testing.T) {
	const clock = time.Second
	b := s.create(t, func(p *driver.Spec) { p.WallClock = clock })
	start := time.Now()
	_ = b.start(t, "/bin/sh", "-c", "trap '' TERM INT HUP; while :; do :; done")
	end, err := b.Wait(within(t, bound))
	if err != nil || end.Reason != rung.TimedOut {
		t.Errorf("Wait: %+v, %v, want a time-out", end, err)
	}
	if d := time.Since(start); d > clock+10*time.Second {
		t.Errorf("the wall clock of %v ended the sandbox after %v", clock, d)
	}
}

func (s *suite) destroyWakesWait(t *testing.T) {
	b := s.create(t)
	type answer struct {
		end driver.End
		err error
	}
	ctx := within(t, bound)
	got := make(chan answer, 1)
	go func() {
		end, err := b.Wait(ctx)
		got <- answer{end, err}
	}()
	s.destroy(t, b)
	if a := <-got; a.err != nil || a.end.Reason != rung.Killed {
		t.Errorf("Wait during Destroy: %+v, %v, want killed", a.end, a.err)
	}
	if end, err := b.Wait(ctx); err != nil || end.Reason != rung.Killed {
		t.Errorf("Wait after Destroy: %+v, %v, want killed again", end, err)
	}
	if c, err := b.Dial(ctx); err == nil {
		_ = c.Close()
		t.Error("Dial reaches a destroyed sandbox")
	} else if rung.KindOf(err) != rung.KindConflict {
		t.Errorf("Dial after Destroy: %v is of kind %s, not conflict", err, rung.KindOf(err))
	}
}

func (s *suite) destroyTwice(t *testing.T) {
	b := s.create(t)
	for range 3 {
		s.destroy(t, b)
		s.nothingLeft(t, b.id)
	}
}

func (s *suite) destroyConcurrent(t *testing.T) {
	b := s.create(t)
	_ = b.start(t, "/bin/sh", "-c", "while :; do :; done")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			s.destroy(t, b)
			s.nothingLeft(t, b.id)
		})
	}
	wait.Wait()
}

// destroyHostile: processes that ignore signals, left their parents and hold files open end all the same.
func (s *suite) destroyHostile(t *testing.T) {
	b := s.create(t)
	p := b.start(t, "/bin/sh", "-c", `trap '' TERM INT HUP QUIT
for i in 1 2 3 4 5 6 7 8; do
  ( ( trap '' TERM INT HUP QUIT; exec 3>/tmp/open.$i; while :; do sleep 1000; done ) & ) &
done
wait; echo ready; while :; do sleep 1000; done`)
	p.waitOutput(t, "ready\n")
	start := time.Now()
	s.destroy(t, b)
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("Destroy took %v", d)
	}
}

func (s *suite) holderKilled(t *testing.T) {
	if s.KillHolder == nil {
		t.Skip("Config.KillHolder is not set: this driver has no holder")
	}
	b := s.create(t)
	p := b.start(t, "/bin/sh", "-c", "( sleep 1000 & ) ; echo ready; sleep 1000")
	p.waitOutput(t, "ready\n")
	s.KillHolder(t, b.Handle())
	end, err := b.Wait(within(t, bound))
	if err != nil {
		t.Errorf("Wait after the holder was killed: %v", err)
	} else if end.Reason != rung.Failed && end.Reason != rung.Killed {
		t.Errorf("Wait after the holder was killed: %+v, want error or killed", end)
	}
	s.destroy(t, b)
	s.nothingLeft(t, b.id)
}

// stored is a handle as a database would give it back.
func stored(t *testing.T, h driver.Handle) driver.Handle {
	t.Helper()
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 4096 {
		t.Errorf("the handle has %d bytes; it is to be small", len(data))
	}
	var back driver.Handle
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func (s *suite) adopt(t *testing.T) {
	b := s.create(t, func(p *driver.Spec) { p.Owned = false })
	p := b.start(t, "/bin/sh", "-c", "echo before; read line; echo $line; exit 3")
	p.waitOutput(t, "before\n")
	p.cut()

	in, err := s.driver.Adopt(within(t, bound), stored(t, b.Handle()), nil)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if in.Handle() != b.Handle() {
		t.Errorf("the handle changed: %+v, then %+v", b.Handle(), in.Handle())
	}
	adopted := newBox(in, b.id)
	q := adopted.attach(t, p.pid)
	q.input(t, "adopted\n")
	if out, code := q.wait(t); out != "before\nadopted\n" || code != 3 {
		t.Errorf("the process answers %q and %d through the adopted instance", out, code)
	}
	if implements[driver.Inspector](in) != implements[driver.Inspector](b.Instance) {
		t.Error("an adopted instance has other abilities than a created one")
	}
	s.destroy(t, adopted)
	s.nothingLeft(t, b.id)
	if end, err := b.Wait(within(t, bound)); err != nil || end.Reason != rung.Killed {
		t.Errorf("Wait on the first instance: %+v, %v, want killed", end, err)
	}
}

func (s *suite) adoptGone(t *testing.T) {
	b := s.create(t)
	h := stored(t, b.Handle())
	s.destroy(t, b)
	other := h
	other.ID = newID()
	wrong := h
	wrong.Driver, wrong.Version = "another", 99
	for name, c := range map[string]struct {
		handle driver.Handle
		kind   rung.Kind
	}{"a destroyed one": {h, rung.KindNotFound}, "one that never was": {other, rung.KindNotFound}, "another driver's": {wrong, ""}} {
		in, err := s.driver.Adopt(within(t, bound), c.handle, nil)
		if err == nil {
			_ = in.Destroy(within(t, bound))
			t.Errorf("%s: Adopt made an instance", name)
		} else if c.kind != "" && rung.KindOf(err) != c.kind {
			t.Errorf("%s: %v is of kind %s, not %s", name, err, rung.KindOf(err), c.kind)
		}
	}
}

func (s *suite) events(t *testing.T) {
	got := newSink()
	b := s.create(t, func(p *driver.Spec) { p.Events = got.add })
	if len(s.Provoke) > 0 {
		_, _, _ = b.run(within(t, bound), nil, s.Provoke...) // it fails: that is the point
	}
	s.destroy(t, b)
	got.close()
	if len(s.Provoke) > 0 && got.denied(s.Call) == 0 {
		t.Errorf("%v was refused no %s, or the event came after Destroy: %+v", s.Provoke, s.Call, got.events)
	}
	for _, e := range got.events {
		if (e.Denied != nil) == (e.Notice != "") {
			t.Errorf("event %+v has not exactly one field", e)
		}
	}
	s.nothingLeft(t, b.id)
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.late > 0 {
		t.Errorf("%d events after Destroy had returned", got.late)
	}
}
