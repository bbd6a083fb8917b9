package measure

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/rung-dev/rung"
)

// Values of rung.Isolation.Sources.
const (
	Inside   = "inside"
	FromHost = "host"
)

// unknown stands in a list that could not be read, so that it never looks empty and therefore safe.
const unknown = "unknown"

// Isolation turns an inside measurement into the record's form by comparing it with the host. What was not measured gets
// the weakest value and a note, and has no source.
func (m Measurement) Isolation(host HostFacts) rung.Isolation {
	iso := rung.Isolation{
		UID: m.UID, GID: m.GID, GuestUID: m.UID, UIDMap: m.UIDMap,
		Capabilities: m.Capabilities, Bounding: m.Bounding, NoNewPrivs: m.NoNewPrivs,
		SeccompMode: m.SeccompMode, SeccompFilter: m.SeccompFilters, LSM: m.LSM,
		RootReadOnly: m.RootReadOnly, Kernel: m.Kernel, GVisor: m.GVisor,
		PIDsMax: m.PIDsMax, MemoryMax: m.MemoryMax, CPUMax: m.CPUMax,
		Interfaces: m.Interfaces, Descriptors: m.Descriptors, Sources: m.sources(),
	}
	m.compare(host, &iso)
	m.distrust(&iso)
	for _, field := range slices.Sorted(maps.Keys(m.Errors)) {
		if field == "namespaces" && iso.GVisor {
			continue // told by the kernel being its own
		}
		iso.Notes = append(iso.Notes, "not measured inside: "+field+": "+m.Errors[field])
	}
	return iso
}

// compare decides what only the two sides together tell. In gVisor namespace inodes are gVisor's own inventions, so they
// count as apart because the kernel is, never because numbers differ.
func (m Measurement) compare(host HostFacts, iso *rung.Isolation) {
	iso.SharedKernel = m.BootID == "" || host.BootID == "" || m.BootID == host.BootID
	if m.GVisor && m.BootID != "" && m.BootID == host.BootID {
		iso.GVisor = false
		iso.Notes = append(iso.Notes, "the kernel calls itself gVisor but has the host's boot id: not believed")
	}
	iso.Namespaces = make(map[string]bool, len(host.Namespaces))
	for kind, outside := range host.Namespaces {
		inside, ok := m.Namespaces[kind]
		iso.Namespaces[kind] = iso.GVisor || ok && inside != outside
	}
}

// distrust replaces what was not measured by a value that keeps no promise.
func (m Measurement) distrust(iso *rung.Isolation) {
	bad := func(field string) bool { _, ok := m.Errors[field]; return ok }
	if bad("capabilities") {
		iso.Capabilities, iso.Bounding = []string{unknown}, []string{unknown}
	}
	if bad("interfaces") {
		iso.Interfaces = []string{unknown}
	}
	if bad("descriptors") {
		iso.Descriptors = nil
	}
	if iso.UIDMap == nil {
		iso.UIDMap = []rung.IDMap{}
	}
}

// sources names every field that was read inside. landlock_abi and guest_uid are never seen from there.
func (m Measurement) sources() map[string]string {
	s := make(map[string]string, 24)
	for _, field := range []string{
		"uid", "gid", "uid_map", "capabilities", "bounding", "no_new_privs", "seccomp_mode", "seccomp_filters", "lsm",
		"root_readonly", "namespaces", "kernel", "gvisor", "pids_max", "memory_max", "cpu_max", "interfaces", "descriptors",
	} {
		if _, bad := m.Errors[field]; !bad || field == "namespaces" {
			s[field] = Inside
		}
	}
	if m.BootID != "" {
		s["shared_kernel"] = Inside
	}
	if len(m.Namespaces) == 0 && !m.GVisor {
		delete(s, "namespaces")
	}
	return s
}

