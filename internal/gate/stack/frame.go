package stack

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rung-dev/rung/internal/sys/tap"
)

// maxFrame is the largest frame that is one: a longer one is refused as a jumbo.
const maxFrame = tap.HeaderLen + tap.MTU

// verdict is what happens to a frame.
type verdict uint8

const (
	drop verdict = iota // and count its cause
	toTCP
	toEcho // an ICMP echo request to the gate
	toDNS  // a datagram to the gate's port 53
	toARP
	toNDP
	noUDP  // a datagram to anything else: answered port unreachable
	noICMP // an echo request to anything else: answered prohibited
)

// packet is one IP packet of the guest, checked: its source is the guest, it is whole, and ip ends where it ends.
type packet struct {
	v6       bool
	protocol byte
	head     int // bytes of IP header; no options and no extension headers
	ip       []byte
	src, dst netip.Addr
	port     uint16 // destination port of TCP and UDP
}

func (p *packet) payload() []byte { return p.ip[p.head:] }

// ends are the link's addresses in the forms that the filter compares.
type ends struct {
	guestMAC, gatewayMAC             [6]byte
	guest4, gateway4                 netip.Addr
	guest6, gateway6, guestLinkLocal netip.Addr
}

func theEnds() ends {
	return ends{
		guestMAC: tap.GuestMAC(), gatewayMAC: tap.GatewayMAC(),
		guest4: tap.GuestV4(), gateway4: tap.GatewayV4(),
		guest6: tap.GuestV6(), gateway6: tap.GatewayV6(), guestLinkLocal: tap.GuestLinkLocal(),
	}
}

func (e *ends) isGateway(a netip.Addr) bool { return a == e.gateway4 || a == e.gateway6 }

// judge is the whole filter between the guest's frames and everything else. What it does not recognise is dropped.
func (e *ends) judge(frame []byte) (packet, verdict, cause) {
	switch {
	case len(frame) < tap.HeaderLen:
		return packet{}, drop, causeRunt
	case len(frame) > maxFrame:
		return packet{}, drop, causeJumbo
	case [6]byte(frame[6:12]) != e.guestMAC:
		return packet{}, drop, causeSourceMAC
	}
	body := frame[tap.HeaderLen:]
	unicast := [6]byte(frame[:6]) == e.gatewayMAC
	multicast := frame[0]&1 != 0
	if !unicast && !multicast {
		return packet{}, drop, causeDestinationMAC
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case uint16(header.ARPProtocolNumber):
		return e.judgeARP(body)
	case uint16(header.IPv4ProtocolNumber):
		p, v, c := e.judgeV4(body)
		if multicast && v != drop {
			return p, drop, causeMulticast
		}
		return p, v, c
	case uint16(header.IPv6ProtocolNumber):
		p, v, c := e.judgeV6(body)
		if multicast && v != toNDP && v != drop {
			return p, drop, causeMulticast
		}
		return p, v, c
	case 0x8100, 0x88a8, 0x9100: // IEEE 802.1Q, 802.1ad, and what preceded that
		return packet{}, drop, causeVLAN
	default:
		return packet{}, drop, causeEtherType
	}
}

// judgeARP lets one question through: who has the gate's address (RFC 826).
func (e *ends) judgeARP(body []byte) (packet, verdict, cause) {
	const size = 28
	if len(body) < size {
		return packet{}, drop, causeRunt
	}
	a := header.ARP(body[:size])
	ok := a.IsValid() && a.Op() == header.ARPRequest &&
		[6]byte(a.HardwareAddressSender()) == e.guestMAC &&
		netip.AddrFrom4([4]byte(a.ProtocolAddressSender())) == e.guest4 &&
		netip.AddrFrom4([4]byte(a.ProtocolAddressTarget())) == e.gateway4
	if !ok {
		return packet{}, drop, causeARP
	}
	return packet{}, toARP, causeNone
}

func (e *ends) judgeV4(body []byte) (packet, verdict, cause) {
	if len(body) < header.IPv4MinimumSize {
		return packet{}, drop, causeRunt
	}
	h := header.IPv4(body)
	head, total := int(h.HeaderLength()), int(h.TotalLength())
	if header.IPVersion(body) != 4 || head < header.IPv4MinimumSize || total < head || total > len(body) {
		return packet{}, drop, causeMalformed
	}
	p := packet{head: head, protocol: h.Protocol(), ip: body[:total:total]}
	p.src, p.dst = netip.AddrFrom4([4]byte(body[12:16])), netip.AddrFrom4([4]byte(body[16:20]))
	switch {
	case p.src != e.guest4:
		return p, drop, causeSource
	case head != header.IPv4MinimumSize:
		return p, drop, causeOptions
	case checksum.Checksum(body[:head], 0) != 0xffff:
		return p, drop, causeMalformed
	case h.More() || h.FragmentOffset() != 0:
		return p, drop, causeFragment
	case p.protocol == byte(header.IGMPProtocolNumber):
		return p, drop, causeHousekeeping
	case p.dst.IsMulticast():
		return p, drop, causeMulticast
	case p.protocol == byte(header.ICMPv4ProtocolNumber):
		return e.judgeEcho(p, byte(header.ICMPv4Echo))
	}
	return e.judgeTransport(p)
}

