package rule

import (
	"net/netip"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/address"
)

// literal reads a host that is an address, IPv6 with or without brackets, in the spelling that every parser reads alike.
func literal(host string) (netip.Addr, bool) {
	if host == "" || host[0] != '[' && host[0] != ':' && (host[0] < '0' || host[0] > '9') && !strings.Contains(host, ":") {
		return netip.Addr{}, false
	}
	if inner, is := strings.CutPrefix(host, "["); is {
		if host, is = strings.CutSuffix(inner, "]"); !is || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// eachPrefix calls f with the rules of each prefix that holds the address: one look for each length there is.
func (p *Policy) eachPrefix(a netip.Addr, f func([]int32)) {
	bits := p.bits
	if a.Is6() {
		bits = p.bits6
	}
	for _, n := range bits {
		prefix, err := a.Prefix(n)
		if err != nil {
			continue // a zone: no rule names it
		}
		if list := p.cidr[prefix]; list != nil && address.Named(prefix, a) {
			f(list)
		}
	}
}

// firstPrefix returns the first rule of the policy that names the address and is what is wanted.
func (p *Policy) firstPrefix(a netip.Addr, want func(*compiled) bool) *compiled {
	best := int32(len(p.rules))
	p.eachPrefix(a, func(list []int32) { best = p.earliest(list, best, want) })
	if int(best) == len(p.rules) {
		return nil
	}
	return &p.rules[best]
}

// Direct decides about a connection to an address that nobody resolved: a rule names it as a network, or it is public and
// the mode is open.
func (p *Policy) Direct(a netip.Addr, port int) Decision {
	if p.mode == rung.EgressNone {
		return *p.none()
	}
	a = unmapped(a)
	if c := p.firstPrefix(a, func(c *compiled) bool { return c.has(port) }); c != nil {
		return allowed(c)
	}
	why, no := address.Forbidden(a)
	if !no && p.mode == rung.EgressOpen && port != dotPort && port > 0 && port <= 65535 {
		return allowedByMode()
	}
	d := p.denyAddress(a, port)
	switch {
	case d.RuleName != "": // right network, wrong port: said already
	case no:
		d.Reason = why
	default:
		d.Reason = "the sandbox resolved no allowed name to " + a.String() + ", and no rule names that address"
	}
	return d
}

// Address decides about a connection to a name at the address it was resolved to, just before that is dialled: Connect
// allows it, and the address is public or a rule names it, with the port, as a network. The rule is the one for the name.
func (p *Policy) Address(name string, a netip.Addr, port int) Decision {
	d := p.Connect(name, port)
	if !d.Allow {
		return d
	}
	a = unmapped(a)
	why, no := address.Forbidden(a)
	if !no || p.firstPrefix(a, func(c *compiled) bool { return c.has(port) }) != nil {
		return d
	}
	d = p.denyAddress(a, port)
	if d.RuleName == "" {
		d.Reason = "what " + name + " resolves to is refused: " + why
	}
	return d
}

// denyAddress finds the rule that names the address on other ports, and the flag that would name it on this one.
func (p *Policy) denyAddress(a netip.Addr, port int) Decision {
	var d Decision
	if c := p.firstPrefix(a, always); c != nil {
		d.RuleName = c.rule.Name
		d.Reason = "port " + itoa(port) + " of " + a.String() + " is not allowed: the nearest rule names " + portList(c.rule.Ports)
	}
	switch address.Classify(a) {
	case address.Public, address.Documentation, address.Private, address.CGNAT, address.UniqueLocal:
		if port > 0 && port <= 65535 {
			d.Hint = prefixHint(a, port)
		}
	}
	return d
}

func unmapped(a netip.Addr) netip.Addr {
	if a.Zone() != "" {
		return a // dropping the zone would make it another address
	}
	return a.Unmap()
}
