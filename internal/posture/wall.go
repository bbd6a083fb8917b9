package posture

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// initial are the inode numbers that the kernel gives to its first namespaces, in its own code. A namespace with
// another number was made later, so it is some container's. The net and mnt numbers are fixed on young kernels only.
var initial = map[string]string{
	"ipc": "ipc:[4026531839]", "uts": "uts:[4026531838]", "user": "user:[4026531837]", "pid": "pid:[4026531836]",
	"cgroup": "cgroup:[4026531835]",
}

// youngInitial are fixed since the same kernel, so either both prove that a namespace is the first one, or neither says.
var youngInitial = map[string]string{"net": "net:[4026531833]", "mnt": "mnt:[4026531832]"}

// wall is what stands around the process, as far as it was measured.
type wall struct {
	System
	own      map[string]bool // namespaces that are surely not the kernel's first
	hostNet  bool            // the network is surely the machine's own
	rootOwn  bool            // the root directory is not the machine's
	rootWhy  string
	manager  string // who runs the container, "" where nothing says so
	identity bool   // ids inside are ids outside
}

func survey(s System) wall {
	w := wall{System: s, own: map[string]bool{}, manager: manager(s)}
	for kind, first := range initial {
		link, ok := s.Self.Namespaces[kind]
		w.own[kind] = ok && link != first
	}
	w.identity = !w.own["user"] || len(s.Self.UIDMap) == 1 && s.Self.UIDMap[0] == (rung.IDMap{Size: 1<<32 - 1})
	w.hostNet = s.Self.Namespaces["net"] == youngInitial["net"] || slices.ContainsFunc(s.Self.Interfaces, bridge)
	w.rootOwn, w.rootWhy = ownRoot(s)
	return w
}

// bridge recognises interfaces that only the host of containers has.
func bridge(name string) bool {
	for _, p := range []string{"docker0", "cni0", "veth", "virbr", "br-", "cali", "flannel", "podman0", "lxcbr"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// ownRoot looks at what is mounted on /. Marks of a container's tools in the file tree prove nothing here: they survive when
// an image becomes a machine's root.
func ownRoot(s System) (bool, string) {
	m, ok := s.top("/")
	switch {
	case !ok || s.Self.Namespaces["mnt"] == youngInitial["mnt"]:
		return false, ""
	case m.Type == "overlay" || m.Type == "fuse.fuse-overlayfs" || m.Type == "virtiofs" || m.Type == "9p" || m.Type == "tmpfs":
		return true, "root is " + clean(m.Type)
	case m.Type == "btrfs" && !strings.Contains(m.Root, "/subvolumes/"): // a machine's own root is a subvolume too
		return false, ""
	case m.Type == "zfs" && strings.Contains(m.Source, "/docker/"), m.Root != "/":
		return true, "root is the directory " + clean(m.Root) + " of a file system"
	}
	return false, ""
}

// manager names who runs this container by the marks its tools leave. Any program can leave the same marks, so they name and
// never prove.
func manager(s System) string {
	cgroup := s.read("proc/self/cgroup")
	if s.Self.BootID == "" && cgroup == "" {
		cgroup = s.read("proc/1/cgroup")
	}
	switch {
	case s.exists(".rung/guest"):
		return "rung"
	case s.Getenv("KUBERNETES_SERVICE_HOST") != "" || s.exists("var/run/secrets/kubernetes.io") || strings.Contains(cgroup, "kubepods"):
		return "kubernetes"
	case s.exists("run/.containerenv") || strings.Contains(cgroup, "libpod"):
		return "podman"
	case s.exists(".dockerenv") || strings.Contains(cgroup, "/docker/"):
		return "docker"
	case strings.Contains(cgroup, "/lxc/") || s.Getenv("container") == "lxc":
		return "lxc"
	}
	return clean(s.Getenv("container"))
}

// contained reports whether the process sees a world of its own rather than the machine's.
func (w wall) contained() bool { return w.own["pid"] && w.rootOwn }

// jailed reports whether anything at all stands between the process and the kernel or the machine.
func (w wall) jailed() bool {
	return w.Self.SeccompMode == 2 || w.own["pid"] || w.own["user"] || w.rootOwn
}

func (w wall) failed(field string) bool { _, bad := w.Self.Errors[field]; return bad }

func (w wall) holds(caps ...string) []string {
	var held []string
	for _, c := range caps {
		if slices.Contains(w.Self.Capabilities, "CAP_"+c) {
			held = append(held, c)
		}
	}
	return held
}

// base is the rung of what was built, before the findings, with the evidence for it.
func (w wall) base(m Machine) (rung.Rung, []string) {
	switch {
	case w.Self.GVisor:
		return rung.GVisor, append([]string{"the kernel is gVisor's: " + clean(w.Self.Kernel)}, cleanAll(w.Self.GVisorSigns)...)
	case m.Micro && !w.contained():
		return rung.MicroVM, append([]string{"this whole machine is a microVM, and the process sees all of it"}, m.Evidence...)
	case m.Name == "Kata" || m.Micro && w.Getenv(said) == string(rung.MicroVM):
		return rung.MicroVM, append([]string{"this microVM was made for this container"}, m.Evidence...)
	case w.contained():
		missing := w.unhardened()
		if len(missing) == 0 {
			return rung.Hardened, w.containerEvidence()
		}
		return rung.Container, append(w.containerEvidence(), "not hardened: "+strings.Join(missing, ", "))
	case w.jailed():
		return rung.Process, append(w.jailEvidence(), "not a container: "+w.uncontained())
	}
	return rung.None, []string{"no filter, no namespaces of its own, no root of its own: this is the machine itself"}
}

func cleanAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(s)
	}
	return out
}