func (e *ends) judgeV6(body []byte) (packet, verdict, cause) {
	if len(body) < header.IPv6MinimumSize {
		return packet{}, drop, causeRunt
	}
	h := header.IPv6(body)
	total := header.IPv6MinimumSize + int(h.PayloadLength())
	// A payload length of zero would be a jumbogram (RFC 2675), which this link does not carry, or nothing at all.
	if header.IPVersion(body) != 6 || h.PayloadLength() == 0 || total > len(body) {
		return packet{}, drop, causeMalformed
	}
	p := packet{v6: true, head: header.IPv6MinimumSize, protocol: h.NextHeader(), ip: body[:total:total]}
	p.src, p.dst = netip.AddrFrom16([16]byte(body[8:24])), netip.AddrFrom16([16]byte(body[24:40]))
	switch p.protocol {
	case byte(header.ICMPv6ProtocolNumber):
		if v, c, ok := e.judgeNDP(p); ok {
			return p, v, c
		}
	case 0: // hop-by-hop options: what a host sends by itself are multicast listener reports (RFC 3810)
		if p.dst.IsLinkLocalMulticast() && (p.src == e.guest6 || p.src == e.guestLinkLocal || p.src.IsUnspecified()) {
			return p, drop, causeHousekeeping
		}
		return p, drop, causeExtension
	case 43, 44, 50, 51, 60, 135, 139, 140, 253, 254: // routing, fragment, ESP, AH, options, mobility, HIP, shim6, tests
		return p, drop, causeExtension
	}
	switch {
	case p.src != e.guest6:
		return p, drop, causeSource
	case p.dst.IsMulticast():
		return p, drop, causeMulticast
	case p.protocol == byte(header.ICMPv6ProtocolNumber):
		return e.judgeEcho(p, byte(header.ICMPv6EchoRequest))
	}
	return e.judgeTransport(p)
}

// judgeNDP knows the messages of RFC 4861. One question is let through: who has the gate's address.
func (e *ends) judgeNDP(p packet) (verdict, cause, bool) {
	m := p.payload()
	if len(m) < header.ICMPv6MinimumSize {
		return drop, causeMalformed, true
	}
	switch kind := header.ICMPv6(m).Type(); kind {
	case header.ICMPv6NeighborSolicit:
		fromGuest := p.src == e.guest6 || p.src == e.guestLinkLocal
		ours := len(m) >= header.ICMPv6NeighborSolicitMinimumSize && netip.AddrFrom16([16]byte(m[8:24])) == e.gateway6
		if fromGuest && ours && p.ip[7] == header.NDPHopLimit && m[1] == 0 && e.sumOK(&p) {
			return toNDP, causeNone, true
		}
		// Whether its own addresses are free (RFC 4862, section 5.4.2).
		if p.src.IsUnspecified() && len(m) >= header.ICMPv6NeighborSolicitMinimumSize {
			if a := netip.AddrFrom16([16]byte(m[8:24])); a == e.guest6 || a == e.guestLinkLocal {
				return drop, causeHousekeeping, true
			}
		}
		return drop, causeNDP, true
	case header.ICMPv6NeighborAdvert, header.ICMPv6RouterAdvert, header.ICMPv6RedirectMsg:
		return drop, causeNDP, true
	case header.ICMPv6RouterSolicit, header.ICMPv6MulticastListenerReport, header.ICMPv6MulticastListenerDone, header.ICMPv6MulticastListenerV2Report:
		return drop, causeHousekeeping, true
	case header.ICMPv6MulticastListenerQuery:
		return drop, causeMulticast, true
	}
	return drop, causeNone, false
}

// judgeEcho: an echo request to the gate is answered, to anybody else refused; other messages have no use here.
func (e *ends) judgeEcho(p packet, request byte) (packet, verdict, cause) {
	m := p.payload()
	switch {
	case len(m) < header.ICMPv4MinimumSize:
		return p, drop, causeMalformed
	case m[0] != request || m[1] != 0:
		return p, drop, causeICMP
	case e.isGateway(p.dst):
		return p, toEcho, causeNone
	}
	return p, noICMP, causeNone
}

func (e *ends) judgeTransport(p packet) (packet, verdict, cause) {
	m := p.payload()
	switch tcpip.TransportProtocolNumber(p.protocol) {
	case header.TCPProtocolNumber:
		if len(m) < header.TCPMinimumSize {
			return p, drop, causeMalformed
		}
		p.port = binary.BigEndian.Uint16(m[2:])
		if unreachable(p.dst) {
			return p, drop, causeDestination
		}
		return p, toTCP, causeNone
	case header.UDPProtocolNumber:
		if len(m) < header.UDPMinimumSize || int(binary.BigEndian.Uint16(m[4:])) != len(m) || !e.sumOK(&p) {
			return p, drop, causeMalformed
		}
		p.port = binary.BigEndian.Uint16(m[2:])
		if p.port == dnsPort && e.isGateway(p.dst) {
			return p, toDNS, causeNone
		}
		return p, noUDP, causeNone
	}
	return p, drop, causeProtocol
}

// unreachable: no host can be at such an address on the wire, and some of them mean another address to some parser
// (RFC 6890; ::ffff:0:0/96 is never on a wire).
func unreachable(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Is4In6() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// sumOK verifies the checksum of UDP and ICMPv6. Zero means none in UDP over IPv4, and is refused over IPv6 (RFC 8200).
func (e *ends) sumOK(p *packet) bool {
	m := p.payload()
	if p.protocol == byte(header.UDPProtocolNumber) && m[6]|m[7] == 0 {
		return !p.v6
	}
	return checksum.Checksum(m, pseudo(p.protocol, p.src, p.dst, len(m))) == 0xffff
}

func pseudo(protocol byte, src, dst netip.Addr, n int) uint16 {
	return header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(protocol), tcpip.AddrFromSlice(src.AsSlice()),
		tcpip.AddrFromSlice(dst.AsSlice()), uint16(n))
}
