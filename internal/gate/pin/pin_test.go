package pin_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung/internal/gate/pin"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestNamesLiveAsLongAsTheirAnswer(t *testing.T) {
	now := time.Unix(1000, 0)
	p := pin.New(func() time.Time { return now })
	p.Add("a.example", []netip.Addr{addr("192.0.2.1"), addr("::ffff:192.0.2.2")}, time.Minute)
	now = now.Add(time.Second)
	p.Add("b.example", []netip.Addr{addr("192.0.2.1")}, time.Hour)
	check := func(a string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), p.Names(addr(a))); diff != "" {
			t.Errorf("%s: %s", a, diff)
		}
	}
	check("192.0.2.1", "b.example", "a.example") // asked for last: first
	check("::ffff:192.0.2.1", "b.example", "a.example")
	check("192.0.2.2", "a.example")
	check("192.0.2.3")

	p.Add("a.example", []netip.Addr{addr("192.0.2.1")}, time.Second) // never shortens
	check("192.0.2.1", "a.example", "b.example")
	now = now.Add(59 * time.Second)
	check("192.0.2.1", "b.example")
	check("192.0.2.2")
	if got := p.Addrs("a.example"); len(got) != 0 {
		t.Errorf("dead addresses %v", got)
	}
	if got := p.Addrs("b.example"); len(got) != 1 || got[0] != addr("192.0.2.1") {
		t.Errorf("addresses %v", got)
	}
	p.Add("c.example", []netip.Addr{addr("192.0.2.9")}, 0)
	check("192.0.2.9")
}

func TestTheTableIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	p := pin.New(func() time.Time { return now })
	var many []netip.Addr
	for i := range 1000 {
		many = append(many, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}))
	}
	p.Add("many.example", many, time.Hour)
	if got := p.Len(); got != pin.MaxPerName {
		t.Errorf("%d addresses of one name", got)
	}
	for i := range 3 * pin.MaxPins {
		p.Add(fmt.Sprintf("%d.example", i), many[i%500:i%500+1], time.Hour+time.Duration(i))
	}
	if got := p.Len(); got > pin.MaxPins {
		t.Errorf("%d pins", got)
	}
	if got := p.Addrs(fmt.Sprintf("%d.example", 3*pin.MaxPins-1)); len(got) != 1 {
		t.Error("the newest pin was forgotten")
	}
	for i := range 2 * pin.MaxPerAddr {
		p.Add(fmt.Sprintf("y%d.example", i), many[2:3], time.Hour)
	}
	if got := p.Names(many[2]); len(got) != pin.MaxPerAddr {
		t.Errorf("%d names of one address", len(got))
	}
	now = now.Add(2 * time.Hour)
	for i := range pin.MaxPins {
		now = now.Add(time.Millisecond)
		p.Add("new.example", many[:1], time.Hour)
		p.Add(fmt.Sprintf("x%d.example", i), many[i%900+1:i%900+2], time.Hour)
	}
	if got := p.Names(many[0]); len(got) != 1 || got[0] != "new.example" {
		t.Errorf("names %v", got)
	}
}
