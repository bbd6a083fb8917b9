//go:build linux

package egress

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/test/egress/order"
)

// nothingNamed is a run as rung starts it by default, and with an empty list, which means the same.
func nothingNamed(w *theWorld) *batch {
	return &batch{
		name: "nothing named", policy: "egress:\n  rules: []\n",
		cases: []hostile{
			dial("pain-20 the first packet", "203.0.113.66", 80, "tcp: no rule names that address"),
			dial("pain-14 NET-02 an empty list allows nothing: address", "203.0.113.10", 443, "tcp: no rule names that address"),
			{
				Case: order.Case{Name: "pain-14 an empty list allows nothing: name", Op: "stream", Host: "ok.test", Port: 443, TLS: &order.TLS{}, Send: []byte("GET /{t} HTTP/1.0\r\n\r\n")},
				want: "dns: ok.test", byProxy: "tcp: ok.test",
			},
			ask("pain-01 pain-30 nothing but names", order.DNS{Name: "{t}.ok.test"}, "dns: ok.test").on3(),
			ask("pain-08 the default holds for names too", order.DNS{Name: "{t}.wild.test", TCP: true}, "dns: wild.test").on3(),
			{
				Case: order.Case{Name: "pain-02 a denied name is not looked up to deny it", Op: "stream", Host: "{t}.denied.test", Port: 80},
				want: "dns: denied.test", byProxy: "tcp: denied.test",
			},
			ask("pain-28 a DNS over TLS resolver", order.DNS{Name: "{t}.x.test", Server: "203.0.113.53:853", TCP: true}, "tcp: no rule names"),
			{
				Case:  order.Case{Name: "P-66 the gate's own socket", Op: "unix", Host: w.gateSocket()},
				check: neverConnects, noControl: "nothing of the gate runs for rung none",
			},
			{Case: order.Case{Name: "pain-32 datagrams to a Unix socket of the host", Op: "unixgram", Host: filepath.Join(w.dir, "datagrams.sock"), Send: []byte("{t}")}},
			{Case: order.Case{Name: "pain-22 QUIC", Op: "udp", Host: "203.0.113.10", Port: 443}, want: "udp: UDP does not leave", byProxy: "-"},
		},
	}
}

func neverConnects(_ hostile, r order.Result) string {
	if strings.HasPrefix(r.Got, "connected") {
		return r.Got
	}
	return ""
}

// on3 limits a case to rungs with an interface.
func (c hostile) on3() hostile {
	c.only, c.why = linked(), noInterface
	return c
}

