// Package registries finds which package registries this host's own clients use, and turns them into egress rules and into
// the settings with which the same clients inside a sandbox use the same registries.
//
// No host is compiled in: a client without configuration is asked for its own default. Configuration is read where it belongs to the
// host's user: environment, the user's files, the system's. A project's own files (.npmrc beside package.json) are not read:
// they come with the code that nobody reviewed, and must not open a way out for it.
package registries

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// The kinds, as in rung.Registry.
const (
	npmKind    = "npm"
	pypiKind   = "pypi"
	goKind     = "go"
	debianKind = "debian"
)

// Kinds lists the registries that can be discovered.
func Kinds() []string { return []string{npmKind, pypiKind, goKind, debianKind} }

// Found is what a host's configuration says about one kind of registry.
type Found struct {
	Rules []rung.EgressRule // each with a Registry; without packages and age, which are the caller's to set
	Env   map[string]string // for the sandbox
	Files map[string][]byte // for the sandbox, by absolute path there; the process inside must be able to read them
	Notes []string          // what was left out, and why
}

// Parse reads KIND or KIND:PACKAGE,…. No colon means all packages (nil); nothing after it means none.
func Parse(text string) (kind string, packages []string, err error) {
	kind, list, some := strings.Cut(text, ":")
	if !slices.Contains(Kinds(), kind) {
		return "", nil, rung.Errorf(rung.KindInvalid, "unknown registry %q", kind).WithHint("one of: " + strings.Join(Kinds(), ", "))
	}
	if !some {
		return kind, nil, nil
	}
	packages = []string{}
	if list == "" {
		return kind, packages, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return "", nil, rung.Errorf(rung.KindInvalid, "registry %q has an empty package name", text)
		}
		packages = append(packages, name)
	}
	return kind, packages, nil
}

// Discover reads this host's configuration of a kind. getenv is os.Getenv, or what stands for it.
func Discover(ctx context.Context, kind string, getenv func(string) string) (Found, error) {
	return discover(ctx, kind, newHost(getenv))
}

func discover(ctx context.Context, kind string, h host) (Found, error) {
	b := &builder{host: h, found: Found{Env: map[string]string{}, Files: map[string][]byte{}}}
	var err error
	switch kind {
	case npmKind:
		err = b.npm(ctx)
	case pypiKind:
		err = b.pip(ctx)
	case goKind:
		err = b.golang(ctx)
	case debianKind:
		err = b.apt()
	default:
		_, _, err = Parse(kind)
	}
	if err != nil {
		return Found{}, err
	}
	return b.found, nil
}

// AgeEnv is what makes clients choose versions that a minimum age lets through, instead of asking for the newest and being
// refused. Clients that do not know their variable ignore it.
func AgeEnv(kind string, minAge time.Duration, now time.Time) map[string]string {
	moment := now.Add(-minAge).UTC().Format(time.RFC3339)
	switch {
	case minAge <= 0:
		return nil
	case kind == npmKind:
		return map[string]string{"NPM_CONFIG_BEFORE": moment}
	case kind == pypiKind:
		return map[string]string{"PIP_UPLOADED_PRIOR_TO": moment, "UV_EXCLUDE_NEWER": moment}
	}
	return nil
}

// builder collects what is found.
type builder struct {
	host  host
	found Found
}

func (b *builder) note(text string) {
	if !slices.Contains(b.found.Notes, text) {
		b.found.Notes = append(b.found.Notes, text)
	}
}

// endpoint is a registry's address.
type endpoint struct {
	host string
	port int
	path string // without a trailing slash
	tls  bool
}

// maxRules is how many registries of one kind a host may have; more is a broken file.
const maxRules = 64

// add makes a rule for the endpoint, once.
func (b *builder) add(kind string, e endpoint) {
	rule := rung.EgressRule{
		Name:       kind + " registry " + e.host + e.path,
		Host:       e.host,
		Ports:      []int{e.port},
		RequireTLS: e.tls,
		Registry:   &rung.Registry{Kind: kind, Prefix: e.path},
	}
	if len(b.found.Rules) >= maxRules {
		b.note("more than " + strconv.Itoa(maxRules) + " " + kind + " registries are configured; the rest is left out")
		return
	}
	for _, have := range b.found.Rules {
		if have.Name == rule.Name && have.Ports[0] == e.port {
			return
		}
	}
	b.found.Rules = append(b.found.Rules, rule)
}

// endpoint reads a registry's URL from a client's configuration.
func (b *builder) endpoint(kind, text string) (endpoint, error) {
	bad := func(why string) (endpoint, error) {
		return endpoint{}, rung.Errorf(rung.KindInvalid, "%s on this host is configured with a registry whose URL %s", kind, why).
			WithHint("correct the client's configuration, or write the rule by hand in a policy file")
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return bad("cannot be read") // the text may hold a password, so it is not repeated
	}
	e := endpoint{host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), path: strings.TrimRight(u.EscapedPath(), "/")}
	switch u.Scheme {
	case "https":
		e.tls, e.port = true, 443
	case "http":
		e.port = 80
	default:
		return bad("is neither http nor https")
	}
	if u.Port() != "" {
		if e.port, err = strconv.Atoi(u.Port()); err != nil || e.port < 1 || e.port > 65535 {
			return bad("has no right port")
		}
	}
	switch {
	case !dnsName(e.host):
		return bad("names no host by a DNS name")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("has a query or a fragment")
	}
	if u.User != nil {
		b.note("the " + kind + " registry " + e.host + " is configured with a password in its URL: it stays outside; give it with --secret NAME@" + e.host)
	}
	return e, nil
}

// noClient is the error when neither settings nor the client itself tell the registry.
func noClient(kind, client, variable string) error {
	return rung.Errorf(rung.KindUnavailable, "which %s registry to allow is not known: %s on this host is not configured, and is not there to be asked", kind, client).
		WithHint("set " + variable + ", or install " + client + " on this host")
}

// url is the endpoint as a client is told it.
func (e endpoint) url() string {
	scheme, usual := "https", 443
	if !e.tls {
		scheme, usual = "http", 80
	}
	port := ""
	if e.port != usual {
		port = ":" + strconv.Itoa(e.port)
	}
	return scheme + "://" + e.host + port + e.path
}

// dnsName holds for plain ASCII names; an address in whatever spelling ends in a number and is none.
func dnsName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
		last = label
	}
	return last[0] < '0' || last[0] > '9'
}
