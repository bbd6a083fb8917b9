package ledger

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rung-dev/rung"
)

func TestOneEntryPerCauseWithACount(t *testing.T) {
	l := New(nil)
	for i := range 1000 {
		l.Deny(rung.NetDenial{Layer: "dns", Host: "a.example", Reason: "no rule names it"})
		l.Deny(rung.NetDenial{Layer: "tcp", Address: "192.0.2.1", Port: i % 2, Reason: "no rule names it"})
		l.Allow(rung.NetAllowed{Host: "b.example", Port: 443, Rule: "b.example", Checked: "gate"})
		l.Package(rung.Package{Registry: "npm", Name: "left-pad", Version: "1.0.0"})
	}
	s := l.Snapshot()
	if len(s.Denied) != 3 || s.Denied[0].Count != 1000 || s.Denied[1].Count != 500 || s.Denied[0].First.IsZero() {
		t.Errorf("denied %+v", s.Denied)
	}
	if len(s.Allowed) != 1 || s.Allowed[0].Count != 1000 || len(s.Packages) != 1 {
		t.Errorf("allowed %+v, packages %+v", s.Allowed, s.Packages)
	}
	l.Close()
}

func TestAFloodOfCausesIsBounded(t *testing.T) {
	l := New(nil)
	for i := range 3 * MaxCauses {
		l.Deny(rung.NetDenial{Layer: "dns", Host: fmt.Sprintf("%d.example", i), Reason: strings.Repeat("x\xff", MaxText)})
		l.Allow(rung.NetAllowed{Host: fmt.Sprintf("%d.example", i), Port: 1})
	}
	l.Deny(rung.NetDenial{Layer: "secret", Host: "evil.example", Reason: "a secret", Severity: "high"})
	for i := range MaxPackages + 5 {
		l.Package(rung.Package{Name: fmt.Sprint(i)})
	}
	s := l.Snapshot()
	if len(s.Denied) != MaxCauses+2 || len(s.Allowed) != MaxAllowed+1 || len(s.Packages) != MaxPackages || s.PackagesUnlisted != 5 {
		t.Fatalf("%d denied, %d allowed, %d packages, %d unlisted", len(s.Denied), len(s.Allowed), len(s.Packages), s.PackagesUnlisted)
	}
	if f := s.Denied[MaxCauses]; f.Reason != Further || f.Count != 2*MaxCauses {
		t.Errorf("further entry %+v", f)
	}
	if f := s.Denied[MaxCauses+1]; f.Severity != "high" {
		t.Errorf("high severity was hidden: %+v", f)
	}
	if n := len(s.Denied[0].Reason); n > 3*MaxText {
		t.Errorf("reason of %d bytes", n)
	}
}

func TestAFloodOfOneLayerHidesNoOther(t *testing.T) {
	l := New(nil)
	for i := range 2 * MaxCauses {
		l.Deny(rung.NetDenial{Layer: "tcp", Port: i, Reason: "no rule names it"})
	}
	for i := range 2 * MaxReserved {
		l.Deny(rung.NetDenial{Layer: "dns", Host: fmt.Sprintf("%d.example", i), Reason: "no rule names it"})
	}
	s := l.Snapshot()
	if len(s.Denied) != MaxCauses+1+MaxReserved {
		t.Fatalf("%d entries", len(s.Denied))
	}
	if f := s.Denied[MaxCauses]; f.Reason != Further || f.Count != MaxCauses+MaxReserved {
		t.Errorf("further entry %+v", f)
	}
	if d := s.Denied[MaxCauses+1]; d.Layer != "dns" || d.Host != "0.example" {
		t.Errorf("a name was hidden by ports: %+v", d)
	}
}

func TestTheSinkHearsFirstsAndTens(t *testing.T) {
	var mu sync.Mutex
	var counts []int64
	heard := make(chan struct{}, 100)
	l := New(func(e Event) {
		mu.Lock()
		counts = append(counts, e.Denied.Count)
		mu.Unlock()
		heard <- struct{}{}
	})
	for i := range 1000 {
		l.Deny(rung.NetDenial{Layer: "udp", Reason: "no"})
		if i == 0 || i == 9 || i == 99 || i == 999 {
			<-heard
		}
	}
	l.Close()
	l.Close()
	if fmt.Sprint(counts) != "[1 10 100 1000]" {
		t.Errorf("heard at %v", counts)
	}
}

func TestASinkThatHangsBlocksNothing(t *testing.T) {
	hold := make(chan struct{})
	var n int
	l := New(func(Event) { <-hold; n++ })
	for i := range 10_000 {
		l.Deny(rung.NetDenial{Layer: "dns", Host: fmt.Sprint(i % 20)})
	}
	if got := len(l.Snapshot().Denied); got != 20 {
		t.Errorf("%d entries", got)
	}
	close(hold)
	l.Close()
	if n < 20 || n > 40 {
		t.Errorf("the sink heard %d times of 20 causes", n)
	}
}