// open is mode open: public addresses pass, and nothing else does.
func open() *batch {
	b := &batch{name: "open", args: []string{"--egress", "open"}, allowed: tcp("203.0.113.66:80", "203.0.113.66:5432", "203.0.113.10:443")}
	b.cases = []hostile{
		{pass: true, Case: order.Case{Name: "passes: a public address", Op: "dial", Host: "203.0.113.66", Port: 5432}},
		{pass: true, Case: order.Case{Name: "passes: a name", Op: "stream", Host: "any.denied.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: any.denied.test\r\n\r\n")}},
		dial("NET-07 open: private", "10.1.2.3", 80, "tcp: a private address"),
		dial("open: CGNAT", "100.64.1.1", 80, "tcp: is "),
		dial("open: ULA", "fd00::5", 80, "tcp: is "),
		dial("open: NAT64", "64:ff9b::a9fe:a9fe", 80, "tcp: metadata address"),
		dial("open: loopback by the gateway", "192.0.0.1", 8099, "tcp: the gate itself").proxy("tcp: is "),
		dial("NET-04 open: DNS over TLS", "203.0.113.68", 853, "tcp: "),
		{Case: order.Case{Name: "open: UDP", Op: "udp", Host: "203.0.113.66", Port: 9999}, want: "udp: UDP does not leave", byProxy: "-"},
		{Case: order.Case{Name: "pain-22 open: QUIC", Op: "udp", Host: "203.0.113.66", Port: 443}, want: "udp: UDP does not leave", byProxy: "-"},
		{Case: order.Case{Name: "open: ICMP", Op: "icmp", Host: "203.0.113.66"}, raw: true, want: "icmp: ICMP does not leave"},
		ask("open: another resolver", order.DNS{Name: "{t}.x.test", Server: "203.0.113.53:53"}, "udp: UDP does not leave"),
		{
			Case: order.Case{Name: "open: a DoH resolver by its name", Op: "stream", Host: "dns.google", Port: 443, TLS: &order.TLS{}, Send: []byte("POST /dns-query HTTP/1.1\r\nHost: dns.google\r\nX: {t}\r\n\r\n")},
			want: "dns: dns.google", byProxy: "tcp: dns.google",
		},
	}
	for _, name := range []string{"metadata.google.internal", "meta.test", "private.test", "loop.test", "nat64.test", "cname-private.test"} {
		c := hostile{Case: order.Case{Name: "NET-17 open: name " + name, Op: "stream", Host: name, Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: " + name + "\r\n\r\n")}, want: "dns: " + name}
		if name == "metadata.google.internal" {
			c.byProxy = "tcp: " + name
		}
		b.cases = append(b.cases, c)
	}
	for name, a := range metadata {
		if !strings.HasPrefix(a, "fe80:") {
			b.cases = append(b.cases, dial("NET-01 open: metadata "+name, a, 80, "tcp: metadata address"))
		}
	}
	return b
}

// noNetwork is mode none: there is no interface, and so nobody to be told.
func noNetwork() *batch {
	return &batch{name: "mode none", args: []string{"--egress", "none"}, cases: []hostile{
		dial("none: an address", "203.0.113.10", 80, ""),
		dial("none: metadata", "169.254.169.254", 80, ""),
		dial("none: the gate", "192.0.0.1", 8099, ""),
		dial("none: host loopback", "127.0.0.1", 8099, ""),
		ask("none: a name", order.DNS{Name: "{t}.ok.test"}, ""),
		{Case: order.Case{Name: "none: UDP", Op: "udp", Host: "203.0.113.10", Port: 53}},
		{Case: order.Case{Name: "none: ICMP", Op: "icmp", Host: "203.0.113.10"}},
	}}
}

// budgets is a sandbox that may do very little, and tries to do more.
func budgets() *batch {
	const capBytes = 256 << 10
	b := &batch{name: "budgets", serial: true, allowed: append(allowed(), tcp("198.51.100.70:5432")...), policy: `egress:
  rules:
    - {host: ok.test, limits: {connections: 3}}
    - {cidr: 198.51.100.64/28, ports: [5432], protocol: tcp}
    - {host: "*.wild.test"}
  budget: {connections: 40, bytes_out: 256KiB, requests: 2, lookups: 30, connections_per_second: 100}
`}
	const noBudget = "budgets are the gate's: without one there is none to pass"
	b.cases = []hostile{
		{Case: order.Case{Name: "requests: the first", Op: "stream", Host: "ok.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n")}, pass: true},
		{Case: order.Case{Name: "requests: the second", Op: "stream", Host: "ok.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n")}, pass: true},
		{Case: order.Case{Name: "requests: the third of two", Op: "stream", Host: "ok.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n")}, want: "budget: requests"},
		{
			Case: order.Case{Name: "connections: sixty of forty", Op: "many", Host: "198.51.100.70", Port: 5432, Count: 60}, noControl: noBudget, want: "budget: connections",
			check: atMost("alive ", 40),
		},
		{pass: true, Case: order.Case{Name: "passes: when there is room again", Op: "again", Host: "198.51.100.70", Port: 5432}},
		{
			Case: order.Case{Name: "bytes out: a megabyte of 256 KiB", Op: "bytes", Host: "198.51.100.70", Port: 5432, Count: 1 << 20}, noControl: noBudget, want: "budget: bytes",
			forbid: "never: what was sent before the cap arrives, see the count",
		},
		{
			Case: order.Case{Name: "lookups: fifty of thirty", Op: "names", Count: 50, DNS: &order.DNS{Name: "n{n}.wild.test"}}, noControl: noBudget, want: "budget: names looked up",
			check: atMost("answered ", 30),
		},
	}
	b.after = func(t *testing.T, _ rung.Rung, out outcome) {
		t.Helper()
		if n := world.stands.bytes("5432"); n > capBytes {
			t.Errorf("crossed: %d bytes arrived, of %d", n, capBytes)
		}
		if u := out.record.Network; u == nil || u.Usage == nil || u.Usage.BytesOut > capBytes+1<<17 {
			t.Errorf("usage: %+v", u)
		}
	}
	return b
}

