// Package dns is the only name server that a sandbox has. It answers addresses of names that some rule names, and nothing
// else: all else is refused without a question to anybody, and is a denial. What it answers is judged and pinned, so that
// a connection to the address can be told to be one to the name.
//
// Decisions:
//   - A and AAAA of class IN are the only questions that reach an upstream server, and what reaches it is the name alone:
//     no option, no client subnet, no spelling of the guest's (letters are folded before).
//   - A refused name is NXDOMAIN with an Extended DNS Error (RFC 8914) that names the flag, so that clients stop asking.
//   - Other types of an allowed name have no data (NOERROR): HTTPS and SVCB (RFC 9460) so that no client gets keys for an
//     encrypted ClientHello or another port; SRV so that apt and others fall back to the name itself; TXT, NULL, ANY and
//     the like, which carry tunnels, are denials as well.
//   - Below a wildcard the guest chooses the name, so that each lookup could carry data out: see the caps.
//   - The answer is flat: the addresses, under the name and in the spelling that was asked (so 0x20 checks pass), without
//     the CNAMEs that led there.
package dns

import (
	"context"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/rung-dev/rung"
)

// Caps on what one sandbox can ask.
const (
	// MaxWildcardNames is how many different names below one wildcard are looked up. With the two caps below, names carry
	// 16 KB out in a sandbox's life at most.
	MaxWildcardNames = 200
	// MaxWildcardPart is how long the part before the wildcard's suffix may be, MaxLabel each of its labels.
	MaxWildcardPart = 80
	MaxLabel        = 40
	// A label of EntropyFrom or more characters with more than MaxEntropy bits of Shannon entropy per character is data:
	// random base32 of that length has 4.0 to 4.5, hyphenated words and hexadecimal below 3.9.
	EntropyFrom = 24
	MaxEntropy  = 4.0

	MaxWildcards = 1024 // wildcards whose names are counted; further ones have no names
	MaxCached    = 512  // answers kept
	MaxUpstream  = 32   // lookups at upstream servers at once; further ones wait for a place
	MaxQuery     = 4096 // bytes of a question
	MaxUDP       = 4096 // bytes of an answer by UDP, if the client takes as many
	MaxAnswers   = 32   // addresses in an answer
)

// Times of an answer.
const (
	MinTTL = time.Second
	MaxTTL = time.Hour
	// MinPin is how long an answer is pinned at least: clients use an address for some time after its TTL.
	MinPin = time.Minute
	// FailureTTL is how long a failure is answered again without asking.
	FailureTTL = 5 * time.Second
	// LookupTimeout bounds a lookup, the wait for a place included.
	LookupTimeout = 10 * time.Second
)

// Verdict is what the policy says about a name.
type Verdict struct {
	Allow    bool
	Wildcard string // the suffix, without "*.", if the rule that allows the name is a wildcard
	Rule     string // the rule that allows it, or that came nearest
	Reason   string // of a refusal
	Hint     string // of a refusal: the flag that would allow it
}

// Config is what a Server works with. All members but Denied must be set.
type Config struct {
	// Normal returns the one normal form of a name, or why it has none.
	Normal func(name string) (string, error)
	// Lookup says whether a name in normal form may be resolved.
	Lookup func(name string) Verdict
	// Judge says why an address must not be handed out for the name; nil where it may.
	Judge func(name string, a netip.Addr) error
	// Resolve looks a name up, see package resolve. ErrNoName tells that there is none.
	Resolve func(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error)
	// Pin is told what was handed out, before it is.
	Pin func(name string, addrs []netip.Addr, ttl time.Duration)
	// Spend takes one lookup from the budget.
	Spend  func() error
	Denied func(rung.NetDenial)
}

// Server answers one sandbox's questions.
type Server struct {
	Config
	upstream *upstream
	wild     *wildcards
}

// New makes a sandbox's server.
func New(c Config) *Server {
	if c.Denied == nil {
		c.Denied = func(rung.NetDenial) {}
	}
	return &Server{Config: c, upstream: newUpstream(c), wild: &wildcards{names: map[string]map[string]bool{}}}
}

// Answer answers a message of the guest, or returns nil where none is due: it was no question.
func (s *Server) Answer(ctx context.Context, query []byte, tcp bool) []byte {
	q, reply := parse(query)
	if reply == nil {
		return nil
	}
	if q != nil {
		s.reply(ctx, q, reply)
	}
	return pack(q, reply, tcp)
}

// Resolve resolves a name for a client of the gate that does not ask by DNS (a proxy's), by the same rules: the addresses
// are judged and pinned, and each name spends a lookup. The error's kind is KindRefused where the policy or the budget
// refused it; it was a denial already.
func (s *Server) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if err := s.Spend(); err != nil {
		s.Denied(rung.NetDenial{Layer: "budget", Host: name, Reason: err.Error(), Hint: rung.HintOf(err)})
		return nil, rung.Errorf(rung.KindRefused, "%s", err.Error()).WithHint(rung.HintOf(err))
	}
	out := s.look(ctx, name)
	switch {
	case out.denial != nil:
		s.Denied(*out.denial)
		return nil, rung.Errorf(rung.KindRefused, "%s", out.denial.Reason).WithHint(out.denial.Hint)
	case out.err != nil:
		return nil, out.err
	}
	return out.addrs, nil
}

