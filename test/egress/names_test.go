//go:build linux

package egress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/test/egress/order"
)

// linked are the rungs whose sandboxes have an interface.
func linked() []rung.Rung { return []rung.Rung{rung.Container, rung.Hardened, rung.GVisor} }

const noInterface = "rung process has no interface: nothing answers at any resolver's address"

func ask(name string, d order.DNS, want string) hostile {
	return hostile{Case: order.Case{Name: name, Op: "dns", DNS: &d}, want: want, byProxy: "-"}
}

// named is the batch of addresses, names and TLS under one policy.
func named() *batch {
	b := &batch{name: "named", policy: policy(), allowed: allowed()}
	b.cases = append(b.cases, passing()...)
	b.cases = append(b.cases, addressCases()...)
	b.cases = append(b.cases, misledCases()...)
	b.cases = append(b.cases, dnsCases()...)
	b.cases = append(b.cases, spelledCases()...)
	b.cases = append(b.cases, tlsCases()...)
	b.cases = append(b.cases, rebinding())
	b.after = upstreamQuestions
	return b
}

// rebinding resolves a name that is public at first and private when asked again: what is dialled is what was judged.
func rebinding() hostile {
	return hostile{
		Case:    order.Case{Name: "NET-17 rebinding", Op: "repeat", Host: "rebind.test", Port: 80, Count: 8, Send: []byte("GET /rebound HTTP/1.1\r\nHost: rebind.test\r\n\r\n")},
		reaches: []string{"tcp 10.1.2.4:80"},
	}
}

// upstreamQuestions: what the host's resolver is asked is an allowed name in its normal form and an address's type.
func upstreamQuestions(t *testing.T, _ rung.Rung, out outcome) {
	t.Helper()
	for q := range out.names {
		name, kind, _ := strings.Cut(q, " ")
		if name != strings.ToLower(name) {
			t.Errorf("crossed: the resolver was asked with the sandbox's own spelling: %s", q)
		}
		if kind != "A" && kind != "AAAA" {
			t.Errorf("crossed: the resolver was asked for %s", q)
		}
		if strings.HasSuffix(name, "denied.test.") {
			t.Errorf("crossed: the resolver was asked for a name that nothing allows: %s", q)
		}
	}
}

