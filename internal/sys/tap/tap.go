// Package tap makes the guest's end of a sandbox's only network link, and names the addresses of both ends. It is linked
// into the programs that a start waits for, so it speaks rtnetlink itself and links no network stack; the other end is
// internal/gate/stack.
//
// The link is the same for every sandbox: two hosts, fixed addresses, fixed neighbours. Nothing is discovered on it, so
// nothing can be claimed on it: no ARP or NDP is needed, no duplicate address detection runs, no router is solicited and
// no link-local address exists, so that an idle interface sends no frame at all.
//
// The IPv4 addresses are of 192.0.0.0/29, which RFC 7335 reserves for exactly such a link between a host and its
// translator. They are never forwarded (RFC 6890), are in no private network and hold no metadata service, and the gate's
// judge of addresses refuses them as reserved, so that a rule cannot mean them by accident; 10/8, 172.16/12, 192.168/16 and
// 100.64/10 are what somebody's CIDR rule may name, 169.254/16 holds metadata addresses, and 198.18/15 is handed out by
// some VPN clients as stand-in addresses. The IPv6 addresses are unique local ones (RFC 4193) whose global identifier
// spells "rung".
package tap

import "net/netip"

// The caps and sizes of the link.
const (
	// MTU of both ends. Frames as large as an Ethernet device takes make throughput: the price of a frame is nearly the
	// same whatever its size. 65,520 leaves room for the Ethernet header below 64 KiB, which is the largest frame that
	// gVisor's own sandbox reads.
	MTU = 65520
	// QueueLen is how many frames the kernel holds for a gate that does not read: 8 MiB at most.
	QueueLen = 128
	// HeaderLen is the Ethernet header.
	HeaderLen = 14
)

// Prefix lengths of the link's networks: each holds the two ends and nothing else of use.
const (
	PrefixLenV4 = 30
	PrefixLenV6 = 126
)

// First bytes by which whoever made a sandbox's end tells the gate what it is (see internal/gate/control), each with one descriptor as right.
const (
	LinkTAP      = 'T' // a TAP of the sandbox's network namespace
	LinkListener = 'L' // a TCP socket that listens on the loopback address of the sandbox's network namespace: a proxy's
	LinkFrames   = 'F' // a stream of Ethernet frames, each after its length in four bytes, big-endian
)

// Name is what the interface is called inside.
const Name = "eth0"

// The ends. They are functions because package variables could be changed.
func GatewayV4() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 0, 1}) }

// GuestV4 is the sandbox's IPv4 address.
func GuestV4() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 0, 2}) }

// GatewayV6 is the gate's IPv6 address.
func GatewayV6() netip.Addr { return v6(1) }

// GuestV6 is the sandbox's IPv6 address.
func GuestV6() netip.Addr { return v6(2) }

// GatewayMAC is the gate's Ethernet address, locally administered.
func GatewayMAC() [6]byte { return [6]byte{0x02, 'r', 'u', 'n', 'g', 1} }

// GuestMAC is the sandbox's Ethernet address.
func GuestMAC() [6]byte { return [6]byte{0x02, 'r', 'u', 'n', 'g', 2} }

// GuestLinkLocal is the IPv6 link-local address that a guest's kernel may form from GuestMAC (RFC 4291, appendix A).
// Our own configuration never makes it; the kernel of a virtual machine may.
func GuestLinkLocal() netip.Addr {
	m := GuestMAC()
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

func v6(host byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 'r', 'u', 'n', 'g', 0, 15: host})
}