// Merge lays what the driver saw from the host over an inside measurement. Only fields that host.Sources names count. The host
// wins where inside cannot know (caps, Landlock ABI, rung-guest's uid) and where nothing was measured inside. Elsewhere a
// contradiction is noted and the weaker of the two values stands, since one of the witnesses is wrong.
func Merge(iso, host *rung.Isolation) {
	if host == nil {
		return
	}
	mergeNamespaces(iso, host)
	for _, f := range fields(iso, host) {
		if _, told := host.Sources[f.name]; !told {
			continue
		}
		_, known := iso.Sources[f.name]
		same := reflect.DeepEqual(f.inside, f.host)
		blind := f.hostWins && reflect.ValueOf(f.inside).IsZero() // inside saw no cap: blindness, not a contradiction
		if known && !same && !blind {
			iso.Notes = append(iso.Notes, fmt.Sprintf("%s: %v inside, %v from the host", f.name, f.inside, f.host))
		}
		if !known || f.hostWins || !same && f.hostWeaker {
			f.take()
			iso.Sources[f.name] = FromHost
		}
	}
	iso.Notes = append(iso.Notes, host.Notes...)
}

// mergeNamespaces: the host compares real inodes, so it wins per kind, but "apart" needs both witnesses outside gVisor, whose
// inodes inside mean nothing.
func mergeNamespaces(iso, host *rung.Isolation) {
	if _, told := host.Sources["namespaces"]; !told {
		return
	}
	_, known := iso.Sources["namespaces"]
	if iso.Namespaces == nil {
		iso.Namespaces = make(map[string]bool, len(host.Namespaces))
	}
	for _, kind := range slices.Sorted(maps.Keys(host.Namespaces)) {
		apart := host.Namespaces[kind]
		inside, seen := iso.Namespaces[kind]
		if known && seen && inside != apart && !iso.GVisor {
			iso.Notes = append(iso.Notes, fmt.Sprintf("namespaces.%s: apart is %v inside, %v from the host", kind, inside, apart))
			apart = false
		}
		iso.Namespaces[kind] = apart
	}
	iso.Sources["namespaces"] = FromHost
}

type field struct {
	name         string
	inside, host any
	hostWins     bool // inside cannot know
	hostWeaker   bool // the host's value promises less
	take         func()
}

func fields(iso, host *rung.Isolation) []field {
	return []field{
		pick("pids_max", &iso.PIDsMax, host.PIDsMax, true, false),
		pick("memory_max", &iso.MemoryMax, host.MemoryMax, true, false),
		pick("cpu_max", &iso.CPUMax, host.CPUMax, true, false),
		pick("landlock_abi", &iso.Landlock, host.Landlock, true, false),
		pick("guest_uid", &iso.GuestUID, host.GuestUID, true, false),
		pick("uid", &iso.UID, host.UID, false, false),
		pick("gid", &iso.GID, host.GID, false, false),
		pick("uid_map", &iso.UIDMap, host.UIDMap, false, true),
		pick("capabilities", &iso.Capabilities, host.Capabilities, false, len(host.Capabilities) > len(iso.Capabilities)),
		pick("bounding", &iso.Bounding, host.Bounding, false, len(host.Bounding) > len(iso.Bounding)),
		pick("no_new_privs", &iso.NoNewPrivs, host.NoNewPrivs, false, !host.NoNewPrivs),
		pick("seccomp_mode", &iso.SeccompMode, host.SeccompMode, false, host.SeccompMode != 2),
		pick("seccomp_filters", &iso.SeccompFilter, host.SeccompFilter, false, host.SeccompFilter < iso.SeccompFilter),
		pick("lsm", &iso.LSM, host.LSM, false, host.LSM == "" || host.LSM == "unconfined"),
		pick("root_readonly", &iso.RootReadOnly, host.RootReadOnly, false, !host.RootReadOnly),
		pick("kernel", &iso.Kernel, host.Kernel, false, false),
		pick("shared_kernel", &iso.SharedKernel, host.SharedKernel, false, host.SharedKernel),
		pick("gvisor", &iso.GVisor, host.GVisor, false, !host.GVisor),
		pick("interfaces", &iso.Interfaces, host.Interfaces, false, len(host.Interfaces) > len(iso.Interfaces)),
		pick("descriptors", &iso.Descriptors, host.Descriptors, false, len(host.Descriptors) > len(iso.Descriptors)),
	}
}

func pick[T any](name string, inside *T, host T, wins, weaker bool) field {
	return field{name: name, inside: *inside, host: host, hostWins: wins, hostWeaker: weaker, take: func() { *inside = host }}
}
