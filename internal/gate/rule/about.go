package rule

import (
	"net/netip"

	"github.com/rung-dev/rung"
)

// Limits returns the limits of the rule of that name, nil where it has none or there is no such rule.
func (p *Policy) Limits(name string) *rung.NetBudget {
	if name == OpenName {
		return nil
	}
	for i := range p.rules {
		if p.rules[i].rule.Name == name {
			return p.rules[i].rule.Limits
		}
	}
	return nil
}

// Exact reports whether a rule names the host itself, not by a suffix.
func (p *Policy) Exact(host string) bool { return len(p.exact[host]) > 0 }

// Names reports whether a rule names the address, whatever its ports: a name that resolves to it may be answered.
func (p *Policy) Names(a netip.Addr) bool { return p.firstPrefix(unmapped(a), always) != nil }
