// Package pin remembers, for one sandbox, which addresses were answered for which allowed names: a connection to an
// address is one to a name only while that answer lives. A table is never shared between sandboxes.
package pin

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// The caps of a table. A policy names few hosts and a wildcard few names (see package dns), so an honest sandbox stays far
// below; past them the pin that would end first makes room.
const (
	MaxPins    = 4096 // pairs of a name and an address
	MaxPerName = 32   // addresses of one name; more in one answer are not pinned
	MaxPerAddr = 128  // names of one address: what a large front end serves; the one that ends first makes room
)

// Table is the pins of one sandbox. It is safe for concurrent use.
type Table struct {
	now func() time.Time

	mu     sync.Mutex
	byAddr map[netip.Addr][]entry
	byName map[string][]netip.Addr
	pins   int
}

type entry struct {
	name  string
	until time.Time
	added time.Time
}

// New makes an empty table. The clock is time.Now unless a test passes its own.
func New(now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	return &Table{now: now, byAddr: map[netip.Addr][]entry{}, byName: map[string][]netip.Addr{}}
}

// Add pins the addresses to the name, which is in its normal form already, for ttl from now. A pin that exists is
// renewed and never shortened: the guest was promised the longer time.
func (t *Table) Add(name string, addrs []netip.Addr, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, a := range addrs {
		t.add(name, a.Unmap(), now, now.Add(ttl))
	}
}

func (t *Table) add(name string, a netip.Addr, now, until time.Time) {
	list := t.byAddr[a]
	for i := range list {
		if list[i].name == name {
			list[i].added = now
			if until.After(list[i].until) {
				list[i].until = until
			}
			return
		}
	}
	if len(t.byName[name]) >= MaxPerName {
		t.expire(now)
		if len(t.byName[name]) >= MaxPerName {
			return
		}
	}
	if len(list) >= MaxPerAddr {
		t.remove(a, slices.MinFunc(list, func(x, y entry) int { return x.until.Compare(y.until) }).name)
	}
	if t.pins >= MaxPins {
		t.makeRoom(now)
	}
	t.byAddr[a] = append(t.byAddr[a], entry{name: name, until: until, added: now})
	t.byName[name] = append(t.byName[name], a)
	t.pins++
}

// Names returns the names whose pins to the address live, the one asked for last first.
func (t *Table) Names(a netip.Addr) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	live := slices.DeleteFunc(slices.Clone(t.byAddr[a.Unmap()]), func(e entry) bool { return !e.until.After(now) })
	slices.SortStableFunc(live, func(x, y entry) int { return y.added.Compare(x.added) })
	names := make([]string, 0, len(live))
	for _, e := range live {
		names = append(names, e.name)
	}
	return names
}

// Addrs returns the addresses pinned to the name that live, in no order.
func (t *Table) Addrs(name string) []netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	var live []netip.Addr
	for _, a := range t.byName[name] {
		if slices.ContainsFunc(t.byAddr[a], func(e entry) bool { return e.name == name && e.until.After(now) }) {
			live = append(live, a)
		}
	}
	return live
}

// Len is how many pins are held, dead ones that nothing swept yet included.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pins
}

// expire forgets the dead pins.
func (t *Table) expire(now time.Time) {
	for a, list := range t.byAddr {
		for _, e := range list {
			if !e.until.After(now) {
				t.remove(a, e.name)
			}
		}
	}
}

// makeRoom forgets the dead pins or, when all live, the sixteenth that ends first: one sweep then serves many Adds.
func (t *Table) makeRoom(now time.Time) {
	t.expire(now)
	if t.pins < MaxPins {
		return
	}
	type pair struct {
		a netip.Addr
		e entry
	}
	all := make([]pair, 0, t.pins)
	for a, list := range t.byAddr {
		for _, e := range list {
			all = append(all, pair{a, e})
		}
	}
	slices.SortFunc(all, func(x, y pair) int {
		return cmp.Or(x.e.until.Compare(y.e.until), x.a.Compare(y.a), cmp.Compare(x.e.name, y.e.name))
	})
	for _, p := range all[:MaxPins/16] {
		t.remove(p.a, p.e.name)
	}
}

func (t *Table) remove(a netip.Addr, name string) {
	// A new slice, because expire walks the old one.
	var rest []entry
	for _, e := range t.byAddr[a] {
		if e.name != name {
			rest = append(rest, e)
		}
	}
	t.pins -= len(t.byAddr[a]) - len(rest)
	if t.byAddr[a] = rest; len(rest) == 0 {
		delete(t.byAddr, a)
	}
	t.byName[name] = slices.DeleteFunc(t.byName[name], func(x netip.Addr) bool { return x == a })
	if len(t.byName[name]) == 0 {
		delete(t.byName, name)
	}
}
