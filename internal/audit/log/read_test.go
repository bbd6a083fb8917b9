package log

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func TestFilters(t *testing.T) {
	l := open(t)
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	l.now = func() time.Time { at = at.Add(time.Minute); return at }
	for _, e := range []Entry{
		{Kind: "run", Sandbox: "one", Agent: "a"},
		{Kind: "net", Sandbox: "one", Agent: "a", Decision: Deny},
		{Kind: "net", Sandbox: "two", Agent: "b", Decision: Deny},
		{Kind: "run", Sandbox: "two", Agent: "b"},
	} {
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		f    Filter
		want []int64
	}{
		{Filter{}, []int64{1, 2, 3, 4, 5}},
		{Filter{Sandbox: "one"}, []int64{2, 3}},
		{Filter{Agent: "b"}, []int64{4, 5}},
		{Filter{Kind: "run"}, []int64{2, 5}},
		{Filter{Denied: true}, []int64{3, 4}},
		{Filter{Denied: true, Sandbox: "two"}, []int64{4}},
		{Filter{Since: at}, []int64{5}},
		{Filter{Kind: "none"}, nil},
	} {
		for name, read := range map[string]func(Visit) (Position, error){
			"scan": func(v Visit) (Position, error) { return l.Scan(Position{}, c.f, v) },
			"tail": func(v Visit) (Position, error) { return l.Tail(100, c.f, v) },
		} {
			var got []int64
			if _, err := read(func(line *Line, _ []byte) error { got = append(got, line.Seq); return nil }); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s %+v: %v, not %v, %v", name, c.f, got, c.want, err)
			}
		}
	}
}

func TestTail(t *testing.T) {
	l := open(t)
	if end, err := l.Tail(5, Filter{}, nil); err != nil || end != (Position{}) {
		t.Errorf("an empty log: %v, %v", end, err)
	}
	l.segment, l.unsigned, l.sync = 2<<10, 8, unsynced
	fill(t, l, 60)
	all := lines(t, l)
	last := all[len(all)-1].Seq
	for _, n := range []int{1, 3, 17, int(last), int(last) + 50} {
		var got []int64
		end, err := l.Tail(n, Filter{}, func(line *Line, text []byte) error {
			if !line.exact(text) {
				t.Errorf("line %d has another's text", line.Seq)
			}
			got = append(got, line.Seq)
			return nil
		})
		if err != nil || len(got) != min(n, int(last)) || got[len(got)-1] != last || !slices.IsSorted(got) {
			t.Errorf("%d: %v, %v", n, got, err)
		}
		if at, err := l.Scan(end, Filter{}, func(*Line, []byte) error { return errors.New("something after the end") }); err != nil || at != end {
			t.Error(at, err)
		}
	}
	for _, n := range []int{0, -1, MaxTail + 1} {
		if _, err := l.Tail(n, Filter{}, nil); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%d: %v", n, err)
		}
	}
	stop := errors.New("stop")
	if _, err := l.Tail(3, Filter{}, func(*Line, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// Follow meets every line once, also when segments change under it and a line is written in two pieces.
func TestFollow(t *testing.T) {
	l := open(t)
	l.segment, l.unsigned, l.sync = 2<<10, 8, unsynced
	fill(t, l, 5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan int64, 1000)
	done := make(chan error, 1)
	go func() {
		done <- l.Follow(ctx, Position{}, Filter{}, func(line *Line, _ []byte) error { got <- line.Seq; return nil })
	}()
	wait := func(upTo int64, next *int64) {
		for ; *next <= upTo; *next++ {
			select {
			case seq := <-got:
				if seq != *next {
					t.Fatalf("line %d instead of %d", seq, *next)
				}
			case err := <-done:
				t.Fatalf("it ended: %v", err)
			}
		}
	}
	next := int64(1)
	wait(6, &next)
	fill(t, l, 60)
	wait(mustBeWhole(t, l).Last, &next)

	e := Entry{Kind: "test"}
	r := mustBeWhole(t, l)
	text := append(appendLine(nil, r.Last+1, l.time(), &e, lastHash(t, l), false), '\n')
	f, err := os.OpenFile(newest(t, l), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, piece := range [][]byte{text[:10], text[10:]} {
		if _, err := f.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	wait(r.Last+1, &next)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func lastHash(t *testing.T, l *Log) string {
	t.Helper()
	f, err := l.open(headFile, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, ok := readHead(f)
	if !ok {
		t.Fatal("no head")
	}
	return h.hash
}

func TestPrune(t *testing.T) {
	l := open(t)
	l.segment, l.unsigned, l.sync = 2<<10, 8, unsynced
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	l.now = func() time.Time { return at }
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	var anchors []*Checkpoint
	for n := 1; n <= 10; n++ {
		at = day(n)
		fill(t, l, 20)
		c, err := l.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		anchors = append(anchors, c)
	}
	if p, err := l.Prune(day(1)); err != nil || p.Segments != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	before := mustBeWhole(t, l)
	p, err := l.Prune(day(4))
	if err != nil || p.Segments == 0 || p.Through == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	first := lines(t, l)[0]
	if first.Time.After(day(4)) || first.Seq != p.Through+1 {
		t.Errorf("%+v", first)
	}
	r := mustBeWhole(t, l)
	if r.Pruned != p.Through || r.First != p.Through+1 || r.Last != before.Last+2 {
		t.Errorf("%+v", r)
	}
	for i := range anchors {
		want := anchors[i].Seq >= p.Through
		r, err := l.Verify(public(t, testKey), anchors[i])
		if err != nil || !r.OK || r.Anchored != want {
			t.Errorf("anchor of day %d: %+v, %v", i+1, r, err)
		}
	}
	// Again, and then one segment more than the signed line says.
	if p, err = l.Prune(day(6)); err != nil || p.Segments == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	mustBeWhole(t, l)
	x := readText(t, l.root.Name())
	x.seg = x.seg[1:]
	x.write()
	if r := verified(t, l); r.OK {
		t.Errorf("a deleted segment passed for a pruned one: %+v", r)
	}
}

// Everything can be asked to go, and the newest segment stays.
func TestPruneKeepsTheNewest(t *testing.T) {
	l := open(t)
	l.segment, l.sync = 2<<10, unsynced
	fill(t, l, 100)
	if _, err := l.Prune(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1)
	if r := mustBeWhole(t, l); r.Pruned == 0 || r.Lines < 2 {
		t.Errorf("%+v", r)
	}
}

// A crash between the signed line and the removal is made good by the next prune.
func TestPruneInterrupted(t *testing.T) {
	l := open(t)
	l.segment, l.sync = 2<<10, unsynced
	fill(t, l, 100)
	saved := readText(t, l.root.Name())
	if _, err := l.Prune(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	rest := readText(t, l.root.Name())
	for _, keep := range []int{1, len(saved.seg) - 1} { // so many of the removed segments are still there
		x := &text{t: t, dir: l.root.Name(), seg: slices.Concat(saved.seg[len(saved.seg)-1-keep:len(saved.seg)-1], rest.seg)}
		x.write()
		if r := verified(t, l); !r.OK {
			t.Errorf("%d are left: %+v", keep, r.Findings)
		}
	}
	if _, err := l.Prune(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	mustBeWhole(t, l)
}
