//go:build linux

package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
)

// batches are everything that one sandbox on its own can try.
func batches(w *theWorld) []*batch {
	return []*batch{nothingNamed(w), named(), requests(), proxied(), open(), packets(), scans(), changes(), budgets(), names(), floods(), noNetwork()}
}

// TestEgress tries every case on every rung, the control first.
func TestEgress(t *testing.T) {
	w := needWorld(t)
	for _, b := range batches(w) {
		for i := range b.cases {
			b.cases[i].complete(b)
		}
		t.Run(b.name, func(t *testing.T) { w.batch(t, b) })
	}
}

func (w *theWorld) batch(t *testing.T, b *batch) {
	crosses := map[string]string{}
	t.Run("none", func(t *testing.T) {
		if !slices.ContainsFunc(b.cases, func(c hostile) bool { return c.on(rung.None) }) {
			t.Skip("no case of this batch can have a control: each says why")
		}
		out := w.run(t, rung.None, b)
		for _, c := range b.cases {
			if !c.on(rung.None) {
				continue
			}
			how := w.crossing(c, out)
			if c.forbid != "" { // the control has no gate that takes anything out
				how = strings.Join(w.stands.heardOf(c.Token), "; ")
			}
			if crosses[c.Name] = how; how == "" {
				t.Errorf("%s does not cross without a wall: it proves nothing (%+v)", c.Name, out.results[c.Name])
			}
		}
	})
	for _, r := range rungs() {
		t.Run(string(r), func(t *testing.T) { w.attack(t, r, b) })
	}
}

func (w *theWorld) attack(t *testing.T, r rung.Rung, b *batch) {
	if !slices.ContainsFunc(b.cases, func(c hostile) bool { return c.on(r) }) {
		t.Skip("no case of this batch is about this rung: each says why")
	}
	out := w.run(t, r, b)
	held, tried := 0, 0
	for _, c := range b.cases {
		if !c.on(r) {
			continue
		}
		tried++
		if w.judge(t, r, c, out) {
			held++
		}
	}
	if list := strangers(out.begun, b.allowed); len(list) > 0 {
		t.Errorf("crossed: began what no rule names: %s", strings.Join(list, ", "))
	}
	if b.after != nil {
		b.after(t, r, out)
	}
	if t.Failed() {
		t.Logf("refused: %s\nstderr: %s\n%s", denials(out), out.stderr, out.record.Stderr)
	}
	t.Logf("%d of %d cases as they must be", held, tried)
}

func (w *theWorld) judge(t *testing.T, r rung.Rung, c hostile, out outcome) bool {
	t.Helper()
	res, ran := out.results[c.Name]
	if !ran {
		t.Errorf("%s: the probe says nothing of it", c.Name)
		return false
	}
	how := w.crossing(c, out)
	switch {
	case c.pass && how == "":
		t.Errorf("%s: a rule names it, and it did not pass: %+v", c.Name, res)
	case !c.pass && how != "":
		t.Errorf("%s: crossed: %s (%+v)", c.Name, how, res)
	case c.wanted(r) != "" && !denied(out, c.wanted(r)):
		t.Errorf("%s: held, but the record has no denial %q (%.300q)", c.Name, c.wanted(r), fmt.Sprint(res))
	default:
		return true
	}
	return false
}

// complete adds to a case what its destination says.
func (c *hostile) complete(b *batch) {
	a, err := netip.ParseAddr(c.Host)
	if err != nil || c.pass || c.reaches != nil {
		return
	}
	to := netip.AddrPortFrom(a.WithZone("").Unmap(), uint16(c.Port)).String()
	key := map[string]string{"dial": "tcp " + to, "udp": "udp " + to, "icmp": "icmp " + a.Unmap().String(), "repeat": "tcp " + to, "relay": "tcp " + to, "net": "tcp " + to}[c.Op]
	if key != "" && !slices.Contains(b.allowed, key) {
		c.reaches = []string{key}
	}
}
