package seccomp

import (
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// Bounds of what is kept and reported about one sandbox's denied calls, for its whole life.
const (
	// maxKinds is how many kinds of attempts (call, telling argument, process) are kept apart.
	maxKinds = 128
	// reportEvery is how often one kind is reported at most.
	reportEvery = 100 * time.Millisecond
)

// Other is the call name under which attempts are counted that would be too many kinds to keep apart.
const Other = "other"

// attempt is one reported call.
type attempt struct {
	nr      int
	args    [6]uint64
	tid     int                  // the thread that made it
	process func() (int, string) // looks up the thread's process and its name; called only for what may be a new kind
	at      time.Time
}

// kind is what attempts are counted by.
type kind struct {
	nr, arg, pid int
}

// tally counts attempts by kind. Its memory and its reports are bounded whatever the sandbox does: the first maxKinds kinds
// are kept with their process, as many again without, and all others together as Other.
type tally struct {
	report  func(rung.Denied)
	entries map[kind]*entry
	threads map[kind]*entry // the same by thread, so that a process is looked up once for each of its threads
	order   []*entry        // by first attempt; reports go out in this order
	dirty   int             // entries with attempts that were not reported
}

type entry struct {
	denied   rung.Denied // Count is of attempts not yet reported
	reported time.Time
}

func newTally(report func(rung.Denied)) *tally {
	return &tally{report: report, entries: map[kind]*entry{}, threads: map[kind]*entry{}}
}

func (t *tally) add(a attempt) {
	e := t.entry(a)
	if e.denied.Count == 0 {
		t.dirty++
	}
	e.denied.Count++
	if a.at.Sub(e.reported) >= reportEvery {
		t.send(e, a.at)
	}
}

func (t *tally) entry(a attempt) *entry {
	k := kind{a.nr, telling(a.nr, a.args), a.tid}
	if e := t.threads[k]; e != nil {
		return e
	}
	if len(t.threads) < maxKinds {
		pid, name := a.process()
		e := t.entries[kind{k.nr, k.arg, pid}]
		if e == nil {
			e = t.insert(kind{k.nr, k.arg, pid}, a, Name(a.nr), name)
		}
		t.threads[k] = e
		return e
	}
	k.pid = anyProcess
	if e := t.entries[k]; e != nil {
		return e
	}
	if len(t.entries) < 2*maxKinds {
		return t.insert(k, a, Name(a.nr), "")
	}
	if e := t.entries[other]; e != nil {
		return e
	}
	return t.insert(other, a, Other, "")
}

// anyProcess stands for all processes; no process has this number.
const anyProcess = -1

// other is the kind that takes what is too much.
var other = kind{nr: -1, pid: anyProcess}

func (t *tally) insert(k kind, a attempt, call, process string) *entry {
	e := &entry{denied: rung.Denied{Syscall: call, Args: append([]uint64{}, a.args[:]...), PID: max(k.pid, 0), Process: process, First: a.at}}
	t.entries[k] = e
	t.order = append(t.order, e)
	return e
}

// flush reports the kinds whose time has come, or all that were not reported, and returns when the next is due (zero when
// none is).
func (t *tally) flush(now time.Time, all bool) (next time.Time) {
	if t.dirty == 0 {
		return next
	}
	for _, e := range t.order {
		if e.denied.Count == 0 {
			continue
		}
		due := e.reported.Add(reportEvery)
		if all || !now.Before(due) {
			t.send(e, now)
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

func (t *tally) send(e *entry, now time.Time) {
	d := e.denied
	d.Args = append([]uint64{}, d.Args...) // the receiver may keep it
	e.reported, e.denied.Count = now, 0
	t.dirty--
	t.report(d)
}

// telling returns what of the arguments makes another kind of attempt: the address family of a socket, the namespaces of a
// clone. Arguments of other calls are pointers or choices of the program, and would make every attempt a kind of its own.
func telling(nr int, args [6]uint64) int {
	switch Name(nr) {
	case "socket":
		return int(min(uint32(args[0]), 63))
	case "clone":
		return int(args[0] & cloneNamespaces)
	}
	return 0
}

// cloneNamespaces are the CLONE_NEW* flags of clone.
const cloneNamespaces = 0x7e020000

// The supervisor's token bucket. Beyond it the attempts wait, so that a sandbox can make the host compute for it only as
// much as 2,000 answers a second cost.
const (
	answerBurst = 256
	answerEvery = 500 * time.Microsecond
	// answerBatch is how many tokens an empty bucket waits for: sleeping for each answer costs more than answering.
	answerBatch = 32
)

// bucket spreads answers over time: one token each answerEvery, at most answerBurst of them saved.
type bucket struct {
	tokens int
	last   time.Time // up to here tokens have been made
}

// take uses one token, and returns how long to wait first: nothing while there are tokens.
func (b *bucket) take(now time.Time) time.Duration {
	if made := int(now.Sub(b.last) / answerEvery); made > 0 {
		b.tokens = min(b.tokens+made, answerBurst)
		b.last = b.last.Add(time.Duration(made) * answerEvery)
	}
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return b.last.Add(answerBatch * answerEvery).Sub(now)
}

// clean makes a name that a hostile process chose fit for a log: printable ASCII.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}
