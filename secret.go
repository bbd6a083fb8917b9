package rung

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultAgent is the agent of a sandbox whose caller named none.
const DefaultAgent = "default"

// Caps of secrets. What is stored may be longer or shorter than what goes into requests: a shorter one would occur in answers
// by chance and could not be masked there, a longer one makes masking look far behind.
const (
	MaxSecretValue    = 64 << 10 // bytes of one value
	MinSecretSent     = 8        // bytes of one that a request carries
	MaxSecretSent     = 8 << 10  // the same
	MaxSecretBindings = 64       // of one sandbox
	MaxSecretHosts    = 32       // of one binding
)

// A placeholder is what stands in the sandbox for a value: the prefix and 32 of a-z2-7, 160 random bits.
const (
	PlaceholderPrefix = "rung-secret-"
	PlaceholderLen    = len(PlaceholderPrefix) + 32
)

// IsPlaceholder reports whether s is one placeholder and nothing else.
func IsPlaceholder(s string) bool {
	if len(s) != PlaceholderLen || !strings.HasPrefix(s, PlaceholderPrefix) {
		return false
	}
	for _, c := range []byte(s[len(PlaceholderPrefix):]) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// SecretBinding says to which hosts the value of one secret may go, and in which place of a request. By default the gate
// replaces the placeholder wherever a header has it, also inside the base64 of basic authentication.
type SecretBinding struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"` // exact names or *.suffix, lower case, ASCII, no port
	// Header, if not "", is the one header that the placeholder may stand in; in another it counts as going elsewhere. With
	// Format the gate itself sets that header, on each request to the hosts that lacks it, to Format with the value for {}.
	Header string `json:"header,omitempty"`
	Format string `json:"format,omitempty"`
	// Basic, if set, narrows the headers to Authorization: Basic: the placeholder must stand in its user or its password.
	Basic bool `json:"basic,omitempty"`
	Query bool `json:"query,omitempty"` // also in the URL's query
	Body  bool `json:"body,omitempty"`  // also in the request's body
	// SigV4, if not nil, excludes all of the above: the gate signs each request, the value is a key pair (see
	// ParseAWSCredentials).
	SigV4 *SigV4 `json:"sigv4,omitempty"`
}

// SigV4 is the scope of AWS's request signature, version 4.
type SigV4 struct {
	Service string `json:"service"` // such as "s3"
	Region  string `json:"region"`  // such as "eu-central-1"
}

// SecretValue is a secret's bytes. It prints as a mark by every verb of fmt. As JSON it is the value in base64: a lease goes
// from the broker to the gate that way, and nothing else may be made of it.
type SecretValue []byte

const redacted = "[secret]"

// String implements fmt.Stringer.
func (SecretValue) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (SecretValue) GoString() string { return redacted }

// Format implements fmt.Formatter: also %x, %d and %q tell nothing.
func (SecretValue) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// Zero overwrites the bytes.
func (v SecretValue) Zero() { clear(v) }

// LeasedSecret is one binding with its value, for the time of a lease.
type LeasedSecret struct {
	SecretBinding
	Placeholder string      `json:"placeholder"` // what the sandbox has instead
	Value       SecretValue `json:"value"`
}

// String implements fmt.Stringer; without it, Format of an embedded or nested value would depend on the verb.
func (s LeasedSecret) String() string {
	return fmt.Sprintf("%s for %s: %s", s.Name, strings.Join(s.Hosts, ","), redacted)
}

// GoString implements fmt.GoStringer.
func (s LeasedSecret) GoString() string { return s.String() }

// Format implements fmt.Formatter.
func (s LeasedSecret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// Lease is what the broker lends to one sandbox's gate until the sandbox ends, its agent is revoked or Expires has come.
type Lease struct {
	ID       string           `json:"id"`
	Sandbox  string           `json:"sandbox"`
	Agent    string           `json:"agent"`
	Task     string           `json:"task,omitempty"`
	Issued   time.Time        `json:"issued"`
	Expires  time.Time        `json:"expires"`
	Secrets  []LeasedSecret   `json:"secrets,omitempty"`
	Identity []LeasedIdentity `json:"identity,omitempty"`
}

// String implements fmt.Stringer.
func (l Lease) String() string {
	return fmt.Sprintf("lease %s of %s for agent %s: %d secrets", l.ID, l.Sandbox, l.Agent, len(l.Secrets))
}

// GoString implements fmt.GoStringer.
func (l Lease) GoString() string { return l.String() }

// Format implements fmt.Formatter.
func (l Lease) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(l.String())) }

// Zero overwrites all values.
func (l *Lease) Zero() {
	for _, s := range l.Secrets {
		s.Value.Zero()
	}
	for _, id := range l.Identity {
		for _, t := range id.Tokens {
			t.Token.Zero()
		}
	}
}

// LeasedIdentity is the task's identity for one audience: signed tokens that follow each other, each valid for minutes. The
// gate gets tokens and no key, so whoever reads its memory has this task's identity until the lease ends and nobody else's.
type LeasedIdentity struct {
	Audience string          `json:"audience"`
	Tokens   []IdentityToken `json:"tokens"` // by From; each overlaps its follower
}

// IdentityToken is one token; Token is a JWT in its compact form (RFC 7519).
type IdentityToken struct {
	From  time.Time   `json:"from"`  // when to begin using it; its nbf is earlier, for clocks that are behind
	Until time.Time   `json:"until"` // its exp
	Token SecretValue `json:"token"`
}

// Format implements fmt.Formatter.
func (t IdentityToken) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// Current returns the newest token that is valid now, nil if there is none.
func (id LeasedIdentity) Current(now time.Time) SecretValue {
	for _, v := range slices.Backward(id.Tokens) {
		if t := v; !now.Before(t.From) {
			if now.Before(t.Until) {
				return t.Token
			}
			return nil
		}
	}
	return nil
}

// ValidSecretName reports whether s may name a secret: 1 to 64 of [A-Za-z0-9_.-], the first a letter, a digit or '_'. The
// error does not repeat s, which may be a value in the wrong place.
func ValidSecretName(s string) error {
	if s == "" || len(s) > 64 {
		return Errorf(KindInvalid, "a secret's name has 1 to 64 characters")
	}
	for i, c := range []byte(s) {
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !word && (i == 0 || c != '.' && c != '-') {
			return Errorf(KindInvalid, "a secret's name has only A-Z, a-z, 0-9, '_', '.' and '-', and begins with none of the last two").
				WithHint("a value is never given on a command line, where every user of the host sees it; see rung secret add --help")
		}
	}
	return nil
}
