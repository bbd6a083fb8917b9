package stack

import (
	"net/netip"
	"sync"

	"github.com/rung-dev/rung"
)

// Housekeeping is the reason of the one denial that is no attempt at anything: what the kernel of a guest with a network
// stack of its own sends by itself when its interface comes up. A record may leave it out.
const Housekeeping = "a host's own housekeeping, which has no use on this link: multicast membership, router solicitation, duplicate address detection"

// cause is why the filter dropped a frame. Each is one denial with a count.
type cause uint8

const (
	causeNone cause = iota
	causeRunt
	causeJumbo
	causeSourceMAC
	causeDestinationMAC
	causeVLAN
	causeEtherType
	causeARP
	causeNDP
	causeMalformed
	causeSource
	causeOptions
	causeExtension
	causeFragment
	causeMulticast
	causeHousekeeping
	causeICMP
	causeProtocol
	causeDestination
	causeHalfOpen
	causeConnections
	causeLookups
	causes // how many there are
)

// denial is what the cause is called in the record.
func (c cause) denial() rung.NetDenial {
	d := rung.NetDenial{Layer: "link"}
	switch c {
	case causeRunt:
		d.Reason = "a frame too short for what it says it is"
	case causeJumbo:
		d.Reason = "a frame longer than the link's MTU"
	case causeSourceMAC:
		d.Reason = "a frame from an Ethernet address that is not the sandbox's"
	case causeDestinationMAC:
		d.Reason = "a frame to an Ethernet address that is not the gate's"
	case causeVLAN:
		d.Reason = "a frame with a VLAN tag"
	case causeEtherType:
		d.Reason = "a frame that is neither IPv4, IPv6 nor ARP"
	case causeARP:
		d.Reason = "an ARP message that is not the sandbox's question for the gate"
	case causeNDP:
		d.Reason = "a neighbour discovery message that is not the sandbox's question for the gate"
	case causeMalformed:
		d.Reason = "a packet whose headers contradict each other"
	case causeSource:
		d.Reason = "a packet from an address that is not the sandbox's"
	case causeOptions:
		d.Reason = "an IPv4 packet with options"
	case causeExtension:
		d.Reason = "an IPv6 packet with extension headers"
	case causeFragment:
		d.Reason = "a fragment of an IPv4 packet"
	case causeMulticast:
		d.Reason = "multicast or broadcast: the link has one neighbour only"
	case causeHousekeeping:
		d.Reason = Housekeeping
	case causeICMP:
		d.Layer, d.Reason = "icmp", "an ICMP message other than an echo request"
	case causeProtocol:
		d.Reason = "an IP protocol other than TCP, UDP and ICMP"
	case causeHalfOpen:
		d.Layer, d.Reason = "tcp", "more connections being opened at once than a sandbox may"
	case causeConnections:
		d.Layer, d.Reason = "tcp", "more open connections than the gate holds for one sandbox"
	case causeLookups:
		d.Layer, d.Reason = "dns", "more questions at once than the gate answers for one sandbox"
	}
	return d
}

// destinationDenial is causeDestination's denial: it names the address.
func destinationDenial(p *packet) rung.NetDenial {
	return rung.NetDenial{
		Layer: "tcp", Address: p.dst.String(), Port: int(p.port),
		Reason: "no host can have this address",
	}
}

func udpDenial(dst netip.Addr, port uint16) rung.NetDenial {
	d := rung.NetDenial{Layer: "udp", Address: dst.String(), Port: int(port), Reason: "UDP does not leave a sandbox"}
	switch port {
	case dnsPort:
		d.Hint = "names are answered by the gate only, at the address in /etc/resolv.conf"
	case 443:
		d.Hint = "HTTP/3 clients fall back to TCP, which rules can allow"
	}
	return d
}

func echoDenial(dst netip.Addr) rung.NetDenial {
	return rung.NetDenial{Layer: "icmp", Address: dst.String(), Reason: "ICMP does not leave a sandbox"}
}

// tally counts causes and reports each at its first time, then at 10, 100, 1,000, … and when flushed: a flood of frames
// costs one addition each.
type tally struct {
	tell func(rung.NetDenial)
	mu   sync.Mutex
	seen [causes]struct{ n, told int64 }
}

func (t *tally) count(c cause) {
	t.mu.Lock()
	s := &t.seen[c]
	s.n++
	due := s.told == 0 || s.n >= 10*s.told
	t.mu.Unlock()
	if due {
		t.report(c)
	}
}

func (t *tally) flush() {
	for c := range causes {
		t.report(c)
	}
}

func (t *tally) report(c cause) {
	t.mu.Lock()
	s := &t.seen[c]
	d := c.denial()
	d.Count = s.n - s.told
	s.told = s.n
	t.mu.Unlock()
	if d.Count > 0 {
		t.tell(d)
	}
}
