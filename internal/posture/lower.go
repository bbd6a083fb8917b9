package posture

import (
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// Finding is one fact that counts against the wall. With To it lowers the rung to at most that; without, it is a hole that
// leaves the rung what it is. ID is the rule's name in the audit catalogue.
type Finding struct {
	ID   string    `json:"id"`
	Text string    `json:"text"`
	To   rung.Rung `json:"to,omitempty"`
}

// findings runs all rules. Those about the kernel matter only where it is shared with what is to be kept out.
func (w wall) findings(base rung.Rung) []Finding {
	var all []Finding
	if base != rung.GVisor && base != rung.MicroVM {
		for _, rule := range []func(wall) []Finding{
			capabilities, machineNamespaces, filters, identities, knobs, cgroups, devices, mounts,
		} {
			all = append(all, rule(w)...)
		}
	}
	for _, rule := range []func(wall) []Finding{sockets, shares, secrets, descriptors, network} {
		all = append(all, rule(w)...)
	}
	return all
}

// capabilities: in a user namespace of one's own they reach only what that namespace owns.
func capabilities(w wall) []Finding {
	if w.own["user"] {
		if held := len(w.Self.Capabilities); held > 0 {
			return []Finding{{ID: "PRV-14", Text: strconv.Itoa(held) + " capabilities, inside a user namespace: more of the kernel is in reach"}}
		}
		return nil
	}
	var out []Finding
	rules := []struct {
		id, cap, means string
		to             rung.Rung
	}{
		{"PRV-03", "SYS_ADMIN", "mounts, namespaces and kernel settings of the host", rung.None},
		{"PRV-04", "SYS_MODULE", "code in the host's kernel", rung.None},
		{"PRV-05", "DAC_READ_SEARCH", "any file of a mounted file system", rung.None},
		{"PRV-07", "SYS_RAWIO", "the host's memory and ports", rung.None},
		{"PRV-10", "BPF", "programs in the host's kernel", rung.None},
		{"PRV-10", "PERFMON", "the host's kernel through perf", rung.None},
		{"PRV-13", "SYS_BOOT", "the host's power switch", rung.Process},
		{"PRV-08", "NET_ADMIN", "much of the kernel's network code", ""},
		{"PRV-09", "NET_RAW", "raw and packet sockets", ""},
		{"PRV-11", "SYSLOG", "the host's kernel log", ""},
	}
	for _, r := range rules {
		if len(w.holds(r.cap)) > 0 {
			out = append(out, Finding{ID: r.id, Text: "CAP_" + r.cap + ": " + r.means, To: r.to})
		}
	}
	return out
}

func machineNamespaces(w wall) []Finding {
	if !w.jailed() {
		return nil
	}
	var out []Finding
	if !w.own["pid"] && !w.failed("namespaces.pid") {
		f := Finding{ID: "NSP-01", Text: "the machine's processes are visible", To: rung.Process}
		if len(w.holds("SYS_PTRACE")) > 0 && !w.own["user"] {
			f.Text, f.To = "the machine's processes are visible and CAP_SYS_PTRACE opens them", rung.None
		}
		out = append(out, f)
	}
	if w.hostNet {
		out = append(out, Finding{ID: "NSP-02", Text: "the network is the machine's: its loopback and abstract sockets are in reach", To: rung.Process})
	}
	for kind, id := range map[string]string{"ipc": "NSP-03", "cgroup": "NSP-06"} {
		if w.contained() && !w.own[kind] && !w.failed("namespaces."+kind) {
			out = append(out, Finding{ID: id, Text: "the " + kind + " namespace is the machine's"})
		}
	}
	return out
}

func filters(w wall) []Finding {
	var out []Finding
	if !w.jailed() {
		return nil
	}
	if w.Self.SeccompMode != 2 {
		out = append(out, Finding{ID: "KRN-01", Text: "system calls are not filtered: all of the kernel is in reach"})
	}
	if w.Self.LSM == "" || strings.HasPrefix(w.Self.LSM, "unconfined") {
		out = append(out, Finding{ID: "KRN-15", Text: "no AppArmor or SELinux label confines it"})
	}
	if !w.Self.NoNewPrivs {
		out = append(out, Finding{ID: "PRV-16", Text: "setuid programs still raise privileges (no_new_privs is off)"})
	}
	return out
}

func identities(w wall) []Finding {
	if w.jailed() && w.Self.UID == 0 && w.identity {
		return []Finding{{ID: "PRV-17", Text: "root here is root outside"}}
	}
	return nil
}

// knobs are files whose writer runs code as the host's root. They are opened for writing and closed, never written.
func knobs(w wall) []Finding {
	var out []Finding
	if !w.jailed() {
		return nil
	}
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper", "/proc/sysrq-trigger",
	} {
		if w.Open(path, true) == nil {
			out = append(out, Finding{ID: "KRN-18", Text: path + " is writable: its writer commands the host's kernel", To: rung.None})
		}
	}
	if w.contained() && w.Open("/proc/kcore", false) == nil {
		if _, masked := w.top("/proc/kcore"); !masked {
			out = append(out, Finding{ID: "KRN-17", Text: "/proc/kcore is readable: /proc is not masked", To: rung.None})
		}
	}
	return out
}

