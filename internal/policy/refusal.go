package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// Err is nil for a decision that allows, else the refusal: what was asked, each obstacle, and in the hint what would change
// it: the host's remedies, the rungs this host does provide, and how to accept one.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	var texts []string
	kind := rung.KindRefused
	for _, r := range d.Reasons {
		if r.Code == UnknownThreat || r.Code == UnknownRung {
			kind = rung.KindInvalid
		}
		if r.Code != Stronger && r.Code != AcceptedLower {
			texts = append(texts, r.Text)
		}
	}
	if kind == rung.KindInvalid {
		return rung.Errorf(kind, "%s", strings.Join(texts, "; ")).
			WithHint("threats: " + names(rung.Threats()) + "; rungs: " + names(rung.Rungs()))
	}
	return rung.Errorf(kind, "refused to run %s code: %s", d.Threat, strings.Join(texts, "; ")).WithHint(d.hint())
}

func (d Decision) hint() string {
	var parts []string
	for _, r := range d.Reasons {
		a := d.host[r.Rung]
		switch {
		case r.Code == Unavailable && a.Remedy != "":
			parts = append(parts, "for "+string(r.Rung)+": "+a.Remedy)
		case r.Code == Emulated:
			parts = append(parts, "to accept emulation: --allow-emulated")
		case r.Code == NotASandbox:
			parts = append(parts, "to run without any wall: --rung none --i-know-this-is-not-a-sandbox")
		}
	}
	return strings.Join(append(parts, d.relax()...), "; ")
}

// relax tells the ways that are open on this host now, weakest demands last.
func (d Decision) relax() []string {
	can := d.provides()
	if len(can) == 0 {
		return []string{"none of the rungs that were checked is available here: see rung ladder"}
	}
	parts := []string{"this host provides " + names(can)}
	listed := slices.DeleteFunc(slices.Clone(can), func(r rung.Rung) bool { return !slices.Contains(List(d.Threat), r) })
	switch {
	case d.Threat != rung.Trusted && d.Threat != rung.Adversarial && len(listed) == 0 && slices.Contains(can, rung.Hardened):
		parts = append(parts, "if the code is vetted: --threat trusted")
	case len(listed) > 0:
		parts = append(parts, "acceptable for "+string(d.Threat)+" code: --rung "+string(listed[0]))
	}
	if r := d.acceptHint(can); r != "" {
		parts = append(parts, "to accept a weaker wall and have it recorded: --rung "+string(r)+" --accept-lower "+string(r))
	}
	return parts
}

// acceptHint is the rung to name in the example of an exception: the pinned one if the host has it, else the strongest.
func (d Decision) acceptHint(can []rung.Rung) rung.Rung {
	below := slices.DeleteFunc(slices.Clone(can), func(r rung.Rung) bool {
		return slices.Contains(List(d.Threat), r) || d.stronger(r)
	})
	if slices.Contains(below, d.request.Pinned) {
		return d.request.Pinned
	}
	if len(below) == 0 {
		return ""
	}
	return below[len(below)-1]
}

// provides lists the available rungs, weakest first, without none, which no advice should lead to.
func (d Decision) provides() []rung.Rung {
	var can []rung.Rung
	for _, r := range rung.Rungs() {
		if a := d.host[r]; r != rung.None && a.OK && (!a.Emulated || d.request.AllowEmulated) {
			can = append(can, r)
		}
	}
	return can
}

func names[T ~string](list []T) string {
	s := make([]string, len(list))
	for i, v := range list {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func quote(s string) string { return strconv.Quote(s) }
