package address

import "net/netip"

// globalUnicast is what IANA hands out of IPv6 (RFC 4291 section 2.4, IANA IPv6 address space registry).
var globalUnicast = netip.MustParsePrefix("2000::/3")

func block(prefix string, c Class, why string) finding {
	return finding{class: c, why: why, block: netip.MustParsePrefix(prefix)}
}

// v4 is the IANA IPv4 Special-Purpose Address Registry and multicast; the more specific block comes first.
var v4 = []finding{
	block("0.0.0.0/32", Unspecified, "the unspecified address (RFC 1122)"),
	block("0.0.0.0/8", Reserved, "reserved for this network (RFC 791)"),
	block("10.0.0.0/8", Private, "a private address (RFC 1918)"),
	block("100.64.0.0/10", CGNAT, "a shared address behind carrier-grade NAT (RFC 6598)"),
	block("127.0.0.0/8", Loopback, "a loopback address (RFC 1122)"),
	block("169.254.0.0/16", LinkLocal, "a link-local address (RFC 3927)"),
	block("172.16.0.0/12", Private, "a private address (RFC 1918)"),
	block("192.0.0.0/24", Reserved, "reserved for protocol assignments (RFC 6890)"),
	block("192.0.2.0/24", Documentation, "a documentation address (RFC 5737)"),
	block("192.31.196.0/24", Reserved, "reserved for AS112 (RFC 7535)"),
	block("192.52.193.0/24", Reserved, "reserved for multicast tunnelling (RFC 7450)"),
	block("192.88.99.0/24", Reserved, "the retired 6to4 relay anycast (RFC 7526)"),
	block("192.168.0.0/16", Private, "a private address (RFC 1918)"),
	block("192.175.48.0/24", Reserved, "reserved for AS112 (RFC 7534)"),
	block("198.18.0.0/15", Reserved, "reserved for benchmarks (RFC 2544)"),
	block("198.51.100.0/24", Documentation, "a documentation address (RFC 5737)"),
	block("203.0.113.0/24", Documentation, "a documentation address (RFC 5737)"),
	block("224.0.0.0/4", Multicast, "a multicast address (RFC 5771)"),
	block("255.255.255.255/32", Reserved, "the broadcast address (RFC 919)"),
	block("240.0.0.0/4", Reserved, "reserved for future use (RFC 1112)"),
}

// v6 is the IANA IPv6 Special-Purpose Address Registry, multicast and what was given back. Blocks that exist to hold IPv4
// addresses are Embedded here; what is hidden in them decides further (see find).
var v6 = []finding{
	block("::/128", Unspecified, "the unspecified address (RFC 4291)"),
	block("::1/128", Loopback, "the loopback address (RFC 4291)"),
	block("::/96", Embedded, "a v4-compatible address (RFC 4291)"),
	block("::ffff:0:0:0/96", Embedded, "a v4-translated address (RFC 2765)"),
	block("64:ff9b::/96", Embedded, "a NAT64 address (RFC 6052)"),
	block("64:ff9b:1::/48", Embedded, "a local-use NAT64 address (RFC 8215)"),
	block("100::/64", Reserved, "in the discard-only block (RFC 6666)"),
	block("100:0:0:1::/64", Reserved, "in the dummy prefix (RFC 9780)"),
	block("2001::/32", Embedded, "a Teredo address (RFC 4380)"),
	block("2001::/23", Reserved, "reserved for protocol assignments (RFC 2928)"),
	block("2001:db8::/32", Documentation, "a documentation address (RFC 3849)"),
	block("2002::/16", Embedded, "a 6to4 address (RFC 3056)"),
	block("2620:4f:8000::/48", Reserved, "reserved for AS112 (RFC 7534)"),
	block("3ffe::/16", Reserved, "in the retired 6bone (RFC 3701)"),
	block("3fff::/20", Documentation, "a documentation address (RFC 9637)"),
	block("5f00::/16", Reserved, "a segment routing identifier (RFC 9602)"),
	block("fc00::/7", UniqueLocal, "a unique-local address (RFC 4193)"),
	block("fe80::/10", LinkLocal, "a link-local address (RFC 4291)"),
	block("fec0::/10", SiteLocal, "a retired site-local address (RFC 3879)"),
	block("ff00::/8", Multicast, "a multicast address (RFC 4291)"),
}

// metadata are the addresses where clouds hand credentials or host control to whoever asks. Most are in forbidden blocks
// anyway; 168.63.129.16 is in public space. Each is a block of its own (see Named).
var metadata = addresses(
	"169.254.169.254", "fd00:ec2::254", // most clouds, and EC2 over IPv6
	"169.254.170.2", "169.254.170.23", "fd00:ec2::23", // container and pod credentials on AWS
	"169.254.169.253", "fd00:ec2::253", // the resolver of a VPC, which knows private names
	"fd20:ce::254",    // Google Cloud over IPv6
	"100.100.100.200", // Alibaba Cloud
	"168.63.129.16",   // Azure's wire server
	"169.254.0.23",    // Tencent Cloud
	"100.96.0.96", "100.80.80.80",
	"192.0.0.192", "fd00:c1::a9fe:a9fe", // Oracle Cloud
	"169.254.42.42", "fd00:42::42", // Scaleway
	"fe80::a9fe:a9fe", // OpenStack over IPv6
)

func addresses(list ...string) map[netip.Addr]bool {
	m := make(map[netip.Addr]bool, len(list))
	for _, s := range list {
		m[netip.MustParseAddr(s)] = true
	}
	return m
}
