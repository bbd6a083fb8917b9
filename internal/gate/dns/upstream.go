package dns

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/resolve"
)

// outcome is what became of one name: a denial, an error, no such name, or addresses (none for a name without).
type outcome struct {
	addrs   []netip.Addr
	ttl     time.Duration // what remains of it
	missing bool
	err     error
	denial  *rung.NetDenial
}

// upstream asks for names and keeps answers as long as they live. A name is asked for once at a time, whoever waits.
type upstream struct {
	Config
	places chan struct{}

	mu      sync.Mutex
	kept    map[string]kept
	running map[string]*flight
}

type kept struct {
	out   outcome
	until time.Time
}

type flight struct {
	done chan struct{}
	out  outcome
}

func newUpstream(c Config) *upstream {
	return &upstream{Config: c, places: make(chan struct{}, MaxUpstream), kept: map[string]kept{}, running: map[string]*flight{}}
}

func (u *upstream) look(ctx context.Context, name string) outcome {
	ctx, cancel := context.WithTimeout(ctx, LookupTimeout)
	defer cancel()
	u.mu.Lock()
	now := time.Now()
	if k, ok := u.kept[name]; ok && now.Before(k.until) {
		u.mu.Unlock()
		k.out.ttl = max(k.until.Sub(now), MinTTL)
		return k.out
	}
	if f := u.running[name]; f != nil {
		u.mu.Unlock()
		select {
		case <-f.done:
			return f.out
		case <-ctx.Done():
			return outcome{err: timeout(name)}
		}
	}
	f := &flight{done: make(chan struct{})}
	u.running[name] = f
	u.mu.Unlock()

	f.out = u.ask(ctx, name)
	u.mu.Lock()
	delete(u.running, name)
	if !errors.Is(ctx.Err(), context.Canceled) { // the end of the sandbox is no answer
		u.keep(name, f.out)
	}
	u.mu.Unlock()
	close(f.done)
	return f.out
}

func timeout(name string) error {
	return rung.Errorf(rung.KindTimeout, "resolve %s: no answer in %v", name, LookupTimeout)
}

// ask resolves and judges.
func (u *upstream) ask(ctx context.Context, name string) outcome {
	select {
	case u.places <- struct{}{}:
		defer func() { <-u.places }()
	case <-ctx.Done():
		return outcome{err: timeout(name), ttl: FailureTTL}
	}
	addrs, ttl, err := u.Resolve(ctx, name)
	switch {
	case errors.Is(err, resolve.ErrNoName):
		return outcome{missing: true, ttl: FailureTTL}
	case err != nil:
		return outcome{err: err, ttl: FailureTTL}
	case len(addrs) == 0:
		return outcome{ttl: FailureTTL}
	}
	var good []netip.Addr
	var refused error
	for _, a := range addrs {
		a = a.Unmap()
		if err := u.Judge(name, a); err != nil {
			if refused == nil {
				refused = rung.Errorf(rung.KindRefused, "%s resolves to %s: %w", name, a, err).WithHint(rung.HintOf(err))
			}
			continue
		}
		if len(good) < MaxAnswers {
			good = append(good, a)
		}
	}
	if len(good) == 0 {
		return outcome{ttl: FailureTTL, denial: &rung.NetDenial{
			Layer: "dns", Host: name, Address: addrs[0].Unmap().String(), Reason: refused.Error(), Hint: rung.HintOf(refused),
		}}
	}
	return outcome{addrs: good, ttl: min(max(ttl, MinTTL), MaxTTL)}
}

// keep is called with the lock held. When it is full, what ended makes room, and if nothing did, all does: upstream is
// asked again.
func (u *upstream) keep(name string, out outcome) {
	now := time.Now()
	if len(u.kept) >= MaxCached {
		for n, k := range u.kept {
			if !now.Before(k.until) {
				delete(u.kept, n)
			}
		}
		if len(u.kept) >= MaxCached {
			clear(u.kept)
		}
	}
	u.kept[name] = kept{out: out, until: now.Add(out.ttl)}
}
