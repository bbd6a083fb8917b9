package oci

import (
	"encoding/json"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/sys/seccomp"
)

// bundle is what config.json is written from.
type bundle struct {
	spec
	id       string
	dir      string // the bundle's own directory
	root     string // the file tree
	listener string // path of the seccomp listener's socket, "" for none
}

// config is the OCI runtime configuration. What is not set here is the runtime's default for an absent field; for hardened
// and gvisor nothing is left to a default that widens.
func (b bundle) config() *config {
	c := &config{
		Version: "1.0.2", // nothing newer is used, and older runtimes refuse a newer version
		Root:    root{Path: b.root, Readonly: b.Rung != rung.Container},
		Process: b.process(),
		Mounts:  b.mounts(),
		Linux: linux{
			// Network, IPC and UTS namespaces are the holder's, which are this sandbox's alone: they exist before the runtime
			// starts, and belong to no user of the sandbox.
			Namespaces:    namespaces("pid", "mount", "cgroup"),
			MaskedPaths:   held.DefaultMasked(),
			ReadonlyPaths: held.DefaultReadOnly(),
		},
	}
	switch b.Rung {
	case rung.Container:
		c.Linux.MaskedPaths = append(c.Linux.MaskedPaths, "/sys/firmware", "/sys/devices/virtual/powercap")
	case rung.Hardened:
		c.Linux.MaskedPaths = append(c.Linux.MaskedPaths, held.MaskedPaths()...)
		b.mapIDs(c)
	case rung.GVisor:
		// Its /proc and /sys are its own and have none of these; masks would only cost time.
		c.Linux.MaskedPaths, c.Linux.ReadonlyPaths = nil, nil
		c.Linux.Namespaces = namespaces("pid", "mount", "ipc", "uts", "network", "cgroup")
		if b.Network { // the interface is in the holder's, which runsc starts in; without a path it would make another
			c.Linux.Namespaces[4].Path = "/proc/self/ns/net"
		}
		c.Hostname = b.id
		b.mapIDs(c)
	}
	return c
}

// mapIDs gives the sandbox a user namespace with the ids of its slot.
func (b bundle) mapIDs(c *config) {
	ids := []idMapping{{ContainerID: 0, HostID: b.IDs.Base, Size: b.IDs.Count}}
	c.Linux.Namespaces = append(c.Linux.Namespaces, namespace{Type: "user"})
	c.Linux.UIDMappings, c.Linux.GIDMappings = ids, ids
}

func namespaces(kinds ...string) (list []namespace) {
	for _, k := range kinds {
		list = append(list, namespace{Type: k})
	}
	return list
}

// process is rung-guest, the first process inside.
func (b bundle) process() *process {
	guest := held.GuestConfig{
		ControlFD: controlFD, Init: true, Spare: b.Rung == rung.Container || b.Rung == rung.Hardened && b.IDs.Single(), User: held.User(b.Tree.UID), Workdir: "/work", Env: b.Env,
	}
	p := &process{
		Cwd:     "/",
		Env:     []string{"PATH=" + held.GuestPath, "GOMAXPROCS=1"},
		Rlimits: rlimits(b.Limits),
	}
	if b.Rung == rung.Hardened && !b.IDs.Single() {
		n := held.UserProcesses(b.Limits)
		p.Rlimits = append(p.Rlimits, rlimit{Type: "RLIMIT_NPROC", Hard: n, Soft: n})
	}
	if b.Rung == rung.Container {
		// What a plain container gives root: Docker's default capabilities, and programs may gain by setuid. All but
		// CAP_MKNOD: Docker bounds it by device rules of a control group, which rung's groups do not have, and without them a
		// node made inside opens any disk of the host.
		caps := []string{
			"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_NET_RAW", "CAP_SETGID",
			"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
		}
		p.Capabilities = capabilities{Bounding: caps, Effective: caps, Permitted: caps}
	} else {
		// rung-guest switches users and signals; it gives up SETPCAP, and its children everything, before user code exists.
		caps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP"}
		p.Capabilities = capabilities{Bounding: caps, Effective: caps, Permitted: caps, Inheritable: caps, Ambient: caps}
		p.NoNewPrivileges = true
		guest.DropCaps = true
		p.User = user{UID: held.GuestUID, GID: held.GuestUID}
		if b.IDs.Single() {
			p.User, guest.User = user{}, held.User(0)
		}
	}
	raw, err := json.Marshal(guest)
	if err != nil {
		panic(err) // a struct of plain fields always marshals
	}
	p.Args = []string{held.GuestInside, "serve", string(raw)}
	return p
}

func rlimits(l rung.Limits) []rlimit {
	files := uint64(l.Files)
	return []rlimit{
		{Type: "RLIMIT_NOFILE", Soft: files, Hard: files},
		{Type: "RLIMIT_CORE"}, // a core file goes where the host's core_pattern says, outside
		{Type: "RLIMIT_MEMLOCK", Soft: 64 << 10, Hard: 64 << 10},
	}
}

// mounts are the kernel's own file systems; the tree with its work and home directories is mounted by the holder.
func (b bundle) mounts() []mountPoint {
	size := []string{"mode=1777", "size=" + held.TmpSize(b.Limits.Memory)}
	if b.Rung != rung.GVisor { // whose tmpfs does not know the option
		size = append(size, "nr_inodes="+held.TmpInodes(b.Limits.Memory))
	}
	list := []mountPoint{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append([]string{"nosuid", "noexec", "nodev"}, size...)},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid", "nodev"}, size...)},
	}
	if b.Rung == rung.GVisor {
		// gVisor applies the root's read-only flag to everything below it that is not a mount of its own.
		for dst, src := range b.Tree.Own(b.root) {
			list = append(list, mountPoint{Destination: dst, Type: "bind", Source: src, Options: []string{"bind", "rw", "nosuid", "nodev"}})
		}
	}
	if b.Rung == rung.Container {
		list = append(list,
			mountPoint{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			mountPoint{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}})
	}
	return list
}

// document is the configuration with its seccomp profile: compiled bytes for crun, which would need 29 ms to compile moby's
// profile; rules for runc, which takes nothing else. RATIONALE.md, "Why does rung compile its own seccomp filters?"
func (b bundle) document() (*config, error) {
	c := b.config()
	var profile seccomp.Profile
	switch b.Rung {
	case rung.Container:
		profile = seccomp.Container
	case rung.Hardened:
		profile = seccomp.HardenedNotify
	default:
		return c, nil // gVisor answers system calls itself
	}
	if b.Runtime.Name != "crun" {
		raw, err := seccomp.RuncSection(profile, b.listener)
		c.Linux.Seccomp = raw
		return c, err
	}
	text, err := seccomp.Annotation(profile)
	c.Annotations = map[string]string{seccomp.AnnotationKey: text}
	c.Linux.Seccomp = seccomp.CrunSection(b.listener)
	return c, err
}
