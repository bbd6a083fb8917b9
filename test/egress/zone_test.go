//go:build linux

package egress

import (
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// zone answers for every name there is, well and badly, and remembers what was asked.
type zone struct {
	mu      sync.Mutex
	asked   map[string]int // names as they were spelled, with their type
	rebinds int
}

// hosts are the names with fixed addresses; what is below a name has the same.
var hosts = map[string][]string{
	"ok.test": {"203.0.113.10", "2001:db8::10"}, "okv6.test": {"2001:db8::16"}, "alt.test": {"203.0.113.11"},
	"mixed.test": {"10.1.2.3", "203.0.113.12"},
	"cdn.test":   {"203.0.113.20"}, "shared.test": {"203.0.113.20"},
	"api.test": {"203.0.113.30"}, "ws.test": {"203.0.113.31"}, "tls.test": {"203.0.113.32"},
	"raw.test": {"203.0.113.40"}, "wild.test": {"203.0.113.50"}, "small.test": {"203.0.113.51"},
	"denied.test": {"203.0.113.66"}, "via.test": {"203.0.113.67"}, "unpinned.test": {"203.0.113.89"},
	// What an allowed name must not lead to.
	"private.test": {"10.1.2.3"}, "private172.test": {"172.16.9.9"}, "private192.test": {"192.168.9.9"},
	"cgnat.test": {"100.64.1.1"}, "meta.test": {"169.254.169.254"}, "azure.test": {"168.63.129.16"},
	"alibaba.test": {"100.100.100.200"}, "ecs.test": {"169.254.170.2"}, "metav6.test": {"fd00:ec2::254"},
	"loop.test": {"127.0.0.1"}, "loopv6.test": {"::1"}, "zero.test": {"0.0.0.0"}, "zerov6.test": {"::"},
	"mapped.test": {"::ffff:10.1.2.3"}, "nat64.test": {"64:ff9b::a9fe:a9fe"}, "sixtofour.test": {"2002:a9fe:a9fe::1"},
	"teredo.test": {"2001:0:a9fe:a9fe:0:0:f7f7:f7f7"}, "compat.test": {"::10.1.2.3"}, "ula.test": {"fd00::5"},
	"linklocal.test": {"169.254.7.7"}, "linklocalv6.test": {"fe80::5"}, "multicast.test": {"224.0.0.251"},
	"broadcast.test": {"255.255.255.255"}, "reserved.test": {"240.0.0.1"}, "gateway.test": {"192.0.0.1"},
	"peer.test": {"192.0.0.2"}, "metadata.google.internal": {"169.254.169.254"}, "metadata.tencentyun.com": {"169.254.0.23"},
	"localhost": {"127.0.0.1"}, "host.docker.internal": {"192.168.65.254"}, "dns.google": {"203.0.113.68"},
	"xn--k-0tb.test": {"203.0.113.66"},
}

func addresses(name string) (list []netip.Addr) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	for rest := name; rest != ""; {
		if all, ok := hosts[rest]; ok {
			for _, a := range all {
				list = append(list, netip.MustParseAddr(a))
			}
			return list
		}
		_, rest, _ = strings.Cut(rest, ".")
	}
	return []netip.Addr{netip.MustParseAddr("203.0.113.66")} // every name exists
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	if len(q.Question) == 0 {
		return
	}
	question := q.Question[0]
	z.mu.Lock()
	z.asked[question.Name+" "+dns.TypeToString[question.Qtype]]++
	z.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	switch name := strings.ToLower(question.Name); name {
	case "slow.test.":
		return // never
	case "garbage.test.":
		_, _ = w.Write([]byte{byte(q.Id >> 8), byte(q.Id), 0xff, 0xff, 0xff})
		return
	case "lie.test.": // an answer about somebody else
		m.Answer = records("other.test.", question.Qtype, addresses("ok.test"), 60)
	case "huge.test.":
		var list []netip.Addr
		for n := range 1000 {
			list = append(list, netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}))
		}
		m.Answer = records(name, question.Qtype, list, 60)
	case "cname.test.":
		m.Answer = append(cnames(name, "via.test."), records("via.test.", question.Qtype, addresses("via.test"), 60)...)
	case "cname-private.test.":
		m.Answer = append(cnames(name, "private.test."), records("private.test.", question.Qtype, addresses("private.test"), 60)...)
	case "cname-loop.test.":
		m.Answer = cnames(name, "b.cname-loop.test.", name)
	case "rebind.test.": // public first, then not
		list := []netip.Addr{netip.MustParseAddr("203.0.113.13")}
		if question.Qtype == dns.TypeA {
			z.mu.Lock()
			if z.rebinds++; z.rebinds > 1 {
				list[0] = netip.MustParseAddr("10.1.2.4")
			}
			z.mu.Unlock()
		}
		m.Answer = records(name, question.Qtype, list, 0)
	default:
		m.Answer = records(question.Name, question.Qtype, addresses(name), 60)
	}
	if w.RemoteAddr().Network() == "udp" {
		m.Truncate(512)
	}
	_ = w.WriteMsg(m) // whoever left needs none
}

func cnames(chain ...string) (list []dns.RR) {
	for i := range len(chain) - 1 {
		list = append(list, &dns.CNAME{Hdr: dns.RR_Header{Name: chain[i], Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: chain[i+1]})
	}
	return list
}

func records(name string, kind uint16, addrs []netip.Addr, ttl uint32) (list []dns.RR) {
	for _, a := range addrs {
		h := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}
		switch {
		case kind == dns.TypeA && a.Is4():
			list = append(list, &dns.A{Hdr: h, A: net.IP(a.AsSlice())})
		case kind == dns.TypeAAAA && a.Is6():
			h.Rrtype = dns.TypeAAAA
			list = append(list, &dns.AAAA{Hdr: h, AAAA: net.IP(a.AsSlice())})
		}
	}
	if kind == dns.TypeTXT {
		list = append(list, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}, Txt: []string{"canary"}})
	}
	return list
}

// reset forgets what was asked; the next rebinding begins anew.
func (z *zone) reset() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked, z.rebinds = map[string]int{}, 0
}

func (z *zone) names() map[string]int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return maps.Clone(z.asked)
}
