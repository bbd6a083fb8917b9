package rule

import (
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// Request is one HTTP request as it was received, with the destination that its connection was judged for.
type Request struct {
	Host      string // name, or an address literal, without port
	Port      int
	TLS       bool
	Method    string
	Path      string // raw
	WebSocket bool   // it asks to become a WebSocket
}

// has reports whether the rule names the port.
func (c *compiled) has(port int) bool { return slices.Contains(c.rule.Ports, port) }

// each calls f with the rules of each pattern that names the host: one list for the name itself and one for each of its
// suffixes, however many rules there are.
func (p *Policy) each(name string, f func([]int32)) {
	if list := p.exact[name]; list != nil {
		f(list)
	}
	if len(p.suffix) == 0 || onlyExact(name) {
		return
	}
	for rest := name; ; {
		_, tail, more := strings.Cut(rest, ".")
		if !more {
			return
		}
		rest = tail
		if list := p.suffix[rest]; list != nil {
			f(list)
		}
	}
}

// first returns the first rule of the policy that names the host and is what is wanted.
func (p *Policy) first(name string, want func(*compiled) bool) *compiled {
	best := int32(len(p.rules))
	p.each(name, func(list []int32) { best = p.earliest(list, best, want) })
	if int(best) == len(p.rules) {
		return nil
	}
	return &p.rules[best]
}

// earliest returns the index of the first wanted rule of a list, or best where that comes before.
func (p *Policy) earliest(list []int32, best int32, want func(*compiled) bool) int32 {
	for _, i := range list {
		if i >= best {
			break
		}
		if want(&p.rules[i]) {
			return i
		}
	}
	return best
}

func always(*compiled) bool { return true }

func allowed(c *compiled) Decision {
	return Decision{Allow: true, Rule: &c.rule, RuleName: c.rule.Name}
}

func allowedByMode() Decision { return Decision{Allow: true, RuleName: OpenName} }

// Lookup decides whether a name may be resolved: some rule names it, whatever else the rule demands.
func (p *Policy) Lookup(name string) Decision {
	name, d := p.hostOf(name)
	if d != nil {
		return *d
	}
	if c := p.first(name, always); c != nil {
		return allowed(c)
	}
	if p.mode == rung.EgressOpen && !onlyExact(name) {
		return allowedByMode()
	}
	return p.denyHost(name, 0)
}

// Connect decides whether a connection to a port of a name may be made. What the name resolves to is Address's question.
func (p *Policy) Connect(name string, port int) Decision {
	name, d := p.hostOf(name)
	if d != nil {
		return *d
	}
	if c := p.first(name, func(c *compiled) bool { return c.has(port) }); c != nil {
		return allowed(c)
	}
	if p.open(name, port) {
		return allowedByMode()
	}
	return p.denyHost(name, port)
}

// hostOf brings a name from the sandbox into normal form, or says why no rule can allow it.
func (p *Policy) hostOf(name string) (string, *Decision) {
	if p.mode == rung.EgressNone {
		return "", p.none()
	}
	n, err := WireName(name)
	if err != nil {
		return "", &Decision{Reason: err.Error()}
	}
	return n, nil
}

func (p *Policy) none() *Decision {
	return &Decision{Reason: "this sandbox has no network (egress mode none)"}
}

// dotPort is DNS over TLS (RFC 7858): names are the gate's business, so that only a rule which says 853 means it.
const dotPort = 853

// open reports whether mode open lets a connection pass that no rule names.
func (p *Policy) open(name string, port int) bool {
	return p.mode == rung.EgressOpen && !onlyExact(name) && port != dotPort && port > 0 && port <= 65535
}

// Inspect reports whether TLS to that destination must be opened: some rule for it has a condition on requests. A name
// without a normal form must be, so that nothing depends on who normalised it.
func (p *Policy) Inspect(name string, port int) bool {
	if _, is := literal(name); is {
		return false // rules for networks have no conditions
	}
	name, err := WireName(name)
	return err != nil || p.first(name, func(c *compiled) bool { return c.opened && c.has(port) }) != nil
}

// Raw reports whether any bytes may pass to that destination: a tcp rule names it, or mode open lets it pass and no rule is
// about it. The name may be an address, for connections that Direct has allowed.
func (p *Policy) Raw(name string, port int) bool {
	raw := func(c *compiled) bool { return c.rule.Protocol == "tcp" && c.has(port) }
	about := func(c *compiled) bool { return c.has(port) }
	if a, is := literal(name); is {
		return p.firstPrefix(a, raw) != nil || p.mode == rung.EgressOpen && p.firstPrefix(a, about) == nil && p.Direct(a, port).Allow
	}
	name, err := WireName(name)
	if err != nil {
		return false
	}
	return p.first(name, raw) != nil || p.open(name, port) && p.first(name, about) == nil
}

// Request decides whether one request may be sent, and returns the path to send in its normal form. In mode open a
// destination that rules are about is judged by them.
func (p *Policy) Request(r Request) (string, Decision) {
	if p.mode == rung.EgressNone {
		return "", *p.none()
	}
	if !isMethod(r.Method) || neverMethod(r.Method) {
		return "", Decision{Reason: "the method " + quote(r.Method) + " is never let through"}
	}
	each, d := p.about(&r)
	if d != nil {
		return "", *d
	}
	// npm's clients spell @scope/name with an encoded slash; only registry rules can allow such a path.
	path, err := normalPath(r.Path, p.npm(each, r.Port))
	if err != nil {
		return "", Decision{Reason: err.Error()}
	}
	return path, p.judge(&r, path, each)
}

// candidates calls its argument with lists of rules that name the destination's host.
type candidates func(func([]int32))

// about finds the rules about a request's host, after bringing that into normal form.
func (p *Policy) about(r *Request) (candidates, *Decision) {
	if a, is := literal(r.Host); is {
		return func(f func([]int32)) { p.eachPrefix(a, f) }, nil
	}
	name, d := p.hostOf(r.Host)
	if d != nil {
		return nil, d
	}
	r.Host = name
	return func(f func([]int32)) { p.each(name, f) }, nil
}

func (p *Policy) npm(each candidates, port int) bool {
	found := false
	each(func(list []int32) {
		for _, i := range list {
			c := &p.rules[i]
			found = found || c.rule.Registry != nil && c.rule.Registry.Kind == "npm" && c.has(port)
		}
	})
	return found
}

// judge asks each rule and keeps the first that matches, or the one that came furthest.
func (p *Policy) judge(r *Request, path string, each candidates) Decision {
	best, nearest, furthest := int32(len(p.rules)), int32(0), obstacleNone
	each(func(list []int32) {
		for _, i := range list {
			if i >= best {
				return
			}
			o := p.rules[i].obstacle(r, path)
			if o == passes {
				best = i
				return
			}
			if o > furthest || o == furthest && i < nearest {
				nearest, furthest = i, o
			}
		}
	})
	if int(best) < len(p.rules) {
		return allowed(&p.rules[best])
	}
	if furthest <= obstaclePort { // no rule is about this destination
		a, is := literal(r.Host)
		switch {
		case is:
			return p.Direct(a, r.Port)
		case p.open(r.Host, r.Port):
			return allowedByMode()
		default:
			return p.denyHost(r.Host, r.Port)
		}
	}
	return denyRequest(r, path, &p.rules[nearest], furthest)
}

// obstacle is what stops a request at a rule, in the order in which a reader would find it.
type obstacle int

const (
	obstacleNone obstacle = iota // no rule yet
	obstaclePort
	obstacleTLS
	obstacleMethod
	obstacleRegistry
	obstaclePath
	obstacleSlash
	obstacleWebSocket
	passes
)

func (c *compiled) obstacle(r *Request, path string) obstacle {
	reg := c.rule.Registry
	switch {
	case !c.has(r.Port):
		return obstaclePort
	case c.rule.Protocol == "tcp":
		return passes
	case c.rule.RequireTLS && !r.TLS:
		return obstacleTLS
	case !c.allows(r.Method):
		return obstacleMethod
	case reg != nil && reg.Prefix != "" && path != reg.Prefix && !strings.HasPrefix(path, reg.Prefix+"/"):
		return obstacleRegistry
	case c.paths != nil && !slices.ContainsFunc(c.paths, func(p pattern) bool { return p.match(path) }):
		return obstaclePath
	case (reg == nil || reg.Kind != "npm") && strings.Contains(path, "%2F"):
		return obstacleSlash
	case r.WebSocket && (!c.rule.WebSocket || r.Method != "GET"): // RFC 6455 section 4.1
		return obstacleWebSocket
	}
	return passes
}