func (w wall) containerEvidence() []string {
	text := []string{"pid namespace of its own, and " + w.rootWhy}
	if w.manager != "" {
		text = append(text, "made by "+w.manager)
	}
	return append(text, w.jailEvidence()...)
}

func (w wall) jailEvidence() []string {
	var text []string
	add := func(ok bool, s string) {
		if ok {
			text = append(text, s)
		}
	}
	add(!w.identity, "user namespace of its own: "+w.mapping())
	add(w.Self.SeccompMode == 2, "system calls are filtered")
	add(w.Self.NoNewPrivs, "no new privileges")
	add(len(w.Self.Capabilities) == 0 && !w.failed("capabilities"), "no capabilities")
	add(w.Self.LSM != "" && !strings.HasPrefix(w.Self.LSM, "unconfined"), "LSM label "+clean(w.Self.LSM))
	add(w.Self.RootReadOnly, "read-only root")
	return text
}

// mapping tells who the process is outside its user namespace.
func (w wall) mapping() string {
	id := uint32(w.Self.UID)
	for _, m := range w.Self.UIDMap {
		if id >= m.Inside && id-m.Inside < m.Size {
			return "id " + strconv.Itoa(w.Self.UID) + " is " + strconv.FormatUint(uint64(m.Host)+uint64(id-m.Inside), 10) + " outside"
		}
	}
	return "id " + strconv.Itoa(w.Self.UID) + " is nobody outside"
}

// unhardened lists what a hardened wall would have and this one has not.
func (w wall) unhardened() []string {
	var missing []string
	need := func(ok bool, s string) {
		if !ok {
			missing = append(missing, s)
		}
	}
	need(!w.identity, "no user namespace")
	need(w.Self.UID != 0, "root inside")
	need(len(w.Self.Capabilities) == 0 && !w.failed("capabilities"), strconv.Itoa(len(w.Self.Capabilities))+" capabilities")
	need(len(w.Self.Bounding) == 0 && !w.failed("bounding"), strconv.Itoa(len(w.Self.Bounding))+" capabilities to gain")
	need(w.Self.NoNewPrivs, "no no_new_privs")
	need(w.Self.SeccompMode == 2, "no system call filter")
	need(w.Self.RootReadOnly, "writable root")
	for _, kind := range []string{"ipc", "uts", "cgroup"} {
		need(w.own[kind], kind+" namespace of the machine")
	}
	return missing
}

func (w wall) uncontained() string {
	var missing []string
	if !w.own["pid"] {
		missing = append(missing, "it sees the machine's processes")
	}
	if !w.rootOwn {
		missing = append(missing, "its root is the machine's")
	}
	return strings.Join(missing, ", ")
}
