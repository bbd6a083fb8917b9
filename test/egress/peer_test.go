//go:build linux

package egress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/test/egress/order"
)

// peerPort is what the one sandbox listens on, peerMark what the other sends.
const (
	peerPort = 7778
	peerMark = "rung-peer-mark"
)

// listening is a sandbox that tells at its end whether anything came from somebody else.
func listening() *batch {
	return &batch{
		name: "listening", args: []string{"--allow", "ok.test"}, allowed: tcp("203.0.113.10:80"),
		cases: []hostile{{Case: order.Case{Name: "serve", Op: "serve", Host: "ok.test", Port: 80, Count: peerPort, Wait: 60000, Send: []byte(peerMark)}}},
	}
}

// reaching is the other one, which runs at the same time and has the same addresses.
func reaching() *batch {
	b := &batch{name: "reaching", args: []string{"--allow", "alt.test"}, allowed: tcp("203.0.113.10:80")}
	add := func(c order.Case, raw bool) {
		c.Send = []byte(peerMark)
		b.cases = append(b.cases, hostile{Case: c, raw: raw})
	}
	for name, a := range map[string]string{"its address": "192.0.0.2", "its v6 address": "fd72:756e:6700::2", "a neighbour's address": "192.0.0.3", "the gate": "192.0.0.1"} {
		add(order.Case{Name: "P-48 NET-12 TCP to the peer by " + name, Op: "dial", Host: a, Port: peerPort}, false)
		add(order.Case{Name: "P-48 NET-12 UDP to the peer by " + name, Op: "udp", Host: a, Port: peerPort}, false)
	}
	add(order.Case{Name: "multicast to the peer", Op: "udp", Host: "224.0.0.251", Port: peerPort}, false)
	for _, kind := range []string{"", "arp", "arp-ask", "syn"} {
		f := &order.Frame{Kind: kind, DstMAC: "02:72:75:6e:67:02", Dst: "192.0.0.2", Port: peerPort}
		add(order.Case{Name: "frame to the peer's Ethernet address: " + kind, Op: "frame", Frame: f}, true)
		everybody := *f
		everybody.DstMAC = "ff:ff:ff:ff:ff:ff"
		add(order.Case{Name: "frame to everybody: " + kind, Op: "frame", Frame: &everybody}, true)
	}
	add(order.Case{Name: "neighbour advertisement", Op: "frame", Frame: &order.Frame{Kind: "advert", DstMAC: "33:33:00:00:00:01", Src: "fd72:756e:6700::1", Dst: "ff02::1"}}, true)
	b.cases = append(b.cases, hostile{
		Case: order.Case{Name: "pain-23 what only the peer may", Op: "stream", Host: "ok.test", Port: 443, TLS: &order.TLS{}, Send: []byte("GET /{t} HTTP/1.0\r\n\r\n")},
	})
	return b
}

// TestPeer has two sandboxes at once: nothing of the one reaches the other. On rung process nothing can be tried: programs
// may not listen there, and there is no interface that something could come by.
func TestPeer(t *testing.T) {
	w := needWorld(t)
	for _, r := range append([]rung.Rung{rung.None}, linked()...) {
		t.Run(string(r), func(t *testing.T) {
			one, other := listening(), reaching()
			w.prepare(t, one)
			x := w.begin(t, r, one, true)
			token := one.cases[0].Token
			x.waits(t, token)
			for i := range other.cases {
				other.cases[i] = other.cases[i].with(fmt.Sprintf("%s%02d", peerMark, i))
			}
			out := w.begin(t, r, other, true).finish(t)
			w.stands.release(token)
			got := x.finish(t).results["serve"]
			if r == rung.None {
				for _, way := range []string{"tcp", "udp", "frame"} {
					if !strings.Contains(got.Got, way) {
						t.Errorf("without a wall the peer must be reached by %s: %+v", way, got)
					}
				}
				return
			}
			if got.Got != "came: []" {
				t.Errorf("crossed: %+v", got)
			}
			for _, c := range other.cases {
				if how := w.crossing(c, out); how != "" {
					t.Errorf("%s: crossed: %s", c.Name, how)
				}
			}
			if list := strangers(out.begun, one.allowed); len(list) > 0 {
				t.Errorf("crossed: began what no rule names: %s", strings.Join(list, ", "))
			}
			if !denied(out, "dns: ok.test") {
				t.Errorf("the record has no denial of the peer's host: %s", denials(out))
			}
		})
	}
}
