package address

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

var table = []struct {
	addr string
	want Class
}{
	// NET-01, over both families and hidden.
	{"169.254.169.254", Metadata},
	{"fd00:ec2::254", Metadata},
	{"169.254.170.2", Metadata},
	{"169.254.170.23", Metadata},
	{"fd00:ec2::23", Metadata},
	{"100.100.100.200", Metadata},
	{"168.63.129.16", Metadata},
	{"169.254.0.23", Metadata},
	{"100.96.0.96", Metadata},
	{"100.80.80.80", Metadata},
	{"192.0.0.192", Metadata},
	{"169.254.169.253", Metadata},
	{"fd20:ce::254", Metadata},
	{"fd00:c1::a9fe:a9fe", Metadata},
	{"169.254.42.42", Metadata},
	{"fe80::a9fe:a9fe", Metadata},
	{"::ffff:169.254.169.254", Metadata},
	{"::169.254.169.254", Metadata},
	{"::ffff:0:169.254.169.254", Metadata},
	{"64:ff9b::169.254.169.254", Metadata},
	{"64:ff9b::168.63.129.16", Metadata},
	{"64:ff9b:1::169.254.169.254", Metadata},
	{"64:ff9b:1:a9fe:a9:fe00::", Metadata},
	{"64:ff9b:1:ffa9:fe:a9fe::", Metadata},
	{"64:ff9b:1:ffff:a9:fea9:fe00:0", Metadata},
	{"2002:a9fe:a9fe::1", Metadata},
	{"2001:0:808:808:0:ffff:5601:5601", Metadata}, // Teredo client, flipped
	{"2001:0:a9fe:a9fe:0:0:f7f7:f7f7", Metadata},  // Teredo server
	{"2606:4700::5efe:169.254.169.254", Metadata},
	{"2606:4700::200:5efe:169.254.169.254", Metadata},

	{"1.1.1.1", Public},
	{"8.8.8.8", Public},
	{"::ffff:8.8.8.8", Public},
	{"64:ff9b::8.8.8.8", Public},
	{"2606:4700:4700::1111", Public},
	{"2a00:1450:4001::200e", Public},

	{"192.0.2.1", Documentation},
	{"198.51.100.255", Documentation},
	{"203.0.113.7", Documentation},
	{"2001:db8::1", Documentation},
	{"3fff:fff:ffff::1", Documentation},
	{"64:ff9b::192.0.2.1", Documentation},
	{"::ffff:192.0.2.1", Documentation},

	{"127.0.0.1", Loopback},
	{"127.255.255.254", Loopback},
	{"::1", Loopback},
	{"::ffff:127.0.0.1", Loopback},
	{"64:ff9b::127.0.0.1", Loopback},

	{"10.0.0.0", Private},
	{"10.255.255.255", Private},
	{"172.16.0.1", Private},
	{"172.31.255.255", Private},
	{"192.168.0.1", Private},
	{"::ffff:10.0.0.5", Private},
	{"::10.0.0.5", Private},
	{"::ffff:0:10.0.0.5", Private},
	{"64:ff9b::10.0.0.5", Private},
	{"64:ff9b:1::10.0.0.5", Private},
	{"2002:a00:5::", Private},
	{"2002:c0a8:101::1", Private},
	{"2001:0:808:808:0:ffff:f5ff:fffa", Private},
	{"2606:4700::5efe:10.0.0.5", Private},

	{"100.64.0.0", CGNAT},
	{"100.127.255.255", CGNAT},
	{"64:ff9b::100.64.0.1", CGNAT},

	{"169.254.1.1", LinkLocal},
	{"fe80::1", LinkLocal},
	{"febf::1", LinkLocal},
	{"fe80::5efe:8.8.8.8", LinkLocal},

	{"224.0.0.1", Multicast},
	{"239.255.255.255", Multicast},
	{"233.252.0.1", Multicast},
	{"ff02::1", Multicast},
	{"ff0e::1", Multicast},
	{"64:ff9b::224.0.0.1", Multicast},

	{"0.0.0.1", Reserved},
	{"0.255.255.255", Reserved},
	{"192.0.0.1", Reserved},
	{"192.0.0.9", Reserved},
	{"192.0.0.170", Reserved},
	{"192.31.196.1", Reserved},
	{"192.52.193.1", Reserved},
	{"192.88.99.1", Reserved},
	{"192.175.48.1", Reserved},
	{"198.18.0.0", Reserved},
	{"198.19.255.255", Reserved},
	{"240.0.0.1", Reserved},
	{"255.255.255.254", Reserved},
	{"255.255.255.255", Reserved},
	{"100::1", Reserved},
	{"100:0:0:1::1", Reserved},
	{"2001:1::1", Reserved},
	{"2001:2::1", Reserved},
	{"2001:4:112::1", Reserved},
	{"2001:10::1", Reserved},
	{"2001:20::1", Reserved},
	{"2620:4f:8000::1", Reserved},
	{"3ffe::1", Reserved},
	{"5f00::1", Reserved},
	{"4000::1", Reserved},
	{"::1:0:0:0", Reserved},
	{"1::1", Reserved},

	{"fc00::1", UniqueLocal},
	{"fdff::1", UniqueLocal},
	{"fec0::1", SiteLocal},
	{"feff::1", SiteLocal},

	{"0.0.0.0", Unspecified},
	{"::", Unspecified},
	{"::ffff:0.0.0.0", Unspecified},

	{"::8.8.8.8", Embedded},
	{"::0.0.0.2", Embedded},
	{"::ffff:0:8.8.8.8", Embedded},
	{"64:ff9b:1::8.8.8.8", Embedded},
	{"2002:808:808::1", Embedded},
	{"2001:0:808:808:0:ffff:f7f7:f7f7", Embedded},
	{"2606:4700::5efe:8.8.8.8", Embedded},

	{"fe80::1%eth0", Zoned},
	{"2606:4700::1%eth0", Zoned},
	{"::ffff:8.8.8.8%1", Zoned},
}

