// Package address judges IP addresses: may a sandbox's traffic go there? It is asked about the very address that is
// dialled next, after all resolution, so that a name cannot move between the judgement and the dial.
//
// What is public is what remains when everything with a purpose of its own is taken away: the IANA IPv4 and IPv6
// Special-Purpose Address Registries (RFC 6890, RFC 8190), multicast (RFC 5771, RFC 4291), all IPv6 space outside
// 2000::/3, which is the only global unicast space that IANA hands out (RFC 4291 section 2.4), and the addresses of cloud
// metadata services, one of which is in public space. The registries' few globally reachable anycast services (AS112, AMT,
// PCP, TURN) are refused as well: their nearest instance may be inside the host's own network.
//
// An IPv4 address hidden in an IPv6 one is judged too (see Hidden). Documentation ranges (RFC 5737, RFC 3849, RFC 9637) are
// not refused: some networks answer with them, and nothing of value is there.
//
// Limit: a network-specific NAT64 prefix (RFC 6052 section 2.2) is some operator's ordinary public space, so that nobody
// can tell from an address alone that it hides a private one.
package address

import (
	"fmt"
	"net/netip"
)

// Class is what an address is for.
type Class string

// The classes. Only Public and Documentation may be dialled without a rule that names the address itself.
const (
	Public        Class = "public"
	Documentation Class = "documentation"
	Loopback      Class = "loopback"
	Private       Class = "private" // RFC 1918
	CGNAT         Class = "cgnat"   // RFC 6598
	LinkLocal     Class = "link-local"
	Metadata      Class = "metadata" // of a cloud: credentials for whoever asks
	Multicast     Class = "multicast"
	Reserved      Class = "reserved"
	UniqueLocal   Class = "unique-local" // RFC 4193
	SiteLocal     Class = "site-local"   // RFC 3879
	Unspecified   Class = "unspecified"
	Embedded      Class = "embedded" // an IPv4 address, itself public, hidden in an IPv6 one that leads through a tunnel
	Zoned         Class = "zoned"    // with a zone id (RFC 4007): means something on one host only
	Invalid       Class = "invalid"  // no address at all
)

// finding is a class with its source and the block of addresses that share both.
type finding struct {
	class Class
	why   string // "a private address (RFC 1918)"
	block netip.Prefix
}

// Classify returns the class of an address. A v4-mapped address and one of the well-known NAT64 prefix are what the hidden
// address is; other IPv6 addresses that hide an IPv4 one have its class when that is a forbidden one, otherwise Embedded.
func Classify(a netip.Addr) Class { return find(a).class }

// Forbidden says why an address must not be dialled, or "" and false for a public one.
func Forbidden(a netip.Addr) (why string, no bool) {
	f := find(a)
	if !f.class.forbidden() {
		return "", false
	}
	if !a.IsValid() {
		return f.why, true
	}
	return fmt.Sprintf("%s is %s", a, f.why), true
}

// Named reports whether a rule written as that prefix means this address. A prefix means every public address in it, but
// one that is forbidden only when the whole prefix lies within the block that is forbidden for the same reason: 10.1.0.0/16
// names private addresses, 0.0.0.0/0 does not. A metadata address is a block of its own, so that only a /32 or /128 names it.
func Named(p netip.Prefix, a netip.Addr) bool {
	if !p.IsValid() || a.Zone() != "" {
		return false
	}
	if a.Is4In6() {
		a = a.Unmap()
	}
	if !p.Contains(a) {
		return false
	}
	f := find(a)
	return !f.class.forbidden() || (f.block.Bits() <= p.Bits() && f.block.Overlaps(p))
}

func (c Class) forbidden() bool { return c != Public && c != Documentation }

// find judges an address with all that it hides.
func find(a netip.Addr) finding {
	switch {
	case !a.IsValid():
		return finding{class: Invalid, why: "no address"}
	case a.Zone() != "":
		return finding{class: Zoned, why: "an address with a zone id (RFC 4007)", block: exactly(a.WithZone(""))}
	case a.Is4In6():
		return find(a.Unmap())
	case a.Is4():
		return lookup(a, v4)
	}
	f := lookup(a, v6)
	if f.class == Metadata {
		return f
	}
	h, hides := Hidden(a)
	if !hides {
		return f
	}
	inner := find(h.Addr)
	switch {
	case inner.class.forbidden():
		return finding{inner.class, fmt.Sprintf("%s with %s in it, %s", h.Form, h.Addr, inner.why), exactly(a)}
	case h.Form == NAT64:
		return inner
	case f.class.forbidden() && f.class != Embedded: // such as an ISATAP address in link-local space
		return f
	}
	return finding{Embedded, fmt.Sprintf("%s with %s in it", h.Form, h.Addr), blockOf(a, h.Form)}
}

// lookup finds the first block of the table with the address. In IPv4 what no block has is public, in IPv6 only what is
// global unicast.
func lookup(a netip.Addr, table []finding) finding {
	if metadata[a] {
		return finding{Metadata, "a cloud's metadata address", exactly(a)}
	}
	for _, f := range table {
		if f.block.Contains(a) {
			return f
		}
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return finding{Reserved, "outside the global unicast space (RFC 4291)", exactly(a)}
	}
	return finding{class: Public, why: "a public address", block: exactly(a)}
}

func exactly(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
