package rule

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// ParseAllow reads what --allow takes: HOST, *.SUFFIX or a network in CIDR form, with an optional :PORT, and with /tcp where
// any bytes may pass. Without a port a rule means 443 and 80.
//
//	index.test   index.test:443   *.example.com   db.example.com:5432/tcp   10.0.0.0/8:443   2001:db8::/32:443   10.0.0.5/32:5432/tcp
func ParseAllow(text string) (rung.EgressRule, error) {
	r, f := parseAllow(text)
	if f == nil {
		r, f = normal(r)
	}
	if f != nil {
		return rung.EgressRule{}, (&fault{err: f.err}).wrap("allow " + quote(text))
	}
	return r, nil
}

func parseAllow(text string) (r rung.EgressRule, f *fault) {
	switch {
	case text == "":
		return r, faultf("", "it is empty").hinted("name a host: --allow example.com")
	case len(text) > 2*maxInput:
		return r, faultf("", "it is too long")
	case strings.Contains(text, "://"):
		return r, faultf("", "it is a URL").hinted("name the host, and paths in a policy file: --allow example.com")
	case strings.ContainsAny(text, ", \t"):
		return r, faultf("", "it is more than one destination").hinted("write --allow once for each")
	}
	rest := text
	if s, is := strings.CutSuffix(rest, "/tcp"); is {
		rest, r.Protocol = s, "tcp"
	} else if s, is := strings.CutSuffix(rest, "/http"); is {
		rest = s
	} else if strings.HasSuffix(rest, "/udp") {
		return r, faultf("", "UDP never leaves a sandbox")
	}
	if strings.Contains(rest, "/") {
		return splitPrefix(r, rest)
	}
	return splitHost(r, rest)
}

// splitPrefix reads NETWORK[:PORT], the address with or without brackets.
func splitPrefix(r rung.EgressRule, text string) (rung.EgressRule, *fault) {
	addr, rest, _ := strings.Cut(text, "/")
	bits, port, hasPort := strings.Cut(rest, ":")
	if inner, is := strings.CutPrefix(addr, "["); is {
		if addr, is = strings.CutSuffix(inner, "]"); !is || !strings.Contains(addr, ":") {
			return r, faultf("", "its brackets do not hold an IPv6 address")
		}
	}
	if _, err := netip.ParseAddr(addr); err != nil {
		return r, faultf("", "%s is no network", quote(text)).hinted("--allow takes hosts and networks; name paths in a policy file")
	}
	r.CIDR = addr + "/" + bits
	return withPort(r, port, hasPort)
}

// splitHost reads HOST[:PORT] or *.SUFFIX[:PORT].
func splitHost(r rung.EgressRule, text string) (rung.EgressRule, *fault) {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return r, faultf("", "an address is named as a network").hinted(prefixHint(ap.Addr().WithZone("").Unmap(), int(ap.Port())))
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		a = a.WithZone("").Unmap()
		return r, faultf("", "an address is named as a network").hinted("--allow " + netip.PrefixFrom(a, a.BitLen()).String())
	}
	host, port, hasPort := strings.Cut(text, ":")
	r.Host = host
	if host == "" {
		return r, faultf("", "it names no host")
	}
	return withPort(r, port, hasPort)
}

func withPort(r rung.EgressRule, port string, has bool) (rung.EgressRule, *fault) {
	if !has {
		return r, nil
	}
	n, err := parsePort(port)
	if err != nil {
		return r, &fault{"ports", err}
	}
	r.Ports = []int{n}
	return r, nil
}

// parsePort reads a port in its only spelling: no sign, no leading zero.
func parsePort(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text || n < 1 || n > 65535 {
		return 0, rung.Errorf(rung.KindInvalid, "%s is no port: 1 to 65535", quote(text))
	}
	return n, nil
}
