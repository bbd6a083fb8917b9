package measure

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

var hostOnce = sync.OnceValue(func() HostFacts {
	r := openProc()
	defer r.close()
	var m Measurement
	m.readNamespaces(r)
	m.readBootID(r)
	return HostFacts{BootID: m.BootID, Namespaces: m.Namespaces}
})

func self() Measurement {
	m := Measurement{UID: unix.Getuid(), GID: unix.Getgid(), SeccompFilters: -1}
	r := openProc()
	defer r.close()
	if r.err != nil {
		m.fail("proc", r.err.Error())
	}
	m.readGroups()
	m.readStatus(r)
	m.readUIDMap(r)
	m.readLSM(r)
	m.readRoot(r)
	m.readBootID(r)
	m.readKernel(r)
	m.readInterfaces(r)
	m.readDescriptors(r)
	if m.GVisor {
		// gVisor invents its namespaces and cgroups, so they tell nothing, and a call costs ten times what it costs elsewhere.
		m.failCgroup("gVisor's own cgroup tells nothing of the host's")
		m.fail("namespaces", "gVisor's own, apart because its kernel is")
		return m
	}
	m.readNamespaces(r)
	m.readCgroup(r)
	return m
}

func (m *Measurement) readGroups() {
	groups, err := unix.Getgroups()
	if err != nil {
		m.fail("groups", err.Error())
	}
	m.Groups = groups
}

// readStatus prefers the status file, because it tells the filter count and all capability sets at once, and asks the kernel
// directly for what the file lacks (gVisor writes fewer lines).
func (m *Measurement) readStatus(r *reader) {
	var st Status
	text, err := r.read("self/status")
	if err == nil {
		st, err = ParseStatus(text)
	}
	if err != nil {
		st = Status{Filters: -1}
		m.fail("seccomp_filters", err.Error())
	}
	if !st.HasCaps {
		if st.Held, st.Bounding, err = askCaps(); err != nil {
			m.fail("capabilities", err.Error())
			m.fail("bounding", err.Error())
		}
	}
	m.setStatus(st, func(option int) (int, error) { return unix.PrctlRetInt(option, 0, 0, 0, 0) })
}

// setStatus takes over what the status file told; prctl answers what it did not.
func (m *Measurement) setStatus(st Status, prctl func(option int) (int, error)) {
	m.Capabilities, m.Bounding = CapNames(st.Held), CapNames(st.Bounding)
	m.NoNewPrivs = st.NoNewPrivs
	if !st.HasNoNewPrivs {
		on, err := prctl(unix.PR_GET_NO_NEW_PRIVS)
		if m.NoNewPrivs = err == nil && on == 1; err != nil {
			m.fail("no_new_privs", err.Error())
		}
	}
	m.SeccompMode, m.SeccompFilters = st.Seccomp, st.Filters
	if !st.HasSeccomp {
		mode, err := prctl(unix.PR_GET_SECCOMP)
		if m.SeccompMode = max(mode, 0); err != nil {
			m.fail("seccomp_mode", err.Error())
		}
	}
}

// askCaps cannot see the ambient set alone, but ambient capabilities are always permitted too.
func askCaps() (held, bounding uint64, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, 0, err
	}
	for i, d := range data {
		held |= uint64(d.Effective|d.Permitted|d.Inheritable) << (32 * i)
	}
	for bit := range 64 {
		on, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(bit), 0, 0, 0)
		if err == unix.EINVAL && bit > 0 { // beyond the kernel's last capability
			break
		}
		if err != nil {
			return 0, 0, err
		}
		bounding |= uint64(on&1) << bit
	}
	return held, bounding, nil
}

func (m *Measurement) readUIDMap(r *reader) {
	m.setUIDMap(r.read("self/uid_map"))
}

func (m *Measurement) setUIDMap(text []byte, err error) {
	if err == nil {
		m.UIDMap, err = ParseIDMap(text)
	}
	if err != nil {
		m.fail("uid_map", err.Error())
	}
}

func (m *Measurement) readLSM(r *reader) {
	m.setLSM(
		func() ([]byte, error) { return r.read("self/attr/apparmor/current") },
		func() ([]byte, error) { return r.read("self/attr/current") },
	)
}

