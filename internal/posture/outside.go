package posture

import (
	"path"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/measure"
)

// engines are the sockets whose other end starts containers with any mount it is asked for.
var engines = []string{
	"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
	"/run/podman/podman.sock", "/run/buildkit/buildkitd.sock", "/run/k3s/containerd/containerd.sock",
	"/var/lib/kubelet/pod-resources/kubelet.sock", "/run/libvirt/libvirt-sock", "/var/lib/incus/unix.socket",
	"/var/lib/lxd/unix.socket", "/run/snapd.socket", "/host/run/docker.sock", "/host/var/run/docker.sock",
}

// sockets: in a microVM an engine that answers is the machine's own, since a socket does not cross a share; it then gives
// away the machine, not the host.
func sockets(w wall) []Finding {
	if !w.jailed() && !w.Self.GVisor {
		return nil
	}
	list := engines
	if dir := w.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(slices.Clip(list), dir+"/docker.sock", dir+"/podman/podman.sock")
	}
	var out []Finding
	seen := false
	for _, p := range list {
		if w.exists(p) && w.Dial(p) == nil && !seen {
			seen = true // several names of one socket are one hole
			out = append(out, Finding{ID: "SOC-01", Text: "the container engine answers on " + clean(p), To: rung.None})
		}
	}
	for _, p := range []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"} {
		if w.exists(p) && w.Dial(p) == nil {
			out = append(out, Finding{ID: "SOC-08", Text: "the system bus answers on " + p})
			break
		}
	}
	return out
}

// filesystems of disks: a mount of one that shows a directory below its root is a bind from the host.
func onDisk(kind string) bool {
	switch kind {
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "nfs", "nfs4":
		return true
	}
	return false
}

// mounts looks for the host's directories. Their names come from mountinfo, which shows them from the root of the file
// system they are on: a directory on the host's second disk has its name there.
func mounts(w wall) []Finding {
	if !w.rootOwn {
		return nil
	}
	var out []Finding
	for _, m := range w.Mounts {
		if !onDisk(m.Type) || m.Point == "/" || provided(m) || m.ReadOnly() && !telling(m.Root) {
			continue
		}
		out = append(out, judge(m))
	}
	for _, m := range w.Mounts {
		if m.Type == "proc" && m.Point != "/proc" && !strings.HasPrefix(m.Point, "/proc/") {
			out = append(out, Finding{ID: "FSM-07", Text: "a second proc is mounted on " + clean(m.Point), To: rung.None})
		}
		if kernelFS(m.Type) && !m.ReadOnly() {
			out = append(out, Finding{ID: "FSM-08", Text: clean(m.Type) + " is mounted writable on " + clean(m.Point), To: rung.None})
		}
	}
	return out
}

func kernelFS(kind string) bool {
	switch kind {
	case "debugfs", "tracefs", "securityfs", "bpf", "configfs", "efivarfs":
		return true
	}
	return false
}

// provided are the files and volumes that engines themselves bind in.
func provided(m measure.Mount) bool {
	switch m.Point {
	case "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log", "/run/.containerenv", "/.rung/guest":
		return true
	}
	if strings.HasPrefix(m.Source, "/dev/loop") && m.Has("nosuid") && m.Has("nodev") {
		return true // a disk image of its own, as rung and some engines give
	}
	for _, part := range []string{"/volumes/", "/kubelet/pods/", "/overlay-containers/", "/containers/storage/", "/sandboxes/"} {
		if strings.Contains(m.Root, part) {
			return true
		}
	}
	return false
}

// telling reports whether merely reading the directory gives something away. Programs and libraries do not, nor does a
// directory that somebody chose to show.
func telling(root string) bool {
	if root == "/" {
		return true
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"} {
		if root == dir || strings.HasPrefix(root, dir+"/") {
			return false
		}
	}
	return sensitive(root)
}

func judge(m measure.Mount) Finding {
	what := "the host's " + clean(m.Root) + " is mounted on " + clean(m.Point)
	how := " writable"
	if m.ReadOnly() {
		how = " read-only"
	}
	f := Finding{ID: "FSM-14", Text: what + how}
	switch {
	case m.Root == "/" || sensitive(m.Root):
		f.ID = "FSM-01"
		if !m.ReadOnly() {
			f.To = rung.None
		}
	case !m.ReadOnly() && !(m.Has("nosuid") && m.Has("nodev")):
		f.Text += ", and set-uid files and devices in it count"
	}
	if m.Shared {
		f.Text += "; its mounts spread to the host"
	}
	return f
}

// sensitive are directories whose writer becomes the host's root or another user of it sooner or later.
func sensitive(root string) bool {
	root = path.Clean(root)
	if slices.Contains([]string{
		"/etc", "/root", "/home", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/var", "/run", "/dev", "/proc", "/sys",
	}, root) {
		return true
	}
	for _, dir := range []string{
		"/etc/", "/root/", "/boot/", "/usr/", "/bin/", "/lib/", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet",
		"/var/lib/containers", "/var/lib/rancher", "/var/lib/etcd", "/var/spool/cron", "/var/log",
	} {
		if strings.HasPrefix(root, dir) {
			return true
		}
	}
	return strings.HasPrefix(root, "/home/") && (strings.Count(root, "/") == 2 || strings.Contains(root, "/.ssh"))
}

// shares are directories that cross even a machine's boundary.
func shares(w wall) []Finding {
	var out []Finding
	for _, m := range w.Mounts {
		if (m.Type == "virtiofs" || m.Type == "9p" && !w.Self.GVisor) && m.Point != "/" && !m.ReadOnly() && m.Source != "kataShared" {
			out = append(out, Finding{ID: "VMM-05", Text: "a directory of the host is shared writable on " + clean(m.Point)})
		}
	}
	return out
}

func secrets(w wall) []Finding {
	if slices.ContainsFunc([]string{"/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets/kubernetes.io/serviceaccount/token"}, w.exists) {
		return []Finding{{ID: "SEC-09", Text: "a Kubernetes service account token is mounted: whatever it may do, this code may"}}
	}
	return nil
}

func descriptors(w wall) []Finding {
	var extra []string
	for _, fd := range w.Self.Descriptors {
		if fd > 2 {
			extra = append(extra, itoa(fd))
		}
	}
	if len(extra) == 0 {
		return nil
	}
	return []Finding{{ID: "SOC-20", Text: "descriptors came in from outside: " + clean(strings.Join(extra, ", "))}}
}

func network(w wall) []Finding {
	var names []string
	for _, n := range w.Self.Interfaces {
		if n != "lo" {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Finding{{ID: "NET-02", Text: "there is a network (" + clean(strings.Join(names, ", ")) + "): what it reaches was not tried"}}
}
