package rule

import (
	"strings"
)

// denyHost says why no rule allows a name, and a port of it unless that is 0.
func (p *Policy) denyHost(name string, port int) Decision {
	if unnameable(name) {
		return Decision{Reason: name + " is never resolved: it leads to the host or to its cloud's metadata"}
	}
	if port < 0 || port > 65535 {
		return Decision{Reason: itoa(port) + " is no port"}
	}
	d := Decision{Hint: allowHint(name, port)}
	if c := p.first(name, always); c != nil {
		d.RuleName = c.rule.Name
		d.Reason = "port " + itoa(port) + " of " + name + " is not allowed: the nearest rule names " + portList(c.rule.Ports)
		return d
	}
	d.Reason, d.RuleName = p.nearHost(name)
	return d
}

// nearHost looks for a rule that a reader may have thought to be enough.
func (p *Policy) nearHost(name string) (reason, rule string) {
	reason = "no rule names " + name
	if list := p.suffix[name]; len(list) > 0 {
		return reason + ": *." + name + " names only what is below it", p.rules[list[0]].rule.Name
	}
	if resolvers[name] {
		return reason + ": it resolves names around the gate, so that only a rule for itself would do", ""
	}
	if !strings.Contains(name, ".") {
		return reason + ": a name without a dot needs a rule for itself", ""
	}
	_, parent, _ := strings.Cut(name, ".")
	if list := p.exact[parent]; len(list) > 0 {
		return reason + ": the rule for " + parent + " does not name what is below it", p.rules[list[0]].rule.Name
	}
	return reason, ""
}

// denyRequest says what stopped a request at the rule that came nearest.
func denyRequest(r *Request, path string, c *compiled, o obstacle) Decision {
	d := Decision{RuleName: c.rule.Name, Hint: lineHint(*r, path)}
	what := r.Method + " " + short(path) + " on " + r.Host
	switch o {
	case obstacleTLS:
		d.Reason, d.Hint = what+" is allowed over TLS only: use https", ""
	case obstacleMethod:
		d.Reason = "the method " + r.Method + " is not allowed on " + r.Host + ": the nearest rule lets " + c.methodList() + " through"
		if c.rule.Registry != nil {
			d.Reason, d.Hint = "the registry "+r.Host+" is read-only: "+r.Method+" is not allowed", ""
		}
	case obstacleRegistry:
		d.Reason = what + " is outside the registry, which is below " + c.rule.Registry.Prefix
	case obstaclePath:
		d.Reason = what + " is not allowed: no path of the nearest rule matches"
	case obstacleSlash:
		d.Reason, d.Hint = what+" has an encoded slash, which only a registry rule lets through", ""
	case obstacleWebSocket:
		d.Reason = what + " asks for a WebSocket, which the nearest rule does not allow"
		if r.Method != "GET" {
			d.Reason, d.Hint = "a WebSocket is asked for with GET, not "+r.Method, ""
		}
	}
	if len(d.Hint) > 1024 {
		d.Hint = "" // of no use to a reader
	}
	return d
}

func (c *compiled) methodList() string {
	methods := c.rule.Methods
	if methods == nil {
		methods = defaultMethods
	}
	if len(methods) == 0 {
		return "none"
	}
	return strings.Join(methods, ", ")
}

func short(path string) string {
	const most = 120
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}