// atMost reads a number from what the probe tells.
func atMost(before string, most int) func(hostile, order.Result) string {
	return func(_ hostile, r order.Result) string {
		_, rest, _ := strings.Cut(r.Got, before)
		n, err := strconv.Atoi(strings.FieldsFunc(rest+" ", func(r rune) bool { return r < '0' || r > '9' })[0])
		if err != nil || n > most {
			return fmt.Sprintf("%s, of %d", r.Got, most)
		}
		return ""
	}
}

// names is the cap on how much can be said in names below a wildcard.
func names() *batch {
	return &batch{
		name: "names", policy: policy(), allowed: allowed(), cases: []hostile{{
			Case:      order.Case{Name: "pain-01 three hundred names under one wildcard", Op: "names", Count: 300, Wait: 20000, DNS: &order.DNS{Name: "n{n}.wild.test"}},
			noControl: "the cap is the gate's", want: "dns: different names", check: atMost("answered ", 200),
		}},
		after: func(t *testing.T, _ rung.Rung, out outcome) {
			t.Helper()
			different := map[string]bool{}
			for q := range out.names {
				name, _, _ := strings.Cut(q, " ")
				different[name] = true
			}
			if len(different) > 200 {
				t.Errorf("crossed: the resolver was asked for %d names, of 200", len(different))
			}
		},
	}
}

// floods try to wear the gate out; afterwards it must serve as before.
func floods() *batch {
	const load = "is about the gate's own strength, and asks for what is allowed"
	return &batch{
		name: "floods", policy: policy(), serial: true, allowed: append(allowed(), tcp("203.0.113.10:443")...),
		cases: []hostile{
			{Case: order.Case{Name: "SYN flood", Op: "syns", Host: "203.0.113.71", Count: 20000}, noControl: load, want: "tcp: no rule names that address", byProxy: "-"},
			{
				Case: order.Case{Name: "slow-loris, and a request meanwhile", Op: "slow", Host: "ok.test", Port: 80, Count: 60, Send: []byte("GET /meanwhile HTTP/1.1\r\nHost: ok.test\r\n\r\n")}, noControl: load,
				check: mustHave("canary"),
			},
			{Case: order.Case{Name: "a header of a gigabyte", Op: "header", Host: "ok.test", Port: 80, Count: 1024}, noControl: load, check: atMost("sent ", 64<<20)},
			{Case: order.Case{Name: "a header of a gigabyte, on rung's own host rule", Op: "header", Host: "api.test", Port: 80, Count: 1024}, noControl: load, check: atMost("sent ", 64<<20)},
			{pass: true, Case: order.Case{Name: "passes: after all that", Op: "stream", Host: "ok.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n")}},
		},
	}
}

func mustHave(part string) func(hostile, order.Result) string {
	return func(_ hostile, r order.Result) string {
		if !strings.Contains(r.Got, part) {
			return fmt.Sprintf("no %s in %q (%s)", part, r.Got, r.Err)
		}
		return ""
	}
}
