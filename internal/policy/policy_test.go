package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rung-dev/rung"
	"pgregory.net/rapid"
)

// only makes a host that provides exactly these rungs.
func only(can ...rung.Rung) map[rung.Rung]Availability {
	host := make(map[rung.Rung]Availability)
	for _, r := range rung.Rungs() {
		if slices.Contains(can, r) {
			host[r] = Availability{OK: true}
		} else {
			host[r] = Availability{Why: "no " + string(r), Remedy: "install " + string(r)}
		}
	}
	return host
}

// verdict is what happens to each pinned rung on a host that has everything: listed, stronger or refused.
func TestEveryPinOfEveryThreat(t *testing.T) {
	table := map[rung.Threat]string{
		//                 none     process  container hardened gvisor   wasm     microvm  remote
		rung.Trusted:     "refused  refused  refused   listed   listed   stronger listed   stronger",
		rung.Generated:   "refused  refused  refused   refused  listed   stronger listed   stronger",
		rung.Untrusted:   "refused  refused  refused   refused  refused  refused  listed   listed",
		rung.Adversarial: "refused  refused  refused   refused  refused  refused  listed   refused",
		rung.Compute:     "refused  refused  refused   refused  listed   listed   listed   refused",
	}
	for _, threat := range rung.Threats() {
		for i, want := range strings.Fields(table[threat]) {
			pin := rung.Rungs()[i]
			req := Request{Threat: threat, Pinned: pin}
			d := Decide(req, only(rung.Rungs()...))
			if d.Allowed != (want != "refused") || d.Allowed && (d.Rung != pin || d.Accepted != "") {
				t.Errorf("%s on %s: %+v, want %s", threat, pin, d, want)
			}
			if want == "refused" {
				checkException(t, req)
			}
			if d := Decide(req, only()); d.Allowed {
				t.Errorf("%s on %s: allowed on a host without it", threat, pin)
			}
		}
	}
}

// checkException: the very name opens the way and is recorded, another name does not.
func checkException(t *testing.T, req Request) {
	t.Helper()
	host := only(rung.Rungs()...)
	err := Decide(req, host).Err()
	if rung.ExitCode(err) != rung.ExitRefused || rung.HintOf(err) == "" {
		t.Errorf("%+v: %v, hint %q", req, err, rung.HintOf(err))
	}
	req.AcceptLower = rung.Process
	if req.Pinned == rung.Process {
		req.AcceptLower = rung.Container
	}
	if d := Decide(req, host); d.Allowed {
		t.Errorf("%+v: another rung's name opened the way: %+v", req, d)
	}
	req.AcceptLower = req.Pinned
	d := Decide(req, host)
	if req.Pinned == rung.None {
		if d.Allowed {
			t.Errorf("none without the caller's word: %+v", d)
		}
		req.IKnow = true
		d = Decide(req, host)
	}
	if !d.Allowed || d.Rung != req.Pinned || d.Accepted != string(req.Pinned) || d.Err() != nil {
		t.Errorf("%+v: the exception did not open the way: %+v", req, d)
	}
}

func TestBestAvailable(t *testing.T) {
	for _, c := range []struct {
		threat rung.Threat
		can    []rung.Rung
		want   rung.Rung
	}{
		{rung.Trusted, []rung.Rung{rung.Hardened, rung.GVisor, rung.MicroVM}, rung.Hardened},
		{rung.Trusted, []rung.Rung{rung.GVisor, rung.MicroVM}, rung.GVisor},
		{rung.Trusted, []rung.Rung{rung.Container, rung.MicroVM}, rung.MicroVM},
		{rung.Generated, []rung.Rung{rung.GVisor, rung.MicroVM}, rung.MicroVM},
		{rung.Generated, []rung.Rung{rung.Hardened, rung.GVisor}, rung.GVisor},
		{rung.Generated, []rung.Rung{rung.Hardened, rung.Wasm, rung.Remote}, ""}, // stronger rungs only when pinned
		{"", []rung.Rung{rung.GVisor}, rung.GVisor},
		{rung.Untrusted, []rung.Rung{rung.GVisor, rung.Remote}, rung.Remote},
		{rung.Untrusted, []rung.Rung{rung.GVisor}, ""},
		{rung.Adversarial, []rung.Rung{rung.MicroVM}, rung.MicroVM},
		{rung.Adversarial, []rung.Rung{rung.GVisor, rung.Remote}, ""},
		{rung.Compute, []rung.Rung{rung.GVisor, rung.Wasm}, rung.Wasm},
		{rung.Compute, []rung.Rung{rung.GVisor, rung.MicroVM}, rung.MicroVM},
		{rung.Compute, []rung.Rung{rung.Hardened}, ""},
	} {
		if d := Decide(Request{Threat: c.threat}, only(c.can...)); d.Rung != c.want || d.Allowed != (c.want != "") {
			t.Errorf("%s with %v: %+v, want %q", c.threat, c.can, d, c.want)
		}
	}
}

func TestEgressAndNesting(t *testing.T) {
	want := map[rung.Threat]rung.EgressMode{
		rung.Trusted: rung.EgressDeny, rung.Generated: rung.EgressDeny, rung.Untrusted: rung.EgressDeny,
		rung.Adversarial: rung.EgressNone, rung.Compute: rung.EgressNone,
	}
	for _, threat := range rung.Threats() {
		d := Decide(Request{Threat: threat}, only(rung.Rungs()...))
		if d.Egress != want[threat] || d.Nested != (threat == rung.Adversarial) {
			t.Errorf("%s: egress %s, nested %v", threat, d.Egress, d.Nested)
		}
	}
}

