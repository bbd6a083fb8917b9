// Package policy decides which rung a piece of code runs on: a pure function from what is known about the code and what this
// host can do to a decision with all its reasons. It is deny by default: a rung is chosen only when it is acceptable for
// the threat (or was accepted by name) and available here.
//
// # What is acceptable
//
// Each threat has a list, best first (see List). Without a pin the first available rung of the list is taken. A pinned
// rung is taken when it is on the list, even if a better one is available, or when it is stronger by the order of the
// ladder than the weakest rung listed. One exception to the order: remote never counts as stronger where the threat
// demands that no network exists, because nobody here can verify that on somebody else's machine.
//
// Everything else is below the list and refused unless the exception is written out: Request.AcceptLower names that very
// rung. Without a pin an accepted rung is the last resort after the list,
// and an exception only if it is lower. None is never a last resort: it is taken only when it
// is pinned and the caller says that it is no sandbox, which is exception enough.
//
// # Refusals
//
// A refusal is always of kind refused (exit code 126), also when the list is fine and the host is the obstacle: for the caller
// both mean that nothing ran, that nothing is broken, and that the answer stays the same until the request or the host
// changes. Exit code 125 stays what it says, an error of rung's own. An unknown name is of kind invalid.
package policy

import (
	"slices"

	"github.com/rung-dev/rung"
)

// Request is what the caller knows and wants. The zero value asks for generated code on the best rung there is.
type Request struct {
	Threat        rung.Threat // "" is generated
	Pinned        rung.Rung   // "" is no pin
	AcceptLower   rung.Rung   // the rung below the list that the caller accepts by name
	AllowEmulated bool        // a microvm without hardware virtualisation counts as available
	IKnow         bool        // the caller knows that none is not a sandbox
}

// Availability is whether this host can provide a rung now. Why and Remedy are set when it cannot.
type Availability struct {
	OK       bool
	Why      string
	Remedy   string
	Emulated bool // only by emulation, which is slow and no boundary its makers vouch for
}

// Code names a reason for machines.
type Code string

// The codes of reasons.
const (
	Chosen        Code = "chosen"         // this rung is taken
	Stronger      Code = "stronger"       // pinned, not listed, but above the list's weakest
	AcceptedLower Code = "accepted_lower" // below the list and accepted by name
	BelowList     Code = "below_list"     // pinned below the list without an exception
	OtherAccepted Code = "other_accepted" // the exception names another rung
	NotASandbox   Code = "not_a_sandbox"  // none without the caller's word
	Unverifiable  Code = "unverifiable"   // remote where no network may exist
	Unavailable   Code = "unavailable"    // this host cannot
	Emulated      Code = "emulated"       // this host can only by emulation
	UnknownThreat Code = "unknown_threat"
	UnknownRung   Code = "unknown_rung"
)

// Reason is one step of the decision, about one rung or (Rung "") about the request.
type Reason struct {
	Code Code      `json:"code"`
	Rung rung.Rung `json:"rung,omitempty"`
	Text string    `json:"text"`
}

// Decision is the outcome. Rung is "" unless Allowed.
type Decision struct {
	Rung     rung.Rung
	Threat   rung.Threat
	Egress   rung.EgressMode // without a wish of the caller: the most this kind of code gets without a rule
	Nested   bool            // the microvm must have a second wall inside
	Allowed  bool
	Accepted string // the rung below the list that was accepted by name and is used; goes into the record
	Reasons  []Reason

	request Request
	host    map[rung.Rung]Availability
}

// List returns the acceptable rungs of a threat, best first; nil for an unknown threat.
func List(t rung.Threat) []rung.Rung {
	switch t {
	case rung.Trusted:
		return []rung.Rung{rung.Hardened, rung.GVisor, rung.MicroVM}
	case rung.Generated:
		return []rung.Rung{rung.MicroVM, rung.GVisor}
	case rung.Untrusted:
		return []rung.Rung{rung.MicroVM, rung.Remote}
	case rung.Adversarial:
		return []rung.Rung{rung.MicroVM}
	case rung.Compute:
		return []rung.Rung{rung.Wasm, rung.MicroVM, rung.GVisor}
	}
	return nil
}

func egress(t rung.Threat) rung.EgressMode {
	if t == rung.Adversarial || t == rung.Compute {
		return rung.EgressNone
	}
	return rung.EgressDeny
}

// Candidates are the rungs whose availability Decide looks at, in its order, so that a caller need not check the others.
func Candidates(req Request) []rung.Rung {
	if req.Pinned != "" {
		return []rung.Rung{req.Pinned}
	}
	list := List(req.threat())
	if lower := req.AcceptLower; lower != "" && lower != rung.None && list != nil && !slices.Contains(list, lower) {
		list = append(list, lower)
	}
	return list
}

