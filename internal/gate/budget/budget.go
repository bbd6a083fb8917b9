// Package budget holds a sandbox's traffic to its caps. A Meter counts what passed and refuses what would go past; what it
// refuses is not counted, so that Usage is what was used.
package budget

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/rung-dev/rung"
)

// MinBurst is how many connections may start at once however low the rate: a client that opens several to one name at
// its start is normal.
const MinBurst = 10

// Meter counts one sandbox's or one rule's traffic. It is safe for concurrent use.
type Meter struct {
	caps  rung.NetBudget
	start *rate.Limiter // new connections; nil without a cap

	open                                  atomic.Int64
	connections, out, in, requests, names atomic.Int64
}

// New makes the meter of a sandbox: a cap that is zero has DefaultNetBudget's value, so none is ever missing.
func New(b rung.NetBudget) *Meter {
	d := rung.DefaultNetBudget()
	fill(&b.Connections, d.Connections)
	fill(&b.Rate, d.Rate)
	fill(&b.BytesOut, d.BytesOut)
	fill(&b.BytesIn, d.BytesIn)
	fill(&b.Requests, d.Requests)
	fill(&b.Lookups, d.Lookups)
	return NewRule(b)
}

// NewRule makes the meter of one rule: a cap that is zero is none, because the sandbox's own meter still counts.
func NewRule(b rung.NetBudget) *Meter {
	m := &Meter{caps: b}
	if b.Rate > 0 {
		burst := int(min(max(math.Ceil(b.Rate), MinBurst), math.MaxInt32))
		m.start = rate.NewLimiter(rate.Limit(b.Rate), burst)
	}
	return m
}

func fill[T int | int64 | float64](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Open takes a place for one connection. The caller gives it back by release, which may be called more than once.
func (m *Meter) Open() (release func(), err error) {
	if !add(&m.open, 1, int64(m.caps.Connections)) {
		return nil, refuse("open connections at once", "connections", m.caps.Connections)
	}
	if m.start != nil && !m.start.Allow() {
		m.open.Add(-1)
		return nil, refuse("new connections per second", "connections_per_second", m.caps.Rate)
	}
	m.connections.Add(1)
	return sync.OnceFunc(func() { m.open.Add(-1) }), nil
}

// Out asks for n bytes to leave.
func (m *Meter) Out(n int) error {
	if !add(&m.out, int64(n), m.caps.BytesOut) {
		return refuse("bytes out", "bytes_out", m.caps.BytesOut)
	}
	return nil
}

// In asks for n bytes to come in.
func (m *Meter) In(n int) error {
	if !add(&m.in, int64(n), m.caps.BytesIn) {
		return refuse("bytes in", "bytes_in", m.caps.BytesIn)
	}
	return nil
}

// Request asks for one HTTP request.
func (m *Meter) Request() error {
	if !add(&m.requests, 1, m.caps.Requests) {
		return refuse("HTTP requests", "requests", m.caps.Requests)
	}
	return nil
}

// Lookup asks for one name to be looked up, allowed or not.
func (m *Meter) Lookup() error {
	if !add(&m.names, 1, m.caps.Lookups) {
		return refuse("names looked up", "lookups", m.caps.Lookups)
	}
	return nil
}

// Usage is what passed so far.
func (m *Meter) Usage() rung.NetUsage {
	return rung.NetUsage{
		Connections: m.connections.Load(),
		BytesOut:    m.out.Load(),
		BytesIn:     m.in.Load(),
		Requests:    m.requests.Load(),
		Lookups:     m.names.Load(),
	}
}

// add counts n unless that would go past the cap. A cap of zero is none; a negative n is a caller's mistake and refused.
func add(v *atomic.Int64, n, limit int64) bool {
	for {
		now := v.Load()
		if n < 0 || now > math.MaxInt64-n || (limit > 0 && now+n > limit) {
			return false
		}
		if v.CompareAndSwap(now, now+n) {
			return true
		}
	}
}

func refuse(what, key string, limit any) error {
	return rung.Errorf(rung.KindExhausted, "the budget of %v %s is used up", limit, what).
		WithHint(fmt.Sprintf("raise budget.%s in the policy file", key))
}
