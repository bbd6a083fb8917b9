package rule

import (
	"net/netip"
	"slices"
)

// Exact reports whether a rule names the host itself, not by a suffix.
func (p *Policy) Exact(host string) bool { return len(p.exact[host]) > 0 }

// Names reports whether a rule names the address, whatever its ports: a name that resolves to it may be answered.
func (p *Policy) Names(a netip.Addr) bool { return p.firstPrefix(unmapped(a), always) != nil }

// Opens reports whether any rule is about single requests, so that TLS must be opened for some host.
func (p *Policy) Opens() bool {
	return slices.ContainsFunc(p.rules, func(c compiled) bool { return c.opened })
}