func TestAcceptedWithoutAPinIsTheLastResort(t *testing.T) {
	req := Request{AcceptLower: rung.Container}
	if d := Decide(req, only(rung.Container, rung.GVisor)); d.Rung != rung.GVisor || d.Accepted != "" {
		t.Errorf("with a better one: %+v", d)
	}
	if d := Decide(req, only(rung.Container, rung.Hardened)); d.Rung != rung.Container || d.Accepted != "container" {
		t.Errorf("as the last resort: %+v", d)
	}
	if d := Decide(Request{AcceptLower: rung.None, IKnow: true}, only(rung.None)); d.Allowed {
		t.Errorf("none without a pin: %+v", d)
	}
	if got := Candidates(req); !cmp.Equal(got, []rung.Rung{rung.MicroVM, rung.GVisor, rung.Container}) {
		t.Errorf("candidates %v", got)
	}
}

func TestEmulation(t *testing.T) {
	host := only()
	host[rung.MicroVM] = Availability{OK: true, Emulated: true}
	d := Decide(Request{}, host)
	if d.Allowed || !strings.Contains(rung.HintOf(d.Err()), "--allow-emulated") {
		t.Errorf("%+v, hint %q", d, rung.HintOf(d.Err()))
	}
	if d := Decide(Request{AllowEmulated: true}, host); d.Rung != rung.MicroVM {
		t.Errorf("%+v", d)
	}
}

func TestRefusalTellsWhatIsMissingAndHowToRelax(t *testing.T) {
	err := Decide(Request{}, only(rung.Process, rung.Hardened)).Err()
	for _, part := range []string{"generated", "no microvm", "no gvisor"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	for _, part := range []string{
		"install gvisor", "provides process, hardened", "--threat trusted", "--rung hardened --accept-lower hardened",
	} {
		if !strings.Contains(rung.HintOf(err), part) {
			t.Errorf("hint %q lacks %q", rung.HintOf(err), part)
		}
	}
	hint := rung.HintOf(Decide(Request{Pinned: rung.Container}, only(rung.Container, rung.GVisor)).Err())
	if !strings.Contains(hint, "--rung gvisor") || !strings.Contains(hint, "--rung container --accept-lower container") {
		t.Errorf("hint for a pin below the list: %q", hint)
	}
	for _, bad := range []Request{{Threat: "nice"}, {Pinned: "jail"}, {AcceptLower: "jail"}} {
		if err := Decide(bad, only(rung.Rungs()...)).Err(); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Whatever is asked on whatever host: a decision allows only what the host has and the threat's list, the order of the ladder
// or the caller's own words accept, it always has reasons, and what is below the list is always on the record.
func TestDecisionsAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maybe := rapid.SampledFrom(append([]rung.Rung{""}, rung.Rungs()...))
		req := Request{
			Threat: rapid.SampledFrom(append([]rung.Threat{""}, rung.Threats()...)).Draw(t, "threat"),
			Pinned: maybe.Draw(t, "pinned"), AcceptLower: maybe.Draw(t, "accept"),
			AllowEmulated: rapid.Bool().Draw(t, "emulated"), IKnow: rapid.Bool().Draw(t, "know"),
		}
		host := make(map[rung.Rung]Availability)
		for _, r := range rung.Rungs() {
			if rapid.Bool().Draw(t, "checked") {
				host[r] = Availability{OK: rapid.Bool().Draw(t, "ok"), Emulated: rapid.Bool().Draw(t, "emu")}
			}
		}
		d := Decide(req, host)
		if len(d.Reasons) == 0 {
			t.Fatalf("no reason: %+v", d)
		}
		if d.Allowed != (d.Rung != "") || d.Allowed != (d.Err() == nil) {
			t.Fatalf("inconsistent: %+v", d)
		}
		if !d.Allowed {
			return
		}
		sound(t, req, host, d)
	})
}

func sound(t *rapid.T, req Request, host map[rung.Rung]Availability, d Decision) {
	if a := host[d.Rung]; !a.OK || a.Emulated && !req.AllowEmulated {
		t.Fatalf("unavailable rung %s: %+v", d.Rung, d)
	}
	if req.Pinned != "" && d.Rung != req.Pinned {
		t.Fatalf("pinned %s, got %s", req.Pinned, d.Rung)
	}
	if d.Rung == rung.None && (req.Pinned != rung.None || !req.IKnow || d.Accepted != "none") {
		t.Fatalf("none without being asked for: %+v", d)
	}
	listed := slices.Contains(List(d.Threat), d.Rung)
	strong := above(d.Rung, weakest(d.Threat)) && (d.Rung != rung.Remote || d.Egress != rung.EgressNone)
	if !listed && req.Pinned != d.Rung && req.AcceptLower != d.Rung {
		t.Fatalf("%s is not listed and nobody named it: %+v", d.Rung, d)
	}
	if !listed && !strong && d.Rung != rung.None && req.AcceptLower != d.Rung {
		t.Fatalf("unaccepted rung %s: %+v", d.Rung, d)
	}
	if !listed && !strong && d.Accepted != string(d.Rung) {
		t.Fatalf("exception not recorded: %+v", d)
	}
	if (listed || strong) && d.Accepted != "" {
		t.Fatalf("exception recorded for an acceptable rung: %+v", d)
	}
	if !slices.Contains(Candidates(req), d.Rung) {
		t.Fatalf("%s is not among the candidates %v", d.Rung, Candidates(req))
	}
}
