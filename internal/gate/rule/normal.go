package rule

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/rung-dev/rung"
)

// Caps on one rule.
const (
	maxPorts    = 256
	maxMethods  = 32
	maxPaths    = 1024
	maxSecrets  = 64
	maxPackages = 4096
	maxText     = 256 // characters of a rule's name, an audience, a package's name
)

// fault is what is wrong with one key of a rule.
type fault struct {
	field string
	err   error
}

func faultf(field, format string, args ...any) *fault {
	return &fault{field, rung.Errorf(rung.KindInvalid, format, args...)}
}

// hinted adds a hint to a fault made by faultf.
func (f *fault) hinted(hint string) *fault {
	if e, ok := f.err.(*rung.Error); ok { //nolint:errorlint // faultf has just made it
		f.err = e.WithHint(hint)
	}
	return f
}

func (f *fault) wrap(where string) error {
	if f.field == "" {
		return rung.Errorf(rung.KindInvalid, "%s: %w", where, f.err)
	}
	return rung.Errorf(rung.KindInvalid, "%s: %s: %w", where, f.field, f.err)
}

// normal returns the normal form of a rule, or what is wrong with it. Nil and empty lists stay what they are.
func normal(r rung.EgressRule) (rung.EgressRule, *fault) {
	r.Ports, r.Methods, r.Paths = slices.Clone(r.Ports), slices.Clone(r.Methods), slices.Clone(r.Paths)
	r.Secrets = slices.Clone(r.Secrets)
	if r.Limits != nil {
		l := *r.Limits
		r.Limits = &l
	}
	for _, step := range []func(*rung.EgressRule) *fault{
		checkName, normalDestination, normalPorts, normalProtocol, checkMethods, checkPaths, checkCredentials, normalRegistry,
	} {
		if f := step(&r); f != nil {
			return rung.EgressRule{}, f
		}
	}
	if r.Limits != nil {
		if f := checkBudget(*r.Limits, "limits"); f != nil {
			return rung.EgressRule{}, f
		}
	}
	return r, nil
}

func checkName(r *rung.EgressRule) *fault {
	switch {
	case r.Name == OpenName || r.Name == "none":
		return faultf("name", "%q is a mode's name", r.Name)
	case !isLine(r.Name):
		return faultf("name", "%s is no name: at most %d printable characters", quote(r.Name), maxText)
	}
	return nil
}

// isLine reports whether a text can be shown on a line of its own.
func isLine(s string) bool {
	return len(s) <= maxText && strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0
}

func normalDestination(r *rung.EgressRule) *fault {
	switch {
	case r.Host == "" && r.CIDR == "":
		return faultf("", "it names neither a host nor a cidr")
	case r.Host != "" && r.CIDR != "":
		return faultf("cidr", "a rule names a host or a cidr, not both")
	case r.CIDR != "":
		p, err := parsePrefix(r.CIDR)
		if err != nil {
			return &fault{"cidr", err}
		}
		r.CIDR = p.String()
		return nil
	}
	host, err := hostPattern(r.Host)
	if err != nil {
		return &fault{"host", err}
	}
	r.Host = host
	suffix, _ := wildcard(host)
	switch {
	case host == "localhost" || strings.HasSuffix(host, ".localhost") || suffix == "localhost":
		return faultf("host", "%s is the gate's own machine", host).hinted("name its address and port: 127.0.0.1/32:8080/tcp")
	case unnameable(host):
		return faultf("host", "%s is a metadata service: no name leads there", host)
	}
	return nil
}

// parsePrefix reads a network in its only spelling.
func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		e := rung.Errorf(rung.KindInvalid, "%s is no network", quote(text))
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			return p, e.WithHint("write " + netip.PrefixFrom(a, a.BitLen()).String())
		}
		return p, e.WithHint("write it as 192.0.2.0/24 or 2001:db8::/32")
	}
	if p.Addr().Is4In6() {
		return p, rung.Errorf(rung.KindInvalid, "%s is a v4-mapped network", quote(text)).WithHint("write the IPv4 network")
	}
	if p != p.Masked() {
		return p, rung.Errorf(rung.KindInvalid, "%s has bits beyond its length", quote(text)).WithHint("write " + p.Masked().String())
	}
	return p, nil
}

func normalPorts(r *rung.EgressRule) *fault {
	if len(r.Ports) > maxPorts {
		return faultf("ports", "%d ports are too many: at most %d", len(r.Ports), maxPorts)
	}
	for _, port := range r.Ports {
		if port < 1 || port > 65535 {
			return faultf("ports", "%d is no port: 1 to 65535", port)
		}
	}
	slices.Sort(r.Ports)
	r.Ports = slices.Compact(r.Ports)
	return nil
}

