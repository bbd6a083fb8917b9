package address

import (
	"encoding/binary"
	"net/netip"
)

// Form is a way of hiding an IPv4 address in an IPv6 one, as a phrase for a sentence.
type Form string

// The forms.
const (
	Mapped     Form = "a v4-mapped address (RFC 4291)"
	Compatible Form = "a v4-compatible address (RFC 4291)"
	Translated Form = "a v4-translated address (RFC 2765)"
	NAT64      Form = "a NAT64 address (RFC 6052)"
	LocalNAT64 Form = "a local-use NAT64 address (RFC 8215)"
	SixToFour  Form = "a 6to4 address (RFC 3056)"
	Teredo     Form = "a Teredo address (RFC 4380)"
	ISATAP     Form = "an ISATAP address (RFC 5214)"
)

// HiddenAddr is an IPv4 address found in an IPv6 one.
type HiddenAddr struct {
	Form Form
	Addr netip.Addr
}

// Hidden finds the IPv4 address in an IPv6 one. Where a form leaves several places for it (local-use NAT64, Teredo with its
// server and its client), a forbidden one is returned before others.
func Hidden(a netip.Addr) (HiddenAddr, bool) {
	if !a.Is6() {
		return HiddenAddr{}, false
	}
	b := a.As16()
	hi, mid := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint32(b[8:12])
	switch {
	case hi == 0 && mid == 0xffff:
		return HiddenAddr{Mapped, at(b, 12)}, true
	case hi == 0 && mid == 0 && b[12] != 0: // :: and ::1 are themselves, and 0.0.0.0/8 is no destination
		return HiddenAddr{Compatible, at(b, 12)}, true
	case hi == 0 && mid == 0:
		return HiddenAddr{}, false
	case hi == 0 && mid == 0xffff_0000:
		return HiddenAddr{Translated, at(b, 12)}, true
	case hi == 0x0064_ff9b<<32 && mid == 0:
		return HiddenAddr{NAT64, at(b, 12)}, true
	case hi>>16 == 0x0064_ff9b_0001:
		return HiddenAddr{LocalNAT64, worst(inLocalNAT64(b)...)}, true
	case hi>>48 == 0x2002:
		return HiddenAddr{SixToFour, at(b, 2)}, true
	case hi>>32 == 0x2001_0000:
		// The client's address is stored with all bits flipped (RFC 4380 section 4).
		client := netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		return HiddenAddr{Teredo, worst(client, at(b, 4))}, true
	case mid&^0x0200_0000 == 0x0000_5efe:
		return HiddenAddr{ISATAP, at(b, 12)}, true // the bit is "universal", RFC 5214 section 6.1
	}
	return HiddenAddr{}, false
}

// inLocalNAT64 reads every place where a prefix inside 64:ff9b:1::/48 can put the address. Its length is the operator's
// choice of /48, /56, /64 or /96, and bits 64 to 71 are skipped (RFC 6052 section 2.2).
func inLocalNAT64(b [16]byte) []netip.Addr {
	return []netip.Addr{
		at(b, 12),
		netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
		netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}),
		netip.AddrFrom4([4]byte{b[9], b[10], b[11], b[12]}),
	}
}

// worst returns a metadata address if there is one, else one that is forbidden, else the first. Zero places of a shorter
// form read as 0.0.0.0/8 and say nothing.
func worst(list ...netip.Addr) netip.Addr {
	found := list[0]
	for _, a := range list {
		switch c := find(a).class; {
		case c == Metadata:
			return a
		case c.forbidden() && a.As4()[0] != 0 && !find(found).class.forbidden(), found.As4()[0] == 0:
			found = a
		}
	}
	return found
}

func at(b [16]byte, i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }

// blockOf is the block that a rule must lie in to name an address of that form.
func blockOf(a netip.Addr, form Form) netip.Prefix {
	if form == ISATAP {
		return exactly(a)
	}
	for _, f := range v6 {
		if f.class == Embedded && f.block.Contains(a) {
			return f.block
		}
	}
	return exactly(a)
}
