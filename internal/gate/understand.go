package gate

import (
	"slices"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/gate/rule"
)

// understand reads a policy as its owner wrote it: the file first, then the registries' rules, then flags. The mode is the
// one asked for, else the file's, else the threat's default.
func understand(o *control.Open) (rung.Egress, error) {
	var e rung.Egress
	if o.Policy != nil {
		f, err := rule.ParsePolicy(o.Policy)
		if err != nil {
			return e, err
		}
		if f.Egress != nil {
			e = *f.Egress
		}
	}
	for _, text := range o.Allow {
		r, err := rule.ParseAllow(text)
		if err != nil {
			return e, err
		}
		e.Rules = append(e.Rules, r)
	}
	e.Rules = append(e.Rules, o.Rules...)
	switch {
	case o.Mode != "":
		e.Mode = o.Mode
	case e.Mode != "":
	case len(e.Rules) > 0:
		e.Mode = rung.EgressDeny
	default:
		e.Mode = o.Default
	}
	if e.Mode == rung.EgressNone && len(e.Rules) > 0 {
		return e, rung.Errorf(rung.KindInvalid, "egress mode none goes with no rules: there is no network to allow anything on").
			WithHint("--egress deny lets through what the rules name and nothing else")
	}
	return e, bind(&e, o.Secrets)
}

// bind marks the rules that a secret may be used by. A secret for a host that no rule names could never be used, which its
// owner surely did not mean. In mode open the host needs no rule, so it gets one: only then its requests are looked at.
func bind(e *rung.Egress, secrets []rung.SecretBinding) error {
	for _, b := range secrets {
		for _, host := range b.Hosts {
			if bindHost(e, b.Name, host) {
				continue
			}
			if e.Mode != rung.EgressOpen {
				return rung.Errorf(rung.KindInvalid, "secret %s is bound to %s, which no rule lets the sandbox speak to", b.Name, host).
					WithHint("add --allow " + host)
			}
			r, err := rule.ParseAllow(host)
			if err != nil {
				return err
			}
			r.Secrets = []string{b.Name}
			e.Rules = append(e.Rules, r)
		}
	}
	return nil
}

func bindHost(e *rung.Egress, name, host string) (bound bool) {
	rules := make([]rung.EgressRule, 0, len(e.Rules)+1)
	for _, r := range e.Rules {
		switch {
		case r.Host == "" || r.Protocol == "tcp":
		case r.Host == host || strings.HasPrefix(host, "*.") && strings.HasSuffix(r.Host, host[1:]):
			r.Secrets = append(slices.Clone(r.Secrets), name)
			bound = true
		case strings.HasPrefix(r.Host, "*.") && strings.HasSuffix(host, r.Host[1:]):
			// The rule means many hosts, the secret one of them: a rule of its own comes before it.
			own := r
			own.Host, own.Name, own.Secrets = host, "", append(slices.Clone(r.Secrets), name)
			rules = append(rules, own)
			bound = true
		}
		rules = append(rules, r)
	}
	e.Rules = rules
	return bound
}