// setLSM takes the first label there is. EINVAL and ENOENT mean that no module with labels is active, which is a finding and
// no error.
func (m *Measurement) setLSM(labels ...func() ([]byte, error)) {
	for _, label := range labels {
		text, err := label()
		if err == nil {
			m.LSM = strings.TrimRight(strings.ToValidUTF8(string(text), "?"), "\x00\n")
			return
		}
		if err != unix.ENOENT && err != unix.EINVAL && err != unix.ENOTDIR && err != unix.EOPNOTSUPP {
			m.fail("lsm", err.Error())
		}
	}
}

// readRoot trusts statfs where it fills the flags (it sees mount and file system at once) and mountinfo elsewhere.
func (m *Measurement) readRoot(r *reader) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Statfs("/", &st) })
	if err == nil && st.Flags&unix.ST_RDONLY != 0 {
		m.RootReadOnly = true
		return
	}
	if err == nil && st.Flags&stValid != 0 {
		return
	}
	m.setRoot(r.mounts())
}

func (m *Measurement) setRoot(mounts []Mount, err error) {
	if err != nil {
		m.fail("root_readonly", err.Error())
	}
	for _, mount := range mounts {
		if mount.Point == "/" {
			m.RootReadOnly = mount.ReadOnly()
		}
	}
}

// stValid is the kernel's sign that statfs filled in the mount flags.
const stValid = 0x20

func (m *Measurement) readNamespaces(r *reader) {
	m.Namespaces = make(map[string]string, len(Kinds()))
	for _, kind := range Kinds() {
		link, err := r.link("self/ns/" + kind)
		if err != nil || !strings.HasPrefix(link, kind+":[") {
			m.fail("namespaces."+kind, reason(err, "not a namespace link"))
			continue
		}
		m.Namespaces[kind] = link
	}
}

func (m *Measurement) readBootID(r *reader) {
	m.setBootID(r.read("sys/kernel/random/boot_id"))
}

func (m *Measurement) setBootID(text []byte, err error) {
	m.BootID = string(bytes.TrimSpace(text))
	if err != nil || len(m.BootID) != len("85ac6928-a1de-4499-91e5-758d6798f3b8") {
		m.BootID = ""
		m.fail("boot_id", reason(err, "not a boot id"))
	}
}

// readKernel looks for gVisor where gVisor names itself. An unreadable dmesg or /proc/version is no sign either way.
func (m *Measurement) readKernel(r *reader) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		m.fail("kernel", err.Error())
		m.fail("gvisor", err.Error())
		return
	}
	m.setKernel(&uts, func() ([]byte, error) { return r.read("version") })
}

func (m *Measurement) setKernel(uts *unix.Utsname, version func() ([]byte, error)) {
	m.Kernel = unix.ByteSliceToString(uts.Release[:])
	if containsFold(m.Kernel, "gvisor") {
		m.GVisorSigns = append(m.GVisorSigns, "uname release "+m.Kernel)
	}
	if containsFold(unix.ByteSliceToString(uts.Version[:]), "gvisor") {
		m.GVisorSigns = append(m.GVisorSigns, "uname version")
	}
	if len(m.GVisorSigns) == 0 { // one sign is enough, and a program inside cannot forge any of them
		if text, err := version(); err == nil && containsFold(string(text), "gvisor") {
			m.GVisorSigns = append(m.GVisorSigns, "/proc/version")
		}
	}
	m.GVisor = len(m.GVisorSigns) > 0
}

func containsFold(s, lower string) bool { return strings.Contains(strings.ToLower(s), lower) }

func (m *Measurement) readInterfaces(r *reader) {
	text, err := r.read("self/net/dev")
	if err == nil {
		m.Interfaces, err = ParseNetDev(text)
	}
	if err == nil {
		return
	}
	entries, sysErr := os.ReadDir("/sys/class/net")
	if sysErr != nil {
		m.fail("interfaces", err.Error())
		return
	}
	m.Interfaces = []string{}
	for _, e := range entries {
		m.Interfaces = append(m.Interfaces, e.Name())
	}
}

// probeFDs is how many descriptors are asked for one by one when /proc cannot list them.
const probeFDs = 1024

func (m *Measurement) readDescriptors(r *reader) {
	list, err := r.descriptors()
	if err != nil {
		m.fail("descriptors", "only the first 1024 were asked for: "+err.Error())
		list = make([]int, probeFDs)
		for i := range list {
			list[i] = i
		}
	}
	m.Descriptors = []int{}
	for _, fd := range list {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			m.Descriptors = append(m.Descriptors, fd)
		}
	}
	slices.Sort(m.Descriptors)
}

func reason(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

func mounts() ([]Mount, error) {
	r := openProc()
	defer r.close()
	return r.mounts()
}
