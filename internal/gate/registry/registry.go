// Package registry judges requests to package registries: which of them only read, and which package they read.
//
// A rule with a registry speaks one protocol (npm, pypi, go, debian) and passes its read paths, nothing else: a host that
// serves packages also serves publishing, logins and searches. A request is taken apart into its parts, judged by them, and
// spelled anew from them for upstream (Verdict.Path), so nothing of the sender's own spelling travels.
//
// What it does not do: a registry still learns the names a sandbox asks for, so without a list of packages a name is a
// message of up to some hundred bytes to the registry itself.
package registry

import (
	"net/http"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// The protocols.
const (
	NPM    = "npm"
	PyPI   = "pypi"
	Go     = "go"
	Debian = "debian"
)

// Kinds lists the protocols.
func Kinds() []string { return []string{NPM, PyPI, Go, Debian} }

// Verdict is the judgement of one request.
type Verdict struct {
	Allow bool
	// Pending means that everything but the version's age is in order. Allow is false until Settle has looked it up.
	Pending  bool
	Reason   string // one sentence, when refused
	Hint     string // what would allow it; "" where nothing would
	NotFound bool   // a refusal that the client takes better as 404: it only asks whether something exists
	Path     string // the one spelling to send upstream; there is never a query
	Package  rung.Package
	Metadata bool // the answer describes versions; it is no package

	read read
}

// read is a request taken apart.
type read struct {
	path     string // spelled for upstream
	name     string // package, normalised; "" for what belongs to none
	version  string
	file     bool // the package itself
	metadata bool
}

// Judge judges the requests of one rule. It is safe for concurrent use.
type Judge struct {
	kind   string
	host   string
	port   int
	tls    bool
	prefix []string
	names  *names
	minAge time.Duration
	now    func() time.Time
	set    *Set
}

// New makes the judge of a rule that stands alone. Rules that belong together, such as an index and the host of its files,
// are made by one Set.
func New(rule rung.EgressRule) (*Judge, error) { return NewSet().Judge(rule) }

// Judge makes the judge of one more rule.
func (s *Set) Judge(rule rung.EgressRule) (*Judge, error) {
	r := rule.Registry
	if r == nil {
		return nil, rung.Errorf(rung.KindInvalid, "a rule for %s has no registry", rule.Host)
	}
	if rule.Host == "" || strings.ContainsRune(rule.Host, '*') {
		return nil, rung.Errorf(rung.KindInvalid, "a registry rule names one host, not %q", rule.Host+rule.CIDR).
			WithHint("write one rule for each registry's exact host")
	}
	j := &Judge{kind: r.Kind, host: rule.Host, port: portOf(rule), minAge: r.MinAge, now: time.Now, set: s}
	j.tls = rule.RequireTLS || j.port == 443
	var err error
	if j.names, err = newNames(r.Kind, r.Packages); err != nil {
		return nil, err
	}
	if j.prefix, err = parsePrefix(r.Prefix); err != nil {
		return nil, err
	}
	switch {
	case r.MinAge < 0:
		return nil, rung.Errorf(rung.KindInvalid, "min_age of the %s registry %s is negative", r.Kind, rule.Host)
	case r.MinAge > 0 && r.Kind == Debian:
		return nil, rung.Errorf(rung.KindInvalid, "min_age on %s: a Debian archive does not tell when a version was published", rule.Host).
			WithHint("leave min_age out of debian rules, or name a snapshot archive in the host's apt sources")
	}
	return j, s.add(j)
}

func portOf(rule rung.EgressRule) int {
	if len(rule.Ports) > 0 {
		return rule.Ports[0]
	}
	return 443
}

func parsePrefix(prefix string) ([]string, error) {
	if prefix == "" || prefix == "/" {
		return nil, nil
	}
	segments, _, err := split(prefix)
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "registry prefix %q: %w", prefix, err)
	}
	return segments, nil
}

// Request judges one request by its method, its normalised path and its query. It does no I/O.
func (j *Judge) Request(method, path, query string) Verdict {
	if method != http.MethodGet && method != http.MethodHead {
		return j.refuseMethod(method, path)
	}
	if query != "" {
		return Verdict{Reason: "no read of a " + j.kind + " registry has a query"}
	}
	segments, slash, err := split(path)
	if err != nil {
		return Verdict{Reason: err.Error()}
	}
	r, reason := j.parse(segments, slash)
	if reason != "" {
		return Verdict{Reason: reason}
	}
	if r.name != "" && !j.names.allow(r.name) {
		return j.refuseName(r)
	}
	v := Verdict{Path: r.path, Metadata: r.metadata, read: r}
	if r.file && method == http.MethodGet {
		v.Package = rung.Package{Registry: j.kind, Name: r.name, Version: r.version}
	}
	v.Pending = r.file && j.minAge > 0
	v.Allow = !v.Pending
	return v
}

func (j *Judge) parse(segments []string, slash bool) (read, string) {
	switch j.kind {
	case NPM:
		return j.parseNPM(segments)
	case PyPI:
		return j.parsePyPI(segments, slash)
	case Go:
		return j.parseGo(segments)
	default:
		return j.parseDebian(segments)
	}
}

func (j *Judge) refuseMethod(method, path string) Verdict {
	v := Verdict{Reason: "a registry rule only reads: " + quoted(method) + " would change something, or send something"}
	if j.kind == NPM && strings.Contains(path, "/-/npm/v1/security/") {
		v.Reason = "npm's audit sends the list of all installed packages; a registry rule only reads"
		v.Hint = "npm_config_audit=false (npm install works without it)"
	}
	return v
}

func (j *Judge) refuseName(r read) Verdict {
	return Verdict{
		Reason:   j.kind + " package " + r.name + " is not on the list of this rule",
		Hint:     "--registry " + j.kind + ":" + r.name + ", or add it to the rule's packages",
		NotFound: j.kind == Go && j.names.related(r.name),
	}
}

// quoted keeps what a sender wrote readable and short.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == '�' {
			return '?'
		}
		return r
	}, s)
}
