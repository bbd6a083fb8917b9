package measure

import (
	"slices"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
)

var host = HostFacts{BootID: "host", Namespaces: map[string]string{"net": "net:[1]", "pid": "pid:[2]", "time": "time:[3]"}}

func good() Measurement {
	return Measurement{
		UID: 1000, BootID: "host", Namespaces: map[string]string{"net": "net:[9]", "pid": "pid:[2]"},
		Capabilities: []string{}, Bounding: []string{}, SeccompMode: 2, NoNewPrivs: true, Interfaces: []string{"lo"},
	}
}

func TestIsolationCompares(t *testing.T) {
	iso := good().Isolation(host)
	if !iso.SharedKernel || !iso.Namespaces["net"] || iso.Namespaces["pid"] || iso.Namespaces["time"] {
		t.Errorf("shared %v, namespaces %v", iso.SharedKernel, iso.Namespaces)
	}
	m := good()
	m.GVisor, m.BootID = true, "own"
	if iso := m.Isolation(host); iso.SharedKernel || !iso.GVisor || !iso.Namespaces["pid"] {
		t.Errorf("gVisor: %+v", iso)
	}
	m.BootID = "host"
	if iso := m.Isolation(host); iso.GVisor || iso.Namespaces["pid"] || len(iso.Notes) == 0 {
		t.Errorf("a kernel with the host's boot id passed for gVisor: %+v", iso)
	}
}

// A field that could not be read must keep no promise.
func TestIsolationDistrustsWhatIsMissing(t *testing.T) {
	m := good()
	m.fail("capabilities", "denied")
	m.fail("interfaces", "denied")
	iso := m.Isolation(host)
	err := rung.Expectation{NoCaps: true, NoNetwork: true}.Verify(&iso)
	for _, word := range []string{"capabilities", "interfaces"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
		if iso.Sources[word] != "" {
			t.Errorf("%s has a source", word)
		}
	}
	if len(iso.Notes) != 2 {
		t.Errorf("notes: %q", iso.Notes)
	}
}

func TestMerge(t *testing.T) {
	iso := good().Isolation(host)
	Merge(&iso, &rung.Isolation{
		PIDsMax: 64, Landlock: 7, NoNewPrivs: false, SeccompMode: 2, UID: 5, GuestUID: 990,
		Namespaces: map[string]bool{"net": true, "pid": true, "uts": true},
		Notes:      []string{"no cgroup v2"},
		Sources: map[string]string{
			"pids_max": FromHost, "landlock_abi": FromHost, "no_new_privs": FromHost, "seccomp_mode": FromHost,
			"namespaces": FromHost, "guest_uid": FromHost,
		},
	})
	if iso.PIDsMax != 64 || iso.Landlock != 7 || iso.GuestUID != 990 || iso.UID != 1000 {
		t.Errorf("host facts not taken, or one taken without a source: %+v", iso)
	}
	if iso.NoNewPrivs || iso.SeccompMode != 2 {
		t.Errorf("no_new_privs %v (the weaker value must stand), seccomp %d", iso.NoNewPrivs, iso.SeccompMode)
	}
	if !iso.Namespaces["net"] || iso.Namespaces["pid"] || !iso.Namespaces["uts"] {
		t.Errorf("namespaces %v: apart needs both witnesses", iso.Namespaces)
	}
	if iso.Sources["pids_max"] != FromHost || iso.Sources["uid"] != Inside {
		t.Errorf("sources %v", iso.Sources)
	}
	for _, word := range []string{"no_new_privs: true inside, false from the host", "namespaces.pid", "no cgroup v2"} {
		if !slices.ContainsFunc(iso.Notes, func(n string) bool { return strings.Contains(n, word) }) {
			t.Errorf("no note about %q in %q", word, iso.Notes)
		}
	}
	Merge(&iso, nil)
}
