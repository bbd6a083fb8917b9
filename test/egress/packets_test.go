//go:build linux

package egress

import (
	"fmt"

	"github.com/rung-dev/rung/test/egress/order"
)

// packets is the batch of everything that is not a TCP connection: one packet each, most by sockets that take CAP_NET_RAW,
// which rung container gives as its runtime does by default.
func packets() *batch {
	b := &batch{name: "packets", policy: policy(), allowed: allowed()}
	udp := func(name, host string, port int) {
		b.cases = append(b.cases, hostile{Case: order.Case{Name: name, Op: "udp", Host: host, Port: port, Send: []byte("{t}")}, want: "udp: UDP does not leave", byProxy: "-"})
	}
	udp("pain-11 UDP to an allowed host's address", "203.0.113.10", 80)
	udp("pain-22 QUIC to an allowed host", "203.0.113.10", 443)
	udp("UDP to an address of a CIDR rule", "198.51.100.70", 8443)
	udp("NET-06 UDP, v6", "2001:db8::10", 9999)
	udp("NET-01 UDP to a metadata service", "169.254.169.254", 80)
	udp("NET-08 UDP to the gate", "192.0.0.1", 8099)
	udp("NTP", "203.0.113.66", 123)
	udp("DHCP server", "192.0.0.1", 67)
	b.cases = append(b.cases,
		hostile{Case: order.Case{Name: "mDNS", Op: "udp", Host: "224.0.0.251", Port: 5353, Send: []byte("{t}")}, want: "link: multicast or broadcast", byProxy: "-"},
		hostile{Case: order.Case{Name: "mDNS, v6", Op: "udp", Host: "ff02::fb", Port: 5353, Send: []byte("{t}")}, want: "link: multicast or broadcast", byProxy: "-", noControl: "needs an interface's scope"},
		hostile{Case: order.Case{Name: "broadcast", Op: "udp", Host: "255.255.255.255", Port: 9999, Send: []byte("{t}")}, want: "", byProxy: "-", noControl: "the loopback interface has no broadcast"},
		hostile{Case: order.Case{Name: "NET-06 ICMP echo", Op: "icmp", Host: "203.0.113.10"}, raw: true, want: "icmp: ICMP does not leave"},
		hostile{Case: order.Case{Name: "ICMP echo, v6", Op: "icmp", Host: "2001:db8::10"}, raw: true, want: "icmp: ICMP does not leave"},
		hostile{Case: order.Case{Name: "ICMP echo to a metadata service", Op: "icmp", Host: "169.254.169.254"}, raw: true, want: "icmp: ICMP does not leave"},
	)
	for name, proto := range map[string]int{"IP in IP": 4, "IPv6 in IP": 41, "GRE": 47, "ESP": 50, "SCTP": 132, "UDP-Lite": 136, "OSPF": 89, "a protocol of no name": 253} {
		b.cases = append(b.cases, hostile{Case: order.Case{Name: "raw socket: " + name, Op: "ip", Host: "203.0.113.10", Proto: proto}, raw: true, want: "link: an IP protocol other than"})
	}
	b.cases = append(b.cases, frameCases()...)
	return b
}

