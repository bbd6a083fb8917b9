// Package rule is the egress policy of one sandbox: it reads the rules (flags and policy files), brings them into one form
// and answers the gate's questions. Every answer is a pure function of the policy and the question, and says why.
//
// Names, ports, methods and paths are judged in one normal form each (Name, NormalPath), and that form is what the gate then
// resolves, dials and sends: judging one spelling and using another is how such gates are bypassed. What has no normal form,
// or more than one reading, is refused.
//
// A question is answered with yes when one rule matches it wholly; rules never add up. Where several do, the first of the
// policy gives its name, limits, secrets and approval. What a name resolves to is judged apart, by Address.
package rule

import (
	"net/netip"
	"slices"

	"github.com/rung-dev/rung"
)

// MaxRules is how many rules one policy can have: far beyond what anybody reviews, and a bound on memory.
const MaxRules = 16_384

// OpenName is what a decision calls egress mode open, which is no rule of the policy.
const OpenName = "open"

// Policy is a compiled rung.Egress. It never changes and may be used by many goroutines.
type Policy struct {
	mode   rung.EgressMode
	budget rung.NetBudget
	rules  []compiled
	exact  map[string][]int32       // host to rules, in the policy's order
	suffix map[string][]int32       // suffix of a wildcard to rules
	cidr   map[netip.Prefix][]int32 // prefix to rules
	bits   []int                    // lengths of the IPv4 prefixes there are
	bits6  []int                    // and of the IPv6 ones
}

// compiled is a rule with what is made of it once.
type compiled struct {
	rule   rung.EgressRule
	prefix netip.Prefix // of a CIDR rule
	paths  []pattern
	opened bool // needs TLS to be opened
}

// Decision is the answer to one question.
type Decision struct {
	Allow bool
	// Rule is the rule that allowed it; nil for a denial and for what mode open allows. It belongs to the policy.
	Rule     *rung.EgressRule
	RuleName string // of Rule, "open", or of a denial the rule that came nearest, if any
	Reason   string // of a denial, one sentence
	Hint     string // of a denial: the flag or policy line that would allow it, "" where none would
}

// Compile validates a policy and makes it ready for questions.
func Compile(e rung.Egress) (*Policy, error) {
	mode := e.Mode
	if mode == "" {
		mode = rung.EgressDeny // nothing passes that no rule names
	}
	if _, err := rung.ParseEgressMode(string(mode)); err != nil {
		return nil, err
	}
	if mode == rung.EgressNone && len(e.Rules) > 0 {
		return nil, rung.Errorf(rung.KindInvalid, "egress mode none has no network, so its %d rules could never hold", len(e.Rules)).
			WithHint("use mode deny with these rules, or leave them out")
	}
	if len(e.Rules) > MaxRules {
		return nil, rung.Errorf(rung.KindInvalid, "%d egress rules are too many: at most %d", len(e.Rules), MaxRules)
	}
	if f := checkBudget(e.Budget, "budget"); f != nil {
		return nil, f.wrap("egress")
	}
	p := &Policy{
		mode: mode, budget: e.Budget, rules: make([]compiled, 0, len(e.Rules)),
		exact: map[string][]int32{}, suffix: map[string][]int32{}, cidr: map[netip.Prefix][]int32{},
	}
	names := map[string]int{}
	for i, r := range e.Rules {
		if err := p.add(r, i, names); err != nil {
			return nil, err
		}
	}
	slices.Sort(p.bits)
	slices.Sort(p.bits6)
	return p, nil
}

// add takes one rule into the maps.
func (p *Policy) add(r rung.EgressRule, i int, names map[string]int) error {
	n, f := normal(r)
	if f != nil {
		return f.wrap("egress rule " + itoa(i+1))
	}
	if n.Name != "" && names[n.Name] > 0 {
		return (&fault{"name", rung.Errorf(rung.KindInvalid, "two rules are called %q", n.Name)}).wrap("egress rule " + itoa(i+1))
	}
	if n.Name == "" {
		n.Name = ownName(Text(n), names)
	}
	names[n.Name]++
	n.Ports = portsOf(n)
	if n.Protocol == "" {
		n.Protocol = "http"
	}
	c := compiled{rule: n, opened: needsOpening(n)}
	if n.Paths != nil {
		c.paths = make([]pattern, 0, len(n.Paths))
		for _, text := range n.Paths {
			pat, err := parsePattern(text)
			if err != nil {
				return err
			}
			c.paths = append(c.paths, pat)
		}
	}
	index := int32(len(p.rules))
	switch suffix, wild := wildcard(n.Host); {
	case n.CIDR != "":
		c.prefix = netip.MustParsePrefix(n.CIDR) // normal has parsed it
		p.addPrefix(c.prefix, index)
	case wild:
		p.suffix[suffix] = append(p.suffix[suffix], index)
	default:
		p.exact[n.Host] = append(p.exact[n.Host], index)
	}
	p.rules = append(p.rules, c)
	return nil
}

// ownName makes the text of a rule a name that no other rule has: limits are counted and denials told apart by it.
func ownName(text string, names map[string]int) string {
	name := text
	for i := names[text] + 1; names[name] > 0; i++ {
		name = text + " #" + itoa(i)
	}
	if name != text {
		names[text]++ // so that the next one need not start over
	}
	return name
}

func (p *Policy) addPrefix(prefix netip.Prefix, index int32) {
	bits := &p.bits
	if prefix.Addr().Is6() {
		bits = &p.bits6
	}
	if !slices.Contains(*bits, prefix.Bits()) {
		*bits = append(*bits, prefix.Bits())
	}
	p.cidr[prefix] = append(p.cidr[prefix], index)
}

// Mode returns the policy's mode; a policy compiled without one is of mode deny.
func (p *Policy) Mode() rung.EgressMode { return p.mode }

// Budget returns the budget of the whole sandbox as written, zero where nothing was.
func (p *Policy) Budget() rung.NetBudget { return p.budget }

// Rules returns the rules in their normal form, with their names and ports filled in.
func (p *Policy) Rules() []rung.EgressRule {
	list := make([]rung.EgressRule, len(p.rules))
	for i := range p.rules {
		list[i] = p.rules[i].rule
	}
	return list
}

// portsOf returns the ports of a rule: its own, or the two of the web.
func portsOf(r rung.EgressRule) []int {
	switch {
	case len(r.Ports) > 0:
		return r.Ports
	case r.RequireTLS:
		return []int{443}
	default:
		return []int{80, 443}
	}
}

// needsOpening reports whether a rule can be judged only on single requests.
func needsOpening(r rung.EgressRule) bool {
	return r.Methods != nil || r.Paths != nil || r.WebSocket || r.Approve || len(r.Secrets) > 0 || r.Identity != "" ||
		r.Registry != nil || r.Limits != nil && r.Limits.Requests > 0
}
