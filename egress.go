package rung

import "time"

// EgressMode says whether a sandbox has a network and what passes without a rule.
type EgressMode string

// The modes. The zero value is no mode: a caller without a choice gets the threat's default (see internal/policy).
const (
	EgressNone EgressMode = "none" // no interface but loopback exists
	EgressDeny EgressMode = "deny" // an interface exists, and nothing passes that no rule names
	EgressOpen EgressMode = "open" // public addresses pass; private, link-local and metadata addresses never do
)

// EgressModes lists all modes, strictest first.
func EgressModes() []EgressMode { return []EgressMode{EgressNone, EgressDeny, EgressOpen} }

// ParseEgressMode returns the mode of that exact name, or a KindInvalid error that lists the names.
func ParseEgressMode(s string) (EgressMode, error) {
	for _, m := range EgressModes() {
		if string(m) == s {
			return m, nil
		}
	}
	return "", Errorf(KindInvalid, "unknown egress mode %q", s).WithHint("one of: " + join(EgressModes()))
}

// Egress is the network policy of one sandbox: what may leave it. Nil and empty Rules both mean that nothing is named.
type Egress struct {
	Mode   EgressMode   `json:"mode" yaml:"mode"`
	Rules  []EgressRule `json:"rules,omitempty" yaml:"rules"`
	Budget NetBudget    `json:"budget" yaml:"budget"`
}

// EgressRule names one destination. A request passes when a rule names its destination and all the rule's conditions hold.
type EgressRule struct {
	Name string `json:"name,omitempty" yaml:"name"` // what denials and events call it; by default its own text
	// Exactly one of Host and CIDR is set. Host is an exact DNS name or *.suffix (which does not name the suffix itself), in
	// lower case, in its ASCII form, without a trailing dot.
	Host string `json:"host,omitempty" yaml:"host"`
	CIDR string `json:"cidr,omitempty" yaml:"cidr"`
	// Ports are the destination ports; none means 443, and 80 unless RequireTLS. A rule of protocol tcp must name its own.
	Ports []int `json:"ports,omitempty" yaml:"ports"`
	// Protocol is "http" (HTTP, or TLS with a name; the default) or "tcp" (any bytes).
	Protocol   string `json:"protocol,omitempty" yaml:"protocol"`
	RequireTLS bool   `json:"require_tls,omitempty" yaml:"require_tls"`
	// The conditions below are about one request and so need TLS to be opened. Nil means no condition; an empty list
	// matches nothing.
	Methods []string `json:"methods,omitzero" yaml:"methods"`
	// Paths are patterns on the normalised path: exact, or with * (within one segment) and ** (any rest) as whole parts.
	Paths     []string   `json:"paths,omitzero" yaml:"paths"`
	WebSocket bool       `json:"websocket,omitempty" yaml:"websocket"` // lets the one upgrade through that is known
	Approve   bool       `json:"approve,omitempty" yaml:"approve"`     // each request waits for its owner's yes
	Secrets   []string   `json:"secrets,omitempty" yaml:"secrets"`     // names of secrets that may be sent there
	Identity  string     `json:"identity,omitempty" yaml:"identity"`   // audience of a token of the task's own identity, sent as bearer
	Limits    *NetBudget `json:"limits,omitempty" yaml:"limits"`       // of this rule alone
	Registry  *Registry  `json:"registry,omitempty" yaml:"registry"`   // only what a package client reads
}

// Registry makes a rule speak a package registry's protocol: read-only, by package.
type Registry struct {
	Kind   string `json:"kind" yaml:"kind"`               // npm, pypi, go or debian
	Prefix string `json:"prefix,omitempty" yaml:"prefix"` // path of the registry on its host, without a trailing slash
	// Packages are the names that may be read. Nil means all, an empty list none.
	Packages []string      `json:"packages,omitzero" yaml:"packages"`
	MinAge   time.Duration `json:"min_age_ns,omitempty" yaml:"-"` // a version younger than this is refused
}

// NetBudget caps the traffic of a sandbox or of one rule. Zero members get DefaultNetBudget's values for a sandbox and no
// cap of their own for a rule.
type NetBudget struct {
	Connections int     `json:"connections,omitempty" yaml:"connections"`                       // open at once
	Rate        float64 `json:"connections_per_second,omitempty" yaml:"connections_per_second"` // new ones, over a burst of as many as one second's worth or 10
	BytesOut    int64   `json:"bytes_out,omitempty" yaml:"bytes_out"`
	BytesIn     int64   `json:"bytes_in,omitempty" yaml:"bytes_in"`
	Requests    int64   `json:"requests,omitempty" yaml:"requests"` // HTTP requests
	Lookups     int64   `json:"lookups,omitempty" yaml:"lookups"`   // names asked for, allowed or not
}

// DefaultNetBudget is what a sandbox gets without a budget of its own: enough for an installation of many packages.
func DefaultNetBudget() NetBudget {
	return NetBudget{Connections: 256, Rate: 200, BytesOut: 1 << 30, BytesIn: 10 << 30, Requests: 100_000, Lookups: 50_000}
}

// NetDenial is one kind of refused network use, with how often it was tried.
type NetDenial struct {
	Layer    string    `json:"layer"`              // link, icmp, udp, dns, tcp, tls, http, budget, secret, registry
	Host     string    `json:"host,omitempty"`     // the name asked for, where there was one
	Address  string    `json:"address,omitempty"`  // the address, where there was one
	Port     int       `json:"port,omitempty"`     // destination port
	Request  string    `json:"request,omitempty"`  // "METHOD /path", normalised, without query
	Rule     string    `json:"rule,omitempty"`     // the rule that came nearest
	Reason   string    `json:"reason"`             // one sentence
	Hint     string    `json:"hint,omitempty"`     // the flag or policy line that would allow it; "" where nothing would
	Severity string    `json:"severity,omitempty"` // "high" for a secret on its way elsewhere
	Count    int64     `json:"count"`
	First    time.Time `json:"first"`
}

// Package is one name and version fetched through a registry rule.
type Package struct {
	Registry string `json:"registry"`         // npm, pypi, go, debian
	Name     string `json:"name"`             // as the registry spells it
	Version  string `json:"version"`          // "" where the file's name does not tell
	Digest   string `json:"digest,omitempty"` // "sha256:…" of the bytes that passed
}

// NetUsage is what a sandbox's network was used for.
type NetUsage struct {
	Connections int64 `json:"connections"`
	BytesOut    int64 `json:"bytes_out"`
	BytesIn     int64 `json:"bytes_in"`
	Requests    int64 `json:"requests"`
	Lookups     int64 `json:"lookups"`
}

// NetAllowed is one destination that was used, for the record.
type NetAllowed struct {
	Host    string `json:"host,omitempty"`
	Address string `json:"address,omitempty"` // the address dialled
	Port    int    `json:"port"`
	Rule    string `json:"rule"`
	// Checked says who judged the address: "gate", or "by-proxy" where an upstream proxy resolves names.
	Checked string `json:"address_checked"`
	Count   int64  `json:"count"`
}
