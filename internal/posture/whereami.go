package posture

import (
	"maps"
	"slices"
	"strconv"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/measure"
)

// said is the variable in which a sandbox of rung names its own rung. It can lower the answer, never raise it, with one
// exception: in a machine that is a microVM it says that the machine is this sandbox's alone.
const said = "RUNG_SANDBOX"

// Where is the answer to: on which rung does this process stand?
type Where struct {
	Rung      rung.Rung           `json:"rung"`
	Base      rung.Rung           `json:"base"` // what was built, before the findings
	Because   []string            `json:"because"`
	LoweredBy []Finding           `json:"lowered_by"`
	Holes     []Finding           `json:"holes"`
	Unknown   []string            `json:"unknown"`
	Manager   string              `json:"manager,omitempty"`
	Machine   Machine             `json:"machine"`
	Measured  measure.Measurement `json:"measured"`
}

// Whereami looks around. It never fails: what cannot be found out is listed.
func Whereami(s System) Where {
	w, m := survey(s), machine(s)
	out := Where{Manager: w.manager, Machine: m, Measured: s.Self, LoweredBy: []Finding{}, Holes: []Finding{}}
	out.Base, out.Because = w.base(m)
	out.Rung = out.Base
	found := w.findings(out.Base)
	if f, ok := w.claim(out.Base); ok {
		found = append(found, f)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return height(a.To) - height(b.To) })
	for _, f := range found {
		if f.To == "" || height(f.To) >= height(out.Base) {
			out.Holes = append(out.Holes, f)
			continue
		}
		out.LoweredBy = append(out.LoweredBy, f)
		if height(f.To) < height(out.Rung) {
			out.Rung = f.To
		}
	}
	out.Unknown = w.unknown(m, out.Base)
	return out
}

// height is a rung's place on the ladder; no rung is above all.
func height(r rung.Rung) int {
	if r == "" {
		return len(rung.Rungs())
	}
	return slices.Index(rung.Rungs(), r)
}

// claim is what the sandbox says of itself, believed where it says less than was measured: the process rung looks like a
// hardened container from inside, but nothing beside it was built by a container runtime.
func (w wall) claim(base rung.Rung) (Finding, bool) {
	r, err := rung.ParseRung(w.Getenv(said))
	if err != nil || height(r) >= height(base) {
		return Finding{}, false
	}
	return Finding{ID: "RUNG", Text: "rung built it as " + string(r), To: r}, true
}

func (w wall) unknown(m Machine, base rung.Rung) []string {
	out := []string{}
	add := func(ok bool, text string) {
		if ok {
			out = append(out, text)
		}
	}
	boot := w.Self.BootID
	add(boot != "" && base != rung.GVisor && base != rung.MicroVM, "whether the kernel is shared with the host: compare its boot id with "+clean(boot))
	add(m.Virtual && base != rung.MicroVM && base != rung.GVisor, "what else runs in this virtual machine ("+or(m.Name, "of an unknown kind")+
		"): if nothing does, the machine is a boundary too")
	add(m.Virtual && base == rung.MicroVM, "whether this machine is yours alone, and what its VMM shares with the host")
	add(!m.Virtual && base != rung.GVisor, "whether a hypervisor hides: none shows itself")
	add(base == rung.Process || base == rung.Container || base == rung.Hardened, "whether Landlock restricts it: the kernel does not tell")
	add(base != rung.None, "what the network reaches, and whether new user namespaces can be made: not tried")
	add(w.mountErr != nil, "mounts: "+errText(w.mountErr))
	return append(out, unread(w.Self)...)
}

// unread tells what the measurement could not read, fields with the same reason together.
func unread(m measure.Measurement) []string {
	var out []string
	fields := map[string]string{}
	for _, field := range slices.Sorted(maps.Keys(m.Errors)) {
		why := clean(m.Errors[field])
		if field == "namespaces" && m.GVisor {
			continue
		}
		if fields[why] != "" {
			field = ", " + field
		}
		fields[why] += field
	}
	for _, why := range slices.Sorted(maps.Keys(fields)) {
		out = append(out, clean(fields[why])+": "+why)
	}
	return out
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return clean(err.Error())
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func itoa(n int) string { return strconv.Itoa(n) }