func TestClassify(t *testing.T) {
	for _, c := range table {
		a := netip.MustParseAddr(c.addr)
		if got := Classify(a); got != c.want {
			t.Errorf("Classify(%s) = %s, want %s", c.addr, got, c.want)
		}
		why, no := Forbidden(a)
		if allowed := c.want == Public || c.want == Documentation; no == allowed {
			t.Errorf("Forbidden(%s) = %q, %v", c.addr, why, no)
		}
		if no != (why != "") || no && !strings.HasPrefix(why, a.String()+" is ") {
			t.Errorf("Forbidden(%s) says %q", c.addr, why)
		}
	}
	if why, no := Forbidden(netip.Addr{}); !no || why == "" {
		t.Errorf("the zero address: %q, %v", why, no)
	}
}

func TestReasonNamesTheHiddenAddress(t *testing.T) {
	got, _ := Forbidden(netip.MustParseAddr("64:ff9b::a00:5"))
	want := "64:ff9b::a00:5 is a NAT64 address (RFC 6052) with 10.0.0.5 in it, a private address (RFC 1918)"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The edges of each block: the first and last address are in it, their neighbours are judged by themselves.
func TestEdges(t *testing.T) {
	for _, table := range [][]finding{v4, v6} {
		for i, f := range table {
			for _, a := range []netip.Addr{f.block.Addr(), last(f.block)} {
				if got := lookup(a, table[i:]); got.class != f.class && got.class != Metadata {
					t.Errorf("%s of %s is %s, want %s", a, f.block, got.class, f.class)
				}
			}
			if f.block.Addr() != f.block.Masked().Addr() {
				t.Errorf("%s has host bits", f.block)
			}
		}
	}
	for _, s := range []string{
		"9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
		"192.167.255.255", "192.169.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "1.0.0.0", "192.0.1.0", "168.63.129.15", "168.63.129.17", "2001:200::", "2003::",
		"2001:db7:ffff::", "2001:db9::", "3fff:1000::", "3ffd::",
	} {
		if got := Classify(netip.MustParseAddr(s)); got != Public {
			t.Errorf("Classify(%s) = %s, want public", s, got)
		}
	}
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestNamed(t *testing.T) {
	for _, c := range []struct {
		prefix, addr string
		want         bool
	}{
		{"10.0.0.5/32", "10.0.0.5", true},
		{"10.0.0.0/8", "10.0.0.5", true},
		{"10.1.0.0/16", "10.1.2.3", true},
		{"10.1.0.0/16", "10.2.2.3", false},
		{"10.0.0.0/7", "10.0.0.5", false}, // not wholly private
		{"0.0.0.0/0", "10.0.0.5", false},
		{"0.0.0.0/0", "8.8.8.8", true},
		{"0.0.0.0/0", "192.0.2.1", true},
		{"0.0.0.0/0", "127.0.0.1", false},
		{"0.0.0.0/0", "168.63.129.16", false},
		{"168.63.129.16/32", "168.63.129.16", true},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.1.1", true},
		{"169.254.169.254/32", "169.254.169.254", true},
		{"100.64.0.0/10", "100.100.100.200", false},
		{"127.0.0.0/8", "127.0.0.1", true},
		{"10.0.0.0/8", "::ffff:10.0.0.5", true},
		{"10.0.0.0/8", "64:ff9b::10.0.0.5", false},
		{"64:ff9b::/96", "64:ff9b::10.0.0.5", false},
		{"64:ff9b::10.0.0.5/128", "64:ff9b::10.0.0.5", true},
		{"64:ff9b::/96", "64:ff9b::8.8.8.8", true},
		{"2002::/16", "2002:808:808::1", true},
		{"2002::/16", "2002:a00:5::1", false},
		{"::/0", "fd00::1", false},
		{"fd00::/8", "fd00::1", true},
		{"fd00::/8", "fd00:ec2::254", false},
		{"::/0", "2606:4700::1", true},
		{"::/0", "8.8.8.8", false},
		{"fe80::/10", "fe80::1%eth0", false},
	} {
		if got := Named(netip.MustParsePrefix(c.prefix), netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("Named(%s, %s) = %v, want %v", c.prefix, c.addr, got, c.want)
		}
	}
	if Named(netip.Prefix{}, netip.MustParseAddr("8.8.8.8")) {
		t.Error("the zero prefix names something")
	}
}

// FuzzForbidden: hiding an address never makes it more welcome, and the two forms that lead to it directly are judged the
// same.
func FuzzForbidden(f *testing.F) {
	for _, c := range table {
		a := netip.MustParseAddr(c.addr).WithZone("").As16()
		f.Add(a[:])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) != 16 {
			return
		}
		a := netip.AddrFrom16([16]byte(raw))
		if why, no := Forbidden(a); no != (why != "") {
			t.Fatalf("Forbidden(%s) = %q, %v", a, why, no)
		}
		four := netip.AddrFrom4([4]byte(raw[12:]))
		_, no := Forbidden(four)
		for form, hidden := range forms(four.As4(), binary.BigEndian.Uint16(raw)) {
			_, got := Forbidden(hidden)
			if same := form == "mapped" || form == "nat64"; got != no && (same || no) {
				t.Fatalf("Forbidden(%s) is %v, but %s as %s is %v", four, no, hidden, form, got)
			}
			if inner, ok := Hidden(hidden); !ok && no && four.As4()[0] != 0 {
				t.Fatalf("%s (%s) hides nothing: %v", hidden, form, inner)
			}
		}
		for bits := 0; bits <= 32; bits++ {
			if p, _ := four.Prefix(bits); no && Named(p, four) && !within(p, Classify(four)) {
				t.Fatalf("%s names %s", p, four)
			}
		}
	})
}

