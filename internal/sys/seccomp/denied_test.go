package seccomp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rung-dev/rung"
)

func nr(t *testing.T, name string) int {
	t.Helper()
	for i := range len(nameAt) - 1 {
		if Name(i) == name {
			return i
		}
	}
	t.Fatalf("no system call %q", name)
	return 0
}

// TestTally counts by call, telling argument and process, reports the first at once and the rest in time.
func TestTally(t *testing.T) {
	var got []rung.Denied
	tl := newTally(func(d rung.Denied) { got = append(got, d) })
	start := time.Unix(1000, 0)
	ptrace, socket := nr(t, "ptrace"), nr(t, "socket")
	add := func(after time.Duration, call, arg, tid, pid int) {
		tl.add(attempt{nr: call, args: [6]uint64{uint64(arg)}, tid: tid, at: start.Add(after), process: func() (int, string) { return pid, "x" }})
	}
	add(0, ptrace, 1, 10, 10)
	add(1*time.Millisecond, ptrace, 2, 11, 10) // another thread, other arguments: the same kind
	add(2*time.Millisecond, socket, 38, 10, 10)
	add(3*time.Millisecond, socket, 40, 10, 10)
	add(4*time.Millisecond, ptrace, 1, 20, 20)
	if next := tl.flush(start.Add(5*time.Millisecond), false); !next.Equal(start.Add(reportEvery)) {
		t.Errorf("next flush at %v", next)
	}
	if next := tl.flush(start.Add(reportEvery), false); !next.IsZero() {
		t.Errorf("something is left for %v", next)
	}
	add(reportEvery+time.Millisecond, ptrace, 1, 10, 10)
	tl.flush(start.Add(reportEvery+2*time.Millisecond), true)
	denied := func(call string, arg uint64, pid int, after time.Duration) rung.Denied {
		return rung.Denied{Syscall: call, Args: []uint64{arg, 0, 0, 0, 0, 0}, PID: pid, Process: "x", Count: 1, First: start.Add(after)}
	}
	first := denied("ptrace", 1, 10, 0)
	want := []rung.Denied{
		first, denied("socket", 38, 10, 2*time.Millisecond), denied("socket", 40, 10, 3*time.Millisecond),
		denied("ptrace", 1, 20, 4*time.Millisecond), first, first,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestTallyIsBounded makes a new kind with every attempt.
func TestTallyIsBounded(t *testing.T) {
	counts, kinds := map[string]int64{}, map[string]bool{}
	tl := newTally(func(d rung.Denied) {
		counts[d.Syscall] += d.Count
		kinds[cmp.Diff(d.Args, nil)+d.Syscall+d.First.String()] = true
	})
	now := time.Unix(1000, 0)
	const attempts = 100_000
	for i := range attempts {
		now = now.Add(time.Microsecond)
		tl.add(attempt{nr: 100_000 + i/2, tid: i, at: now, process: func() (int, string) { return i, "x" }})
	}
	tl.flush(now, true)
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	if sum != attempts || len(kinds) > 2*maxKinds+1 || len(tl.entries) > 2*maxKinds+1 || len(tl.threads) > maxKinds {
		t.Errorf("%d counted, %d kinds reported, %d kept, %d threads", sum, len(kinds), len(tl.entries), len(tl.threads))
	}
	if counts[Other] == 0 {
		t.Error("nothing was too much")
	}
}

func TestBucket(t *testing.T) {
	now := time.Unix(1000, 0)
	b := bucket{tokens: answerBurst, last: now}
	waited, answered := time.Duration(0), 0
	for ; waited < time.Second; answered++ {
		d := b.take(now)
		now, waited = now.Add(d), waited+d
	}
	if least := int(time.Second/answerEvery) + answerBurst; answered < least-answerBatch || answered > least+2*answerBatch {
		t.Errorf("%d answers in a second of waiting", answered)
	}
	now = now.Add(time.Hour)
	for i := range answerBurst {
		if d := b.take(now); d != 0 {
			t.Fatalf("after an hour, answer %d waits %v", i, d)
		}
	}
	if b.take(now) == 0 {
		t.Error("more tokens were saved than the burst")
	}
}

func TestName(t *testing.T) {
	for number, want := range map[int]string{-1: "syscall_-1", 471: "rseq_slice_yield", 435: "clone3", 9999: "syscall_9999", 1 << 30: "syscall_1073741824"} {
		if got := Name(number); got != want {
			t.Errorf("%d: %q, want %q", number, got, want)
		}
	}
}

func TestSections(t *testing.T) {
	if got := string(CrunSection(`/run/a "b"\` + "\n")); got != `{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"flags":[],"listenerPath":"/run/a \"b\"\\\u000a"}` {
		t.Error(got)
	}
	if _, err := RuncSection("nonsense", ""); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("unknown profile: %v", err)
	}
	if _, err := Annotation("nonsense"); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("unknown profile: %v", err)
	}
	if _, err := Install(Filter("nonsense"), false); err == nil {
		t.Error("an empty filter was installed")
	}
}