func cgroups(w wall) []Finding {
	var out []Finding
	if !w.jailed() {
		return nil
	}
	for _, m := range w.Mounts {
		if m.Type == "cgroup" && !m.ReadOnly() && w.Open(strings.TrimSuffix(m.Point, "/")+"/release_agent", true) == nil {
			out = append(out, Finding{ID: "KRN-20", Text: clean(m.Point) + "/release_agent is writable: the kernel runs it as root", To: rung.None})
			break // one is enough
		}
	}
	if w.contained() && w.Self.PIDsMax == 0 && w.Self.MemoryMax == 0 && !w.failed("pids_max") && !w.failed("memory_max") {
		out = append(out, Finding{ID: "RES-01", Text: "no cap on processes or memory was found"})
	}
	return out
}

// dangerous are the beginnings of device names that reach past the wall, and whether opening one is enough to fall.
var dangerous = []struct {
	prefix, id string
	to         rung.Rung
}{
	{"sd", "DEV-01", rung.None},
	{"nvme", "DEV-01", rung.None},
	{"vd", "DEV-01", rung.None},
	{"xvd", "DEV-01", rung.None},
	{"dm-", "DEV-01", rung.None},
	{"loop", "DEV-01", rung.None},
	{"nbd", "DEV-01", rung.None},
	{"mmcblk", "DEV-01", rung.None},
	{"mem", "DEV-02", rung.None},
	{"kmem", "DEV-02", rung.None},
	{"port", "DEV-02", rung.None},
	{"kmsg", "DEV-02", ""},
	{"kvm", "DEV-03", ""},
	{"vhost-", "DEV-03", ""},
	{"vfio", "DEV-03", ""},
	{"fuse", "DEV-05", ""},
	{"cuse", "DEV-05", rung.None},
	{"uinput", "DEV-06", ""},
	{"input", "DEV-06", ""},
	{"nvidia", "DEV-07", ""},
	{"dri", "DEV-07", ""},
}

// devices names one of each kind that can be opened, read-only.
func devices(w wall) []Finding {
	if !w.jailed() {
		return nil
	}
	var out []Finding
	seen := map[string]bool{}
	for _, name := range w.names("dev") {
		for _, d := range dangerous {
			if !strings.HasPrefix(name, d.prefix) || seen[d.prefix] || w.Open("/dev/"+name, false) != nil {
				continue
			}
			seen[d.prefix] = true
			out = append(out, Finding{ID: d.id, Text: "device /dev/" + clean(name) + " can be opened", To: d.to})
		}
	}
	return out
}
