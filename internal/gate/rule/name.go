package rule

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/rung-dev/rung"
)

// Sizes of names (RFC 1035 section 2.3.4, in the form without a trailing dot).
const (
	maxName  = 253
	maxLabel = 63
	maxInput = 1024 // bytes of a name before it is brought into its ASCII form
)

// Name returns the one normal form of a host name: ASCII, lower case, no trailing dot. Internationalised names become
// their A-labels (RFC 5891; UTS 46 without transitional processing). A label may have an underscore, which real host names
// use. What could be read as an address in any spelling is refused: a name whose last label is a number, decimal, octal or
// hexadecimal, is an IPv4 address to a URL parser (WHATWG URL, "ends in a number").
func Name(host string) (string, error) {
	if plain(host) {
		return host, nil
	}
	if err := checkSpelling(host); err != nil {
		return "", err
	}
	name := host
	if !isASCII(host) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", notName(host, "it is no valid internationalised name")
		}
		name = ascii
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if why := badName(name); why != "" {
		return "", notName(host, why)
	}
	return name, nil
}

// WireName is Name for names that come from a sandbox: on the wire a name is ASCII already (RFC 5890 section 2.3.2.1), so
// that anything else is no other spelling but a trick.
func WireName(host string) (string, error) {
	if !isASCII(host) {
		return "", notName(host, "it is not ASCII")
	}
	return Name(host)
}

// plain reports whether a name is in normal form already, for all but names with A-labels: the usual case, without an
// allocation.
func plain(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
			continue
		}
		if badLabel(s[start:i]) != "" || strings.HasPrefix(s[start:i], "xn--") {
			return false
		}
		start = i + 1
	}
	return !endsInNumber(s)
}

// checkSpelling refuses what is no name at all, with the reason a person needs.
func checkSpelling(host string) error {
	if host == "" || host == "." {
		return notName(host, "it is empty")
	}
	if len(host) > maxInput {
		return notName(host, "it is longer than 253 characters")
	}
	if !utf8.ValidString(host) {
		return notName(host, "it is not UTF-8")
	}
	for _, r := range host {
		if why := badRune(r); why != "" {
			return notName(host, why)
		}
	}
	return nil
}

func badRune(r rune) string {
	switch {
	case r == '@':
		return "it has user information"
	case r == ':' || r == '[' || r == ']':
		return "it has a port, or is an IPv6 address"
	case r == '/' || r == '\\' || r == '?' || r == '#':
		return "it has more than a host in it"
	case r == '%':
		return "it has a percent sign"
	case r == '*':
		return "a wildcard is no name"
	case unicode.IsSpace(r) || unicode.IsControl(r):
		return "it has a space or a control character"
	case r == '\u200c' || r == '\u200d':
		return "" // joiners have meaning in some scripts; idna checks their context (RFC 5892 appendix A)
	case unicode.In(r, unicode.Cf, unicode.Variation_Selector):
		return "it has an invisible character"
	}
	return ""
}

// badName says what is wrong with a name in lower case, or "".
func badName(name string) string {
	if len(name) > maxName {
		return "it is longer than 253 characters"
	}
	for label := range strings.SplitSeq(name, ".") {
		if why := badLabel(label); why != "" {
			return why
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "it has a character that names do not have"
			}
		}
		if strings.HasPrefix(label, "xn--") && !isALabel(label) {
			return "the label " + strconv.Quote(label) + " is no valid internationalised one"
		}
	}
	if endsInNumber(name) {
		return "it can be read as an address"
	}
	return ""
}

func badLabel(label string) string {
	switch {
	case label == "":
		return "it has an empty label"
	case len(label) > maxLabel:
		return "it has a label longer than 63 characters"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "it has a label that begins or ends with a hyphen" // RFC 1123 section 2.1
	}
	return ""
}

// isALabel reports whether a label that looks internationalised is so, in its only form (RFC 5890 section 2.3.2.1).
func isALabel(label string) bool {
	u, err := idna.Lookup.ToUnicode(label)
	if err != nil || isASCII(u) {
		return false
	}
	back, err := idna.Lookup.ToASCII(u)
	return err == nil && back == label
}

// endsInNumber is the WHATWG URL standard's test for an IPv4 address: 127.0.0.1, 0177.1, 0x7f.1 and 2130706433 all are.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return false
	}
	if digits := strings.TrimLeft(last, "0123456789"); digits == "" {
		return true
	}
	hex, is := strings.CutPrefix(last, "0x")
	return is && strings.Trim(hex, "0123456789abcdef") == ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func notName(host, why string) error {
	e := rung.Errorf(rung.KindInvalid, "%s is not a host name: %s", quote(host), why)
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Zone() == "" {
		return e.WithHint("an address is named as a network: " + netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()).String())
	}
	return e
}

// quote makes any text safe for one line of an error.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}

func itoa(i int) string { return strconv.Itoa(i) }
