// Package ledger collects what a sandbox's network use amounted to: denials, destinations and packages, one entry per
// cause with a count, so that a loop inside floods neither the record nor the log. All of it is bounded.
package ledger

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung"
)

// The caps. What comes past MaxCauses or MaxAllowed is counted in one further entry of its own. Of each layer, of which
// there are some ten, MaxReserved causes are listed whatever the others take: a scan of ports must not hide what is tried
// by names afterwards.
const (
	MaxCauses   = 512
	MaxReserved = 32
	MaxAllowed  = 512
	MaxPackages = 10_000 // a large npm tree is some 2,000
	MaxText     = 512    // bytes of each text of an entry: several are the guest's choice
)

// Further is the reason of the entry that counts the denials of causes past MaxCauses, and the rule of the one that
// counts destinations past MaxAllowed.
const Further = "further, not listed one by one"

// Event is one entry as it stands: exactly one member is set.
type Event struct {
	Denied  *rung.NetDenial
	Allowed *rung.NetAllowed
	Package *rung.Package
}

// Snapshot is the ledger's content in the order of first appearance.
type Snapshot struct {
	Denied   []rung.NetDenial
	Allowed  []rung.NetAllowed
	Packages []rung.Package
	// PackagesUnlisted is how many fetches came after MaxPackages different ones.
	PackagesUnlisted int64
}

// Ledger is safe for concurrent use. Its methods never wait for the sink.
type Ledger struct {
	// Grade, if set before use, may raise a denial's severity before it is counted.
	Grade func(*rung.NetDenial)

	now func() time.Time

	mu       sync.Mutex
	denied   []*denied
	allowed  []*allowed
	packages []rung.Package
	unlisted int64
	causes   map[rung.NetDenial]*denied // by the entry without count and time
	layers   map[string]int             // how many causes each layer has; the gate chooses layers, never the guest
	dests    map[rung.NetAllowed]*allowed
	seen     map[rung.Package]bool
	due      []due // what the sink is to hear; each entry at most once
	closed   bool

	wake chan struct{}
	done chan struct{}
}

type denied struct {
	rung.NetDenial
	next   int64 // the count at which the sink hears of it again
	queued bool
}

type allowed struct {
	rung.NetAllowed
	next   int64
	queued bool
}

type due struct {
	denied  *denied
	allowed *allowed
	pkg     *rung.Package
}

// New makes an empty ledger. The sink, if any, hears of each entry when it appears and then when its count reaches 10,
// 100, 1,000, …, from one goroutine of the ledger's own; while the sink is slow its news are merged, not lost. Close
// ends it.
func New(sink func(Event)) *Ledger {
	l := &Ledger{
		now:    time.Now,
		causes: map[rung.NetDenial]*denied{}, layers: map[string]int{}, dests: map[rung.NetAllowed]*allowed{}, seen: map[rung.Package]bool{},
	}
	if sink != nil {
		l.wake, l.done = make(chan struct{}, 1), make(chan struct{})
		go l.tell(sink)
	}
	return l
}

// Deny counts a denial. Count and First of the argument are not read, but a Count above one counts as so many.
func (l *Ledger) Deny(d rung.NetDenial) {
	n := max(d.Count, 1)
	d.Count, d.First = 0, time.Time{}
	if l.Grade != nil {
		l.Grade(&d)
	}
	for _, s := range []*string{&d.Layer, &d.Host, &d.Address, &d.Request, &d.Rule, &d.Reason, &d.Hint, &d.Severity} {
		*s = clip(*s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.causes[d]
	if e == nil && len(l.causes) >= MaxCauses && l.layers[d.Layer] >= MaxReserved {
		// High severity keeps an entry of its own: a flood of small causes must not hide a secret on its way out.
		d = rung.NetDenial{Layer: "further", Reason: Further, Severity: d.Severity}
		e = l.causes[d]
	}
	if e == nil {
		e = &denied{NetDenial: d, next: 1}
		e.First = l.now().UTC()
		l.causes[d] = e
		l.layers[d.Layer]++
		l.denied = append(l.denied, e)
	}
	e.Count += n
	if e.Count >= e.next && !e.queued {
		e.queued = true
		l.queue(due{denied: e})
	}
}

// Allow counts a use of an allowed destination.
func (l *Ledger) Allow(a rung.NetAllowed) {
	n := max(a.Count, 1)
	a.Count = 0
	for _, s := range []*string{&a.Host, &a.Address, &a.Rule, &a.Checked} {
		*s = clip(*s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.dests[a]
	if e == nil && len(l.dests) >= MaxAllowed {
		a = rung.NetAllowed{Rule: Further, Checked: a.Checked}
		e = l.dests[a]
	}
	if e == nil {
		e = &allowed{NetAllowed: a, next: 1}
		l.dests[a] = e
		l.allowed = append(l.allowed, e)
	}
	e.Count += n
	if e.Count >= e.next && !e.queued {
		e.queued = true
		l.queue(due{allowed: e})
	}
}

// Package notes a fetched package, once.
func (l *Ledger) Package(p rung.Package) {
	for _, s := range []*string{&p.Registry, &p.Name, &p.Version, &p.Digest} {
		*s = clip(*s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[p] {
		return
	}
	if len(l.seen) >= MaxPackages {
		l.unlisted++
		return
	}
	l.seen[p] = true
	l.packages = append(l.packages, p)
	l.queue(due{pkg: &p})
}

// Snapshot returns a copy of the content.
func (l *Ledger) Snapshot() Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Snapshot{Packages: slices.Clone(l.packages), PackagesUnlisted: l.unlisted}
	for _, e := range l.denied {
		s.Denied = append(s.Denied, e.NetDenial)
	}
	for _, e := range l.allowed {
		s.Allowed = append(s.Allowed, e.NetAllowed)
	}
	return s
}

// Close ends the news to the sink after it heard what is due, and waits for that. The ledger itself stays usable.
func (l *Ledger) Close() {
	if l.wake == nil {
		return
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.wake)
	}
	l.mu.Unlock()
	<-l.done
}

// queue is called with the lock held.
func (l *Ledger) queue(d due) {
	if l.wake == nil || l.closed {
		return
	}
	l.due = append(l.due, d)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Ledger) tell(sink func(Event)) {
	defer close(l.done)
	for range l.wake {
		l.drain(sink)
	}
	l.drain(sink)
}

func (l *Ledger) drain(sink func(Event)) {
	for _, e := range l.take() {
		sink(e)
	}
}

// take copies what is due as it stands now and sets when it is due again.
func (l *Ledger) take() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := make([]Event, 0, len(l.due))
	for _, d := range l.due {
		switch {
		case d.denied != nil:
			e := d.denied.NetDenial
			d.denied.queued, d.denied.next = false, step(e.Count)
			events = append(events, Event{Denied: &e})
		case d.allowed != nil:
			e := d.allowed.NetAllowed
			d.allowed.queued, d.allowed.next = false, step(e.Count)
			events = append(events, Event{Allowed: &e})
		default:
			events = append(events, Event{Package: d.pkg})
		}
	}
	l.due = nil
	return events
}

// step is the next power of ten above n.
func step(n int64) int64 {
	next := int64(1)
	for next <= n && next < 1e18 {
		next *= 10
	}
	return next
}

func clip(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText-3] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
