package gate

import (
	"net/netip"
	"strings"

	"github.com/rung-dev/rung/internal/gate/dns"
	"github.com/rung-dev/rung/internal/gate/rule"
)

// newDNS makes the sandbox's name server: the policy says which names, and what they resolve to is judged and pinned.
func (s *session) newDNS() *dns.Server {
	return dns.New(dns.Config{
		Normal: rule.WireName,
		Lookup: func(name string) dns.Verdict {
			if err := s.swap.Name(name); err != nil {
				return dns.Verdict{Reason: err.Error()}
			}
			d := s.policy.Lookup(name)
			v := dns.Verdict{Allow: d.Allow, Rule: d.RuleName, Reason: d.Reason, Hint: d.Hint}
			if d.Rule != nil && strings.HasPrefix(d.Rule.Host, "*.") {
				v.Wildcard = d.Rule.Host[2:]
			}
			return v
		},
		Judge:   func(_ string, a netip.Addr) error { return s.permitted(a) },
		Resolve: s.lookup,
		Pin:     s.pins.Add,
		Spend:   s.meter.Lookup,
		Denied:  s.ledger.Deny,
	})
}
