package rule

import (
	"net/netip"
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	label63, label64 := strings.Repeat("a", 63), strings.Repeat("a", 64)
	long253 := strings.Repeat("a.", 126) + "a"
	for in, want := range map[string]string{ // "" is refused
		"example.com": "example.com", "EXAMPLE.Com": "example.com", "example.com.": "example.com", "intranet": "intranet",
		"_dmarc.example.com": "_dmarc.example.com", "a_b.example.com": "a_b.example.com", "1password.com": "1password.com",
		"r3---sn-apo3qvuoxuxbt-j5pe.example.com": "r3---sn-apo3qvuoxuxbt-j5pe.example.com", "3com": "3com",
		"bücher.example": "xn--bcher-kva.example", "BÜCHER.example": "xn--bcher-kva.example", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"XN--BCHER-KVA.EXAMPLE.": "xn--bcher-kva.example", "bücher。example": "xn--bcher-kva.example", "faß.de": "xn--fa-hia.de",
		"ＥＸＡＭＰＬＥ.com": "example.com", label63 + ".com": label63 + ".com", long253: long253, long253 + ".": long253,
		"0x.example": "0x.example", "127.0.0.1.example": "127.0.0.1.example", "beef.cafe": "beef.cafe",

		"": "", ".": "", "..": "", "example.com..": "", ".example.com": "", "a..b": "", label64 + ".com": "", long253 + "b": "",
		"user@example.com": "", "example.com:443": "", "example.com/x": "", "example.com\x00.evil.org": "", "exa mple.com": "",
		"example.com\n": "", "example%2ecom": "", "example.com?": "", "example.com#": "", "exam\\ple.com": "", "*.example.com": "", "*": "",
		"-a.example": "", "a-.example": "", "exam\u00adple.com": "", "exam\u200bple.com": "", "exam\ufe0fple.com": "", "\u202emoc.example": "",
		"xn--a.example": "", "xn--.example": "", "xn--example-.com": "", "xn--bcher-kvb.example": "", "\xff.example": "", "a\x7f.com": "",
		"127.0.0.1": "", "127.1": "", "0177.0.0.1": "", "0x7f.1": "", "0x7f000001": "", "2130706433": "", "127.0.0.1.": "", "0x": "", "a.0X7F": "",
		"１２７.０.０.１": "", "①.②.③.④": "", "::1": "", "[::1]": "", "fe80::1%eth0": "", "1.2.3.4.5": "", "example.99": "", "ａ@b.com": "",
		"a,b.com": "", "a;b": "", "a$b.com": "", "xn--e1afmkfd.xn--80akhbyknj4f": "xn--e1afmkfd.xn--80akhbyknj4f",
	} {
		got, err := Name(in)
		if (err != nil) != (want == "") || got != want {
			t.Errorf("Name(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := WireName("bücher.example"); err == nil {
		t.Error("a name on the wire is ASCII")
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"example.com", "Bücher.example.", "xn--bcher-kva.de", "0x7f.1", "a_b.c", "١٢٣.example", "a\u200db.example", "*.x.y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Name(s)
		if err != nil {
			if n != "" {
				t.Fatalf("an error and %q", n)
			}
			return
		}
		again, err := Name(n)
		if err != nil || again != n {
			t.Fatalf("Name(%q) = %q, then %q, %v", s, n, again, err)
		}
		if wire, err := WireName(strings.ToUpper(n) + "."); err != nil || wire != n {
			t.Fatalf("%q in upper case with a dot is %q, %v", n, wire, err)
		}
		if _, err := netip.ParseAddr(n); err == nil || len(n) > 253 || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" ||
			strings.Contains("."+n+".", "..") {
			t.Fatalf("Name(%q) = %q", s, n)
		}
	})
}
