package budget_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/budget"
)

func TestCapsRefuseAndNameThemselves(t *testing.T) {
	m := budget.New(rung.NetBudget{Connections: 2, Rate: 1000, BytesOut: 10, BytesIn: 20, Requests: 1, Lookups: 1})
	one, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Open(); err != nil {
		t.Fatal(err)
	}
	_, err = m.Open()
	wantCap(t, err, "2 open connections", "budget.connections")
	one()
	one() // giving back twice frees one place
	if _, err := m.Open(); err != nil {
		t.Fatal(err)
	}
	_, err = m.Open()
	wantCap(t, err, "2 open connections", "budget.connections")

	if err := m.Out(10); err != nil {
		t.Fatal(err)
	}
	wantCap(t, m.Out(1), "10 bytes out", "budget.bytes_out")
	if err := m.In(15); err != nil {
		t.Fatal(err)
	}
	wantCap(t, m.In(6), "20 bytes in", "budget.bytes_in")
	wantCap(t, m.In(-1), "20 bytes in", "budget.bytes_in")
	if err := m.Request(); err != nil {
		t.Fatal(err)
	}
	wantCap(t, m.Request(), "1 HTTP requests", "budget.requests")
	if err := m.Lookup(); err != nil {
		t.Fatal(err)
	}
	wantCap(t, m.Lookup(), "1 names", "budget.lookups")

	want := rung.NetUsage{Connections: 3, BytesOut: 10, BytesIn: 15, Requests: 1, Lookups: 1}
	if got := m.Usage(); got != want {
		t.Errorf("usage %+v, want %+v: what was refused must not count", got, want)
	}
}

func TestRateAllowsABurstThenRefuses(t *testing.T) {
	m := budget.New(rung.NetBudget{Connections: 1000, Rate: 0.001})
	for range budget.MinBurst {
		release, err := m.Open()
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	_, err := m.Open()
	wantCap(t, err, "connections per second", "connections_per_second")
	if got := m.Usage().Connections; got != budget.MinBurst {
		t.Errorf("%d connections counted", got)
	}
}

func TestZeroIsTheDefaultForASandboxAndNoCapForARule(t *testing.T) {
	d := rung.DefaultNetBudget()
	m := budget.New(rung.NetBudget{})
	if err := m.Out(int(d.BytesOut)); err != nil {
		t.Fatal(err)
	}
	wantCap(t, m.Out(1), "bytes out", "bytes_out")
	r := budget.NewRule(rung.NetBudget{Requests: 1})
	if err := r.Out(int(d.BytesOut) + 1); err != nil {
		t.Error(err)
	}
	if _, err := r.Open(); err != nil {
		t.Error(err)
	}
}

func TestManyAtOnceNeverPassTheCap(t *testing.T) {
	m := budget.New(rung.NetBudget{BytesOut: 1000})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if m.Out(1) == nil {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 1000 || m.Usage().BytesOut != 1000 {
		t.Errorf("%d passed, %d counted", passed.Load(), m.Usage().BytesOut)
	}
}

func wantCap(t *testing.T, err error, text, hint string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one about %q", text)
	}
	if rung.KindOf(err) != rung.KindExhausted || !strings.Contains(err.Error(), text) || !strings.Contains(rung.HintOf(err), hint) {
		t.Errorf("error %q (%s), hint %q; want %q and %q", err, rung.KindOf(err), rung.HintOf(err), text, hint)
	}
}
