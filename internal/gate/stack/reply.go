package stack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rung-dev/rung/internal/sys/tap"
)

// hopLimit of packets that the gate makes itself.
const hopLimit = 64

// ethernet is the header of every frame to the guest.
func (e *ends) ethernet(v6 bool) []byte {
	kind := header.IPv4ProtocolNumber
	if v6 {
		kind = header.IPv6ProtocolNumber
	}
	return e.ethernetOf(kind)
}

func (e *ends) ethernetOf(kind tcpip.NetworkProtocolNumber) []byte {
	h := make([]byte, tap.HeaderLen)
	header.Ethernet(h).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(e.gatewayMAC[:]), DstAddr: tcpip.LinkAddress(e.guestMAC[:]), Type: kind,
	})
	return h
}

// arpReply says that the gate has the gate's address.
func (e *ends) arpReply() []byte {
	f := append(e.ethernetOf(header.ARPProtocolNumber), make([]byte, header.ARPSize)...)
	a := header.ARP(f[tap.HeaderLen:])
	a.SetIPv4OverEthernet()
	a.SetOp(header.ARPReply)
	copy(a.HardwareAddressSender(), e.gatewayMAC[:])
	copy(a.ProtocolAddressSender(), e.gateway4.AsSlice())
	copy(a.HardwareAddressTarget(), e.guestMAC[:])
	copy(a.ProtocolAddressTarget(), e.guest4.AsSlice())
	return f
}

// neighbourAdvert says the same for IPv6 (RFC 4861, section 4.4), to whom asked.
func (e *ends) neighbourAdvert(to netip.Addr) []byte {
	m := make([]byte, header.ICMPv6NeighborAdvertMinimumSize+8)
	m[0] = byte(header.ICMPv6NeighborAdvert)
	na := header.NDPNeighborAdvert(m[header.ICMPv6HeaderSize:])
	na.SetSolicitedFlag(true)
	na.SetOverrideFlag(true)
	na.SetRouterFlag(true)
	na.SetTargetAddress(tcpip.AddrFromSlice(e.gateway6.AsSlice()))
	option := m[header.ICMPv6NeighborAdvertMinimumSize:]
	option[0], option[1] = 2, 1 // target link-layer address, in units of eight bytes
	copy(option[2:], e.gatewayMAC[:])
	return e.datagram(byte(header.ICMPv6ProtocolNumber), e.gateway6, to, header.NDPHopLimit, m, 2)
}

// The refusals, as ICMPv4 and ICMPv6 spell them (RFC 792, RFC 1812, RFC 4443).
type refusal struct{ code4, code6 byte }

var (
	portUnreachable = refusal{code4: 3, code6: 4}
	prohibited      = refusal{code4: 13, code6: 1}
)

// unreachable refuses the packet: its header and as much of it as fits the smallest MTU come back in the message.
func (e *ends) unreachable(p *packet, why refusal) []byte {
	if p.v6 {
		m := make([]byte, 8, header.IPv6MinimumMTU)
		m[0], m[1] = byte(header.ICMPv6DstUnreachable), why.code6
		m = append(m, p.ip[:min(len(p.ip), header.IPv6MinimumMTU-header.IPv6MinimumSize-8)]...)
		return e.datagram(byte(header.ICMPv6ProtocolNumber), e.gateway6, p.src, hopLimit, m, 2)
	}
	m := make([]byte, 8, header.IPv4MinimumProcessableDatagramSize)
	m[0], m[1] = byte(header.ICMPv4DstUnreachable), why.code4
	m = append(m, p.ip[:min(len(p.ip), header.IPv4MinimumProcessableDatagramSize-header.IPv4MinimumSize-8)]...)
	return e.datagram(byte(header.ICMPv4ProtocolNumber), e.gateway4, p.src, hopLimit, m, 2)
}

// udpReply answers the datagram p with the data.
func (e *ends) udpReply(p *packet, data []byte) []byte {
	m := make([]byte, header.UDPMinimumSize+len(data))
	q := header.UDP(p.payload())
	header.UDP(m).Encode(&header.UDPFields{SrcPort: q.DestinationPort(), DstPort: q.SourcePort(), Length: uint16(len(m))})
	copy(m[header.UDPMinimumSize:], data)
	return e.datagram(byte(header.UDPProtocolNumber), p.dst, p.src, hopLimit, m, 6)
}

// datagram frames a transport message and sets its checksum, which is at sum.
func (e *ends) datagram(protocol byte, src, dst netip.Addr, hops byte, m []byte, sum int) []byte {
	initial := uint16(0)
	if protocol != byte(header.ICMPv4ProtocolNumber) {
		initial = pseudo(protocol, src, dst, len(m))
	}
	x := ^checksum.Checksum(m, initial)
	if x == 0 && protocol == byte(header.UDPProtocolNumber) {
		x = 0xffff // zero would mean none (RFC 768)
	}
	m[sum], m[sum+1] = byte(x>>8), byte(x)

	if dst.Is6() {
		f := make([]byte, tap.HeaderLen+header.IPv6MinimumSize, tap.HeaderLen+header.IPv6MinimumSize+len(m))
		copy(f, e.ethernet(true))
		header.IPv6(f[tap.HeaderLen:]).Encode(&header.IPv6Fields{
			PayloadLength: uint16(len(m)), TransportProtocol: tcpip.TransportProtocolNumber(protocol), HopLimit: hops,
			SrcAddr: tcpip.AddrFromSlice(src.AsSlice()), DstAddr: tcpip.AddrFromSlice(dst.AsSlice()),
		})
		return append(f, m...)
	}
	f := make([]byte, tap.HeaderLen+header.IPv4MinimumSize, tap.HeaderLen+header.IPv4MinimumSize+len(m))
	copy(f, e.ethernet(false))
	ip := header.IPv4(f[tap.HeaderLen:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(header.IPv4MinimumSize + len(m)), TTL: hops, Protocol: protocol, Flags: header.IPv4FlagDontFragment,
		SrcAddr: tcpip.AddrFromSlice(src.AsSlice()), DstAddr: tcpip.AddrFromSlice(dst.AsSlice()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	return append(f, m...)
}