// reply fills the reply to one question.
func (s *Server) reply(ctx context.Context, q *question, m *dns.Msg) {
	if err := s.Spend(); err != nil {
		s.refuse(q, m, dns.RcodeRefused, rung.NetDenial{Layer: "budget", Reason: err.Error(), Hint: rung.HintOf(err)})
		return
	}
	if q.class != dns.ClassINET {
		s.refuse(q, m, dns.RcodeRefused, rung.NetDenial{Layer: "dns", Host: q.shown(), Reason: "a question of a class other than IN"})
		return
	}
	name, err := s.normal(q.name)
	if err != nil {
		s.refuse(q, m, dns.RcodeNameError, rung.NetDenial{Layer: "dns", Host: q.shown(), Reason: err.Error()})
		return
	}
	if q.kind != dns.TypeA && q.kind != dns.TypeAAAA {
		s.other(q, name, m)
		return
	}
	out := s.look(ctx, name)
	switch {
	case out.denial != nil:
		s.refuse(q, m, dns.RcodeNameError, *out.denial)
	case out.missing:
		m.Rcode = dns.RcodeNameError
	case out.err != nil:
		m.Rcode = dns.RcodeServerFailure
		q.explain(dns.ExtendedErrorCodeNetworkError, out.err.Error())
	default:
		q.addresses(m, out)
	}
}

// other answers a question for something that is no address: there is none.
func (s *Server) other(q *question, name string, m *dns.Msg) {
	switch q.kind {
	case dns.TypeSRV, dns.TypeHTTPS, dns.TypeSVCB:
		// A service's name is its host's behind labels with an underscore (RFC 2782, RFC 9460).
		for strings.HasPrefix(name, "_") && strings.Contains(name, ".") {
			_, name, _ = strings.Cut(name, ".")
		}
	}
	v := s.Lookup(name)
	if !v.Allow {
		s.refuse(q, m, dns.RcodeNameError, refusal(name, v))
		return
	}
	switch q.kind {
	case dns.TypeSRV, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCNAME, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypePTR,
		dns.TypeDS, dns.TypeDNSKEY, dns.TypeCAA, dns.TypeNAPTR, dns.TypeTLSA:
		return
	}
	kind := dns.TypeToString[q.kind]
	if kind == "" {
		kind = "unknown"
	}
	d := rung.NetDenial{Layer: "dns", Host: name, Rule: v.Rule, Reason: "only addresses are looked up, not records of type " + kind}
	q.explain(dns.ExtendedErrorCodeFiltered, d.Reason)
	s.Denied(d)
}

// look is the whole judgement of one name in normal form.
func (s *Server) look(ctx context.Context, name string) outcome {
	v := s.Lookup(name)
	if !v.Allow {
		d := refusal(name, v)
		return outcome{denial: &d}
	}
	if v.Wildcard != "" {
		if why := s.wild.admit(name, v.Wildcard); why != "" {
			return outcome{denial: &rung.NetDenial{
				Layer: "dns", Host: name, Rule: v.Rule, Reason: why, Hint: "--allow " + name + " names it exactly",
			}}
		}
	}
	out := s.upstream.look(ctx, name)
	if out.denial != nil {
		d := *out.denial
		d.Rule = v.Rule
		out.denial = &d
	}
	if len(out.addrs) > 0 {
		// Pinned with every answer, kept ones too: the guest may use it from now on for so long.
		s.Pin(name, out.addrs, max(out.ttl, MinPin))
	}
	return out
}

func (s *Server) normal(wire string) (string, error) {
	if strings.ContainsRune(wire, '\\') { // the library's escape of a byte that no host name has
		return "", rung.Errorf(rung.KindRefused, "a name with bytes that no host name has")
	}
	return s.Normal(strings.TrimSuffix(wire, "."))
}

func refusal(name string, v Verdict) rung.NetDenial {
	return rung.NetDenial{Layer: "dns", Host: name, Rule: v.Rule, Reason: v.Reason, Hint: v.Hint}
}

// refuse denies a question: the client is told why, if it can hear it.
func (s *Server) refuse(q *question, m *dns.Msg, code int, d rung.NetDenial) {
	m.Rcode = code
	text := d.Reason
	if d.Hint != "" {
		text += "; " + d.Hint
	}
	q.explain(dns.ExtendedErrorCodeBlocked, text)
	s.Denied(d)
}

// entropy is the Shannon entropy of s in bits per character.
func entropy(s string) float64 {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	h := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			h -= p * math.Log2(p)
		}
	}
	return h
}