func (r Request) threat() rung.Threat {
	if r.Threat == "" {
		return rung.Generated
	}
	return r.Threat
}

// Decide chooses. A rung missing in host is unavailable.
func Decide(req Request, host map[rung.Rung]Availability) Decision {
	d := Decision{Threat: req.threat(), request: req, host: host}
	d.Egress, d.Nested = egress(d.Threat), d.Threat == rung.Adversarial
	if !d.valid() {
		return d
	}
	for _, r := range Candidates(req) {
		if d.acceptable(r) && d.available(r) {
			d.choose(r)
			break
		}
	}
	return d
}

func (d *Decision) valid() bool {
	if List(d.Threat) == nil {
		d.because(UnknownThreat, "", "unknown threat "+quote(string(d.Threat)))
	}
	for _, r := range []rung.Rung{d.request.Pinned, d.request.AcceptLower} {
		if r != "" && !slices.Contains(rung.Rungs(), r) {
			d.because(UnknownRung, "", "unknown rung "+quote(string(r)))
		}
	}
	return len(d.Reasons) == 0
}

// acceptable judges the rung against the threat, not the host, and collects why.
func (d *Decision) acceptable(r rung.Rung) bool {
	if slices.Contains(List(d.Threat), r) {
		return true
	}
	if r == rung.None {
		return d.acceptNone()
	}
	if d.stronger(r) {
		d.because(Stronger, r, string(r)+" is not on the list for "+string(d.Threat)+" code but stronger than "+string(weakest(d.Threat)))
		return true
	}
	if d.request.AcceptLower == r {
		d.because(AcceptedLower, r, string(r)+" is below the list for "+string(d.Threat)+" code and accepted by name")
		return true
	}
	d.refuse(r)
	return false
}

func (d *Decision) acceptNone() bool {
	if d.request.Pinned == rung.None && d.request.IKnow {
		d.because(AcceptedLower, rung.None, "none is no sandbox, and the caller says so")
		return true
	}
	d.because(NotASandbox, rung.None, "none is no sandbox: the code would run with the caller's own rights")
	return false
}

func (d *Decision) refuse(r rung.Rung) {
	switch {
	case r == rung.Remote && above(r, weakest(d.Threat)):
		d.because(Unverifiable, r, "no network may exist for "+string(d.Threat)+" code, and on remote nobody here can verify that")
	default:
		d.because(BelowList, r, string(r)+" is below what "+string(d.Threat)+" code may run on: "+names(List(d.Threat)))
	}
	if lower := d.request.AcceptLower; lower != "" {
		d.because(OtherAccepted, lower, "the accepted rung is "+string(lower)+", not "+string(r))
	}
}

// stronger reports whether r, which is not listed, stands above the weakest listed rung.
func (d *Decision) stronger(r rung.Rung) bool {
	if r == rung.Remote && d.Egress == rung.EgressNone {
		return false
	}
	return above(r, weakest(d.Threat))
}

func weakest(t rung.Threat) rung.Rung {
	return slices.MinFunc(List(t), func(a, b rung.Rung) int {
		return slices.Index(rung.Rungs(), a) - slices.Index(rung.Rungs(), b)
	})
}

func above(a, b rung.Rung) bool { return slices.Index(rung.Rungs(), a) > slices.Index(rung.Rungs(), b) }

func (d *Decision) available(r rung.Rung) bool {
	a, known := d.host[r]
	switch {
	case !known:
		d.because(Unavailable, r, string(r)+" is unavailable: not checked on this host")
	case !a.OK:
		d.because(Unavailable, r, string(r)+" is unavailable: "+or(a.Why, "no reason given"))
	case a.Emulated && !d.request.AllowEmulated:
		d.because(Emulated, r, string(r)+" is available by emulation only, which nobody vouches for as a boundary")
	default:
		return true
	}
	return false
}

func (d *Decision) choose(r rung.Rung) {
	d.Rung, d.Allowed = r, true
	if r == rung.None || !slices.Contains(List(d.Threat), r) && !d.stronger(r) {
		d.Accepted = string(r)
	}
	text := string(r) + " is the best available rung for " + string(d.Threat) + " code"
	if d.request.Pinned != "" {
		text = string(r) + " was asked for"
	} else if d.Accepted != "" {
		text = string(r) + " is the accepted last resort"
	}
	d.because(Chosen, r, text)
}

func (d *Decision) because(code Code, r rung.Rung, text string) {
	d.Reasons = append(d.Reasons, Reason{Code: code, Rung: r, Text: text})
}