// within reports whether both ends of the prefix have the class, or are of a block inside it.
func within(p netip.Prefix, c Class) bool {
	ok := func(a netip.Addr) bool {
		got := Classify(a)
		return got == c || got == Metadata || got == Unspecified // the first address of 0.0.0.0/8
	}
	return ok(p.Masked().Addr()) && ok(last(p.Masked()))
}

func forms(v [4]byte, x uint16) map[string]netip.Addr {
	put := func(prefix string, i int, v [4]byte) netip.Addr {
		b := netip.MustParseAddr(prefix).As16()
		copy(b[i:], v[:])
		return netip.AddrFrom16(b)
	}
	local48 := netip.MustParseAddr("64:ff9b:1::").As16()
	local48[6], local48[7], local48[9], local48[10] = v[0], v[1], v[2], v[3]
	isatap := netip.MustParseAddr("2606:4700::5efe:0:0").As16()
	binary.BigEndian.PutUint16(isatap[6:], x)
	copy(isatap[12:], v[:])
	return map[string]netip.Addr{
		"mapped":     put("::ffff:0:0", 12, v),
		"nat64":      put("64:ff9b::", 12, v),
		"compatible": put("::", 12, v),
		"translated": put("::ffff:0:0:0", 12, v),
		"local 96":   put("64:ff9b:1::", 12, v),
		"local 48":   netip.AddrFrom16(local48),
		"6to4":       put("2002::", 2, v),
		"server":     put("2001::", 4, v),
		"client":     put("2001::", 12, [4]byte{^v[0], ^v[1], ^v[2], ^v[3]}),
		"isatap":     netip.AddrFrom16(isatap),
	}
}

func BenchmarkForbidden(b *testing.B) {
	for _, s := range []string{"8.8.8.8", "2606:4700:4700::1111", "10.0.0.5"} {
		a := netip.MustParseAddr(s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Forbidden(a)
			}
		})
	}
}