// dnsCases use names and questions themselves to carry something out.
func dnsCases() []hostile {
	elsewhere := func(name, server string, tcp bool, want string) hostile {
		c := ask(name, order.DNS{Name: "{t}.denied.test", Server: server, TCP: tcp}, want)
		if tcp {
			c.reaches = []string{"tcp " + server}
		} else {
			c.reaches = []string{"udp " + server}
		}
		return c
	}
	list := []hostile{
		ask("pain-01 name as data", order.DNS{Name: "{t}.denied.test"}, "dns: denied.test"),
		ask("pain-01 name as data, AAAA", order.DNS{Name: "{t}.denied.test", Type: dns.TypeAAAA}, "dns: denied.test"),
		ask("pain-30 DNS over TCP", order.DNS{Name: "{t}.denied.test", TCP: true}, "dns: denied.test"),
		elsewhere("NET-04 another resolver", "203.0.113.53:53", false, "udp: UDP does not leave"),
		elsewhere("NET-04 another resolver, TCP", "203.0.113.53:53", true, "tcp: no rule names that address"),
		elsewhere("NET-04 another resolver, v6", "[2001:db8::53]:53", false, "udp: UDP does not leave"),
		elsewhere("NET-04 the host's resolver on a private address", "10.0.0.53:53", false, "udp: UDP does not leave"),
		elsewhere("another resolver by an allowed address", "203.0.113.10:53", false, "udp: UDP does not leave"),
		{
			Case: order.Case{Name: "pain-12 from a server's own port", Op: "bound", DNS: &order.DNS{Name: "{t}.denied.test", Server: "203.0.113.54:53"}},
			want: "udp: UDP does not leave", byProxy: "-",
		},
		ask("data under a wildcard: a label too long", order.DNS{Name: "{t}" + strings.Repeat("a", 30) + ".wild.test"}, "dns: a label of more than"),
		ask("data under a wildcard: labels too many", order.DNS{Name: strings.Repeat("{t}.", 8) + "wild.test"}, "dns: characters below"),
		ask("data under a wildcard: entropy", order.DNS{Name: "{t}q7zk3vw9pfj2mhy4bd.wild.test"}, "dns: looks like data"),
		ask("EDNS option (client subnet)", order.DNS{Name: "ok.test", Option: "{t}", Code: 8}, ""),
		ask("EDNS option (cookie)", order.DNS{Name: "ok.test", Option: "{t}", Code: 10}, ""),
		ask("EDNS option of no kind", order.DNS{Name: "alt.test", Option: "{t}", Code: 65001}, ""),
		ask("two questions in one message", order.DNS{Name: "ok.test", Second: "{t}.denied.test"}, ""),
		ask("a record beside the question", order.DNS{Name: "ok.test", Extra: "{t}"}, ""),
		ask("class CHAOS", order.DNS{Name: "{t}.wild.test", Class: dns.ClassCHAOS}, "dns: class other than IN"),
		ask("an update", order.DNS{Name: "{t}.wild.test", Opcode: dns.OpcodeUpdate}, ""),
		ask("an answer for a question", order.DNS{Name: "{t}.wild.test", Reply: true}, ""),
		ask("a name with a NUL", order.DNS{Name: "{t}\x00.wild.test", Bare: true}, "dns: bytes that no host name has"),
		ask("a name with a dot inside a label", order.DNS{Name: "{t}.wild.test", Bare: true}, "dns: bytes that no host name has"),
		ask("a name with spaces", order.DNS{Name: "{t} .wild.test", Bare: true}, "dns: no host name has"),
		ask("a name in UTF-8 (homograph)", order.DNS{Name: "{t}.\u043ek.test", Bare: true}, "dns: no host name has"),
		ask("an IDN homograph in ASCII", order.DNS{Name: "{t}.xn--k-0tb.test"}, "dns: xn--k-0tb.test"),
	}
	for name, kind := range map[string]uint16{"TXT": dns.TypeTXT, "NULL": dns.TypeNULL, "ANY": dns.TypeANY} {
		list = append(list, ask("pain-30 tunnel by "+name, order.DNS{Name: "{t}.wild.test", Type: kind}, "dns: records of type "+name))
	}
	for name, kind := range map[string]uint16{"SRV": dns.TypeSRV, "HTTPS": dns.TypeHTTPS, "MX": dns.TypeMX, "CNAME": dns.TypeCNAME, "PTR": dns.TypePTR} {
		list = append(list, ask("records of type "+name, order.DNS{Name: "{t}.wild.test", Type: kind}, ""))
	}
	for _, name := range []string{"metadata.google.internal", "metadata.tencentyun.com", "localhost", "host.docker.internal", "wpad"} {
		list = append(list, ask("NET-01 NET-08 name "+name, order.DNS{Name: "{t}." + name}, "dns: "+name))
	}
	for i := range list {
		if list[i].Op == "dns" && list[i].DNS.Server == "" {
			list[i].only, list[i].why = linked(), noInterface
		}
		switch list[i].DNS.Opcode {
		case dns.OpcodeUpdate:
			list[i].noControl = "" // the resolver is asked by the packet itself
		}
	}
	return list
}

// spelledCases name addresses in every way that some parser takes for one.
func spelledCases() []hostile {
	var list []hostile
	for _, s := range spellings() {
		list = append(list, hostile{
			Case:   order.Case{Name: fmt.Sprintf("NET-15 Host %q on an allowed connection", s), Op: "stream", Host: "api.test", Port: 80, Send: []byte("GET /v1/{t} HTTP/1.1\r\nHost: " + s + "\r\n\r\n")},
			want:   "http: ",
			forbid: "Host: " + s,
		})
	}
	for _, s := range []string{"2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.169.254", "127.1", "0"} {
		list = append(list, hostile{
			Case: order.Case{Name: fmt.Sprintf("NET-15 lookup of %q", s), Op: "dns", DNS: &order.DNS{Name: s}}, want: "dns: ", only: linked(), why: noInterface,
			noControl: "has no room for a token: that no such name reaches the resolver is looked at beside",
		})
	}
	return list
}

// spellings of 169.254.169.254, 127.0.0.1 and a host that nothing names.
func spellings() []string {
	return []string{
		"169.254.169.254", "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "0251.0376.0251.0376", "169.254.43518", "169.16689662",
		"[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1%25eth0]", "[::]", "0", "127.1", "017700000001",
		"169.254.169.254.", "denied.test", "denied.test.", "DENIED.test", "api.test@denied.test", "api.test:80@denied.test", "denied.test#api.test",
		"denied.test/api.test", "denied.test\\api.test", "api.test.denied.test", "api.test:8080", "api.test:080", "api.test:80:80", "api.test:65616",
		"api.test,denied.test", "api.test denied.test", "\u0430pi.test", "api\u3002test", "\uff41pi.test", "xn--pi-6kc.test", "*.test", "api.test%00.denied.test",
	}
}