func normalProtocol(r *rung.EgressRule) *fault {
	switch r.Protocol {
	case "", "http":
		if r.CIDR != "" && needsOpening(*r) {
			return faultf("cidr", "conditions on requests need a host: an address has no certificate").hinted("write the rule with host")
		}
		return nil
	case "tcp":
	default:
		return faultf("protocol", "%s is no protocol: http or tcp", quote(r.Protocol))
	}
	if len(r.Ports) == 0 {
		return faultf("protocol", "a tcp rule names its ports").hinted("add the port: " + r.Host + r.CIDR + ":5432/tcp")
	}
	if needsOpening(*r) || r.RequireTLS {
		return faultf("protocol", "a tcp rule lets any bytes pass, so that conditions on requests cannot hold").
			hinted("leave protocol: tcp out, or the conditions")
	}
	return nil
}

func checkMethods(r *rung.EgressRule) *fault {
	if len(r.Methods) > maxMethods {
		return faultf("methods", "%d methods are too many: at most %d", len(r.Methods), maxMethods)
	}
	for _, m := range r.Methods {
		switch {
		case !isMethod(m) && isMethod(strings.ToUpper(m)):
			return faultf("methods", "%s is no method: methods are case-sensitive", quote(m)).hinted("write " + strings.ToUpper(m))
		case !isMethod(m):
			return faultf("methods", "%s is no method", quote(m)).hinted("leave methods out for all the usual ones")
		case neverMethod(m):
			return faultf("methods", "%s is never let through", m)
		}
	}
	return nil
}

func checkPaths(r *rung.EgressRule) *fault {
	if len(r.Paths) > maxPaths {
		return faultf("paths", "%d paths are too many: at most %d", len(r.Paths), maxPaths)
	}
	for _, text := range r.Paths {
		if _, err := parsePattern(text); err != nil {
			return &fault{"paths", err}
		}
	}
	return nil
}

// checkCredentials also makes a rule with credentials one for TLS only: nothing of the kind goes out in the clear.
func checkCredentials(r *rung.EgressRule) *fault {
	if len(r.Secrets) > maxSecrets {
		return faultf("secrets", "%d secrets are too many: at most %d", len(r.Secrets), maxSecrets)
	}
	for _, s := range r.Secrets {
		if s == "" || len(s) > maxText || strings.IndexFunc(s, func(c rune) bool { return !isWordRune(c) }) >= 0 {
			return faultf("secrets", "%s is no name of a secret: letters, digits, dot, underscore and hyphen", quote(s))
		}
	}
	if !isLine(r.Identity) || strings.ContainsAny(r.Identity, " \"\\") {
		return faultf("identity", "%s is no audience", quote(r.Identity))
	}
	if len(r.Secrets) > 0 || r.Identity != "" {
		r.RequireTLS = true
	}
	return nil
}

func isWordRune(c rune) bool {
	return c < 0x80 && (isUnreserved(byte(c)) && c != '~')
}

func normalRegistry(r *rung.EgressRule) *fault {
	if r.Registry == nil {
		return nil
	}
	g := *r.Registry
	g.Packages = slices.Clone(g.Packages)
	r.Registry = &g
	switch {
	case !slices.Contains(registryKinds(), g.Kind):
		return faultf("registry", "%s is no registry: one of %s", quote(g.Kind), strings.Join(registryKinds(), ", "))
	case g.MinAge < 0 || g.MinAge > maxAge:
		return faultf("registry", "min_age %s is out of range", g.MinAge)
	case len(g.Packages) > maxPackages:
		return faultf("registry", "%d packages are too many: at most %d", len(g.Packages), maxPackages)
	case r.WebSocket:
		return faultf("websocket", "a registry rule is read-only")
	}
	if g.Prefix != "" {
		if n, err := NormalPath(g.Prefix); err != nil || n != g.Prefix || strings.HasSuffix(n, "/") || strings.ContainsAny(n, "?*") {
			return faultf("registry", "prefix %s is no path in normal form without a trailing slash", quote(g.Prefix))
		}
	}
	for _, name := range g.Packages {
		if name == "" || !isLine(name) || strings.ContainsAny(name, " *") {
			return faultf("registry", "%s is no package name", quote(name))
		}
	}
	for _, m := range r.Methods {
		if m != "GET" && m != "HEAD" {
			return faultf("methods", "a registry rule is read-only: GET and HEAD, not %s", m)
		}
	}
	return nil
}

func registryKinds() []string { return []string{"npm", "pypi", "go", "debian"} }

func checkBudget(b rung.NetBudget, field string) *fault {
	if math.IsNaN(b.Rate) || math.IsInf(b.Rate, 0) {
		return faultf(field, "connections_per_second is no number")
	}
	for _, v := range []struct {
		key string
		bad bool
	}{
		{"connections", b.Connections < 0},
		{"connections_per_second", b.Rate < 0},
		{"bytes_out", b.BytesOut < 0},
		{"bytes_in", b.BytesIn < 0},
		{"requests", b.Requests < 0},
		{"lookups", b.Lookups < 0},
	} {
		if v.bad {
			return faultf(field, "%s is negative", v.key)
		}
	}
	return nil
}