func frameCases() []hostile {
	var list []hostile
	add := func(name, want string, f order.Frame) {
		list = append(list, hostile{Case: order.Case{Name: "frame: " + name, Op: "frame", Frame: &f}, raw: true, want: want})
	}
	const peer = "02:72:75:6e:67:02" // every sandbox's
	add("from another Ethernet address", "link: from an Ethernet address", order.Frame{SrcMAC: "02:00:00:00:00:99", Dst: "203.0.113.10", Port: 9})
	add("from the gate's Ethernet address", "link: from an Ethernet address", order.Frame{SrcMAC: "02:72:75:6e:67:01", Dst: "203.0.113.10", Port: 9})
	add("pain-48 to a peer's Ethernet address", "link: to an Ethernet address", order.Frame{DstMAC: peer, Dst: "192.0.0.2", Port: 7777})
	add("to everybody", "link: multicast or broadcast", order.Frame{DstMAC: "ff:ff:ff:ff:ff:ff", Dst: "255.255.255.255", Port: 9})
	add("from another IP address", "link: from an address that is not", order.Frame{Src: "10.1.1.1", Dst: "203.0.113.10", Port: 9})
	add("from the gate's IP address", "link: from an address that is not", order.Frame{Src: "192.0.0.1", Dst: "203.0.113.10", Port: 9})
	add("from another v6 address", "link: from an address that is not", order.Frame{Src: "2001:db8::99", Dst: "2001:db8::10", Port: 9})
	add("NET-21 SYN from another IP address", "link: from an address that is not", order.Frame{Kind: "syn", Src: "203.0.113.1", Dst: "203.0.113.10", Port: 80})
	add("SYN with data to an address nothing names", "tcp: no rule names that address", order.Frame{Kind: "syn", Dst: "203.0.113.72", Port: 80})
	add("SYN to loopback on the wire", "tcp: no host can have this address", order.Frame{Kind: "syn", Dst: "127.0.0.1", Port: 8099})
	add("SYN to loopback on the wire, v6", "tcp: no host can have this address", order.Frame{Kind: "syn", Dst: "::1", Port: 8099})
	add("SYN to a mapped address on the wire", "tcp: no host can have this address", order.Frame{Kind: "syn", Dst: "::ffff:169.254.169.254", Port: 80})
	add("SYN to a link-local address", "tcp: ", order.Frame{Kind: "syn", Dst: "fe80::5", Port: 80})
	add("UDP to loopback on the wire", "udp: UDP does not leave", order.Frame{Dst: "127.0.0.1", Port: 53})
	add("ARP: claims the gate's address", "link: an ARP message", order.Frame{Kind: "arp", Src: "192.0.0.1", Dst: "192.0.0.2"})
	add("ARP: claims a public address", "link: an ARP message", order.Frame{Kind: "arp", Src: "203.0.113.10", Dst: "192.0.0.1"})
	add("ARP: asks for a peer", "link: an ARP message", order.Frame{Kind: "arp-ask", Dst: "192.0.0.3"})
	add("fragment", "link: a fragment", order.Frame{Kind: "fragment", Dst: "203.0.113.10", Port: 9})
	add("fragment, v6", "link: extension headers", order.Frame{Kind: "fragment", Dst: "2001:db8::10", Port: 9})
	add("source route", "link: with options", order.Frame{Kind: "options", Dst: "203.0.113.10", Port: 9})
	for _, kind := range []string{"hop-by-hop", "routing", "destination"} {
		add(fmt.Sprintf("pain-19 %s extension header", kind), "link: extension headers", order.Frame{Kind: kind, Dst: "2001:db8::10", Port: 9})
	}
	add("a length that is none", "link: contradict", order.Frame{Kind: "broken", Dst: "203.0.113.10", Port: 9})
	add("runt", "link: too short", order.Frame{Kind: "runt", Dst: "203.0.113.10"})
	add("VLAN tag", "link: VLAN", order.Frame{Kind: "vlan", Dst: "203.0.113.10", Port: 9})
	add("EtherType of no name", "link: neither IPv4", order.Frame{Type: 0x88b5, Dst: "203.0.113.10", Port: 9})
	add("LLDP", "link: neither IPv4", order.Frame{Type: 0x88cc, Dst: "203.0.113.10", Port: 9})
	add("SCTP by frame, v6", "link: an IP protocol other than", order.Frame{Proto: 132, Dst: "2001:db8::10"})
	list = append(list, hostile{
		Case: order.Case{Name: "frame: a neighbour advertisement for the gate", Op: "frame", Frame: &order.Frame{Kind: "advert", Src: "fd72:756e:6700::1", Dst: "ff02::1"}},
		raw:  true, want: "link: a neighbour discovery message", noControl: "has no room for a token",
	})
	return list
}

// changes are what a sandbox does to its own network where it may: the gate's end stays as it is.
func changes() *batch {
	b := &batch{name: "changes", policy: policy(), allowed: allowed(), serial: true}
	const ours = "would change the network that the stand-ins are on"
	add := func(name string, f order.Frame, host string) {
		b.cases = append(b.cases, hostile{
			Case: order.Case{Name: name, Op: "net", Host: host, Port: 80, Frame: &f}, noControl: ours, only: linked(), why: "rung process has no interface to change",
		})
	}
	add("NET-21 a stolen address", order.Frame{Kind: "address", Src: "203.0.113.10"}, "203.0.113.73")
	add("a stolen v6 address", order.Frame{Kind: "address", Src: "2001:db8::10"}, "2001:db8::73")
	add("the gate's own address", order.Frame{Kind: "address", Src: "192.0.0.1"}, "203.0.113.73")
	add("pain-27 a route of its own", order.Frame{Kind: "route"}, "169.254.169.254")
	add("another Ethernet address", order.Frame{Kind: "mac", SrcMAC: "02:00:00:00:00:98"}, "203.0.113.73")
	add("a promiscuous interface", order.Frame{Kind: "flags"}, "203.0.113.73")
	b.cases = append(b.cases, hostile{
		Case: order.Case{Name: "passes: after all that", Op: "stream", Host: "ok.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n")},
		pass: true,
	})
	return b
}
