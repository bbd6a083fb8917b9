//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileAttacks reach for the host's files, processes and devices.
func fileAttacks() []attack {
	list := []attack{
		{"host-files", hostFiles},
		{"host-process-seen", func(t target) result { _, err := visible(t.Marker); return judge(err) }},
		{"host-process-memory", hostProcess("mem")},
		{"host-process-root", hostProcess("root/.")},
		{"environment", func(t target) result { return environments(t.Env) }},
		{"descriptors", func(t target) result {
			if len(t.FDs) == 0 {
				return result{Outcome: held}
			}
			return result{Outcome: crossed, Detail: fmt.Sprint(t.FDs)}
		}},
		{"writable-mounts", writableMounts},
		{"mount-flags", mountFlags},
		{"setuid-programs", setuid},
		{"device-nodes", deviceNodes},
		{"make-device", makeDevice},
		{"open-device", openDevice},
		{"link-across", linkAcross},
		{"cgroup-escape", func(target) result { return open("/sys/fs/cgroup/cgroup.procs", unix.O_WRONLY) }},
		{"kernel-memory", func(target) result {
			return first(readable("/proc/kcore"), readable("/dev/mem"), readable("/dev/kmem"))
		}},
		{"kernel-log-file", func(target) result {
			return first(open("/proc/kmsg", unix.O_RDONLY).masked("/proc/kmsg"), open("/dev/kmsg", unix.O_RDONLY))
		}},
		{"kernel-symbols", func(target) result { return readable("/proc/kallsyms") }},
		{"kernel-config", func(target) result { return readable("/proc/config.gz") }},
		{"host-keys", func(target) result { return readable("/proc/keys") }},
		{"proc-root-walk", rootWalk},
	}
	return append(list,
		attack{"kernel-knobs", func(target) result { return turn(knobs()) }},
		attack{"cgroup-knobs", func(target) result { return turn(cgroupKnobs()) }})
}

// turn opens switches for writing and writes nothing.
func turn(paths []string) result {
	var list []result
	for _, p := range paths {
		list = append(list, open(p, unix.O_WRONLY).with("%s", p))
	}
	return first(list...)
}

// masked makes opening a mask no crossing: /dev/null in the file's place says nothing.
func (r result) masked(path string) result {
	var a, b unix.Stat_t
	if r.Outcome == crossed && unix.Stat(path, &a) == nil && unix.Stat("/dev/null", &b) == nil && a.Rdev == b.Rdev {
		return result{Outcome: held, Detail: "masked"}
	}
	return r
}

// descriptors lists what is open above the standard three, without opening anything that stays in the list.
func descriptors() (open []int) {
	for n := 3; n < 1024; n++ {
		flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 { // Go's own are close-on-exec, inherited ones are not
			open = append(open, n)
		}
	}
	return open
}

// hostFiles reads canaries by their host path and by every walk upwards.
func hostFiles(t target) result {
	var list []result
	for _, f := range t.Files {
		for _, base := range []string{"", "/proc/self/root", "/proc/self/cwd/../../../../..", "/work/../../../..", proc(t.Guest, "root"), proc(t.Guest, "cwd/../../../..")} {
			raw, err := os.ReadFile(base + f)
			if err != nil {
				list = append(list, judge(err).with("%s", base+f))
				continue
			}
			list = append(list, result{Outcome: crossed, Detail: digest(raw)})
		}
	}
	return first(list...)
}

// rootWalk leaves the root by descriptor: .. of / must stay /.
func rootWalk(target) result {
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	var at, up unix.Stat_t
	if err := unix.Fstat(dir, &at); err != nil {
		return failed(err)
	}
	if err := unix.Fstatat(dir, "..", &up, 0); err != nil {
		return judge(err)
	}
	cwd, err := os.Getwd()
	if err != nil || at.Dev != up.Dev || at.Ino != up.Ino || strings.Contains(cwd, "unreachable") {
		return result{Outcome: crossed, Detail: fmt.Sprint("cwd ", cwd, err)}
	}
	return result{Outcome: held}
}

func hostProcess(name string) func(target) result {
	return func(t target) result {
		pid, err := visible(t.Marker)
		if err != nil {
			return result{Outcome: held, Detail: err.Error()}
		}
		return open(proc(pid, name), unix.O_RDONLY)
	}
}

type mountPoint struct{ path, flags string }

func mountPoints() (list []mountPoint) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if field := strings.Fields(s.Text()); len(field) > 6 {
			list = append(list, mountPoint{strings.ReplaceAll(field[4], `\040`, " "), field[5]})
		}
	}
	return list
}

// writableMounts makes nameless files, and, where the attack is for good, one with a name, in every mount.
func writableMounts(t target) result {
	var wrote []string
	for _, m := range mountPoints() {
		st, err := os.Stat(m.path)
		if err != nil || !st.IsDir() || slices.Contains(wrote, m.path) {
			continue
		}
		n, err := unix.Open(m.path, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(n)
		} else if t.Really {
			name := filepath.Join(m.path, ".rung-probe")
			if n, err = unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
				unix.Close(n)
				_ = os.Remove(name) // it was made a moment ago
			}
		}
		if err == nil {
			wrote = append(wrote, m.path)
		}
	}
	slices.Sort(wrote)
	extra := slices.DeleteFunc(slices.Clone(wrote), func(p string) bool {
		return slices.Contains([]string{"/work", "/home/user", "/tmp", "/dev/shm"}, p)
	})
	if len(extra) > 0 {
		return result{Outcome: crossed, Detail: strings.Join(extra, " ")}
	}
	return result{Outcome: held, Detail: "only " + strings.Join(wrote, " ")}
}

// mountFlags: whatever can be written to must honour neither set-id bits nor devices.
func mountFlags(target) result {
	var loose []string
	for _, m := range mountPoints() {
		flags := strings.Split(m.flags, ",")
		if slices.Contains(flags, "ro") || strings.HasPrefix(m.path, "/dev") || strings.HasPrefix(m.path, "/proc") || strings.HasPrefix(m.path, "/sys") {
			continue
		}
		if !slices.Contains(flags, "nosuid") {
			loose = append(loose, m.path)
		}
	}
	if len(loose) > 0 {
		return result{Outcome: crossed, Detail: "without nosuid: " + strings.Join(loose, " ")}
	}
	return result{Outcome: held}
}

// setuid: a set-user-id program gains nothing when its mount ignores the bit or no_new_privs does.
func setuid(target) result {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return failed(err)
	}
	if bytes.Contains(status, []byte("NoNewPrivs:\t1")) {
		return result{Outcome: held, Detail: "no_new_privs"}
	}
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/bin"} {
		names, _ := os.ReadDir(dir)
		for _, n := range names {
			path := filepath.Join(dir, n.Name())
			st, err := os.Lstat(path)
			if err != nil || st.Mode()&os.ModeSetuid == 0 {
				continue
			}
			var fs unix.Statfs_t
			if unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOSUID == 0 {
				return result{Outcome: crossed, Detail: path}
			}
		}
	}
	return result{Outcome: held, Detail: "every one lies on a nosuid mount"}
}

// deviceNodes names the nodes in /dev beyond the usual ones, without opening them: some act on being opened.
func deviceNodes(target) result {
	usual := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
	var more []string
	names, err := os.ReadDir("/dev")
	if err != nil {
		return judge(err)
	}
	for _, n := range names {
		if n.Type()&os.ModeDevice != 0 && !slices.Contains(usual, n.Name()) {
			more = append(more, n.Name())
		}
	}
	if len(more) > 0 {
		return result{Outcome: crossed, Detail: strings.Join(more[:min(len(more), 8)], " ")}
	}
	return result{Outcome: held}
}

// makeDevice makes a node of the null device wherever it may, and opens it. The node is removed again.
func makeDevice(t target) result {
	var list []result
	for _, dir := range append([]string{"/", "/dev", "/dev/shm", "/tmp"}, t.Scratch...) {
		path := filepath.Join(dir, ".rung-null-"+strconv.Itoa(os.Getpid()))
		if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
			list = append(list, judge(err).with("%s", dir))
			continue
		}
		list = append(list, open(path, unix.O_RDWR).with("open in %s", dir))
		_ = os.Remove(path) // it was made a moment ago
	}
	return first(list...)
}

// openDevice makes a node of the loop control device and of a loop disk, which are no business of a sandbox's, and opens
// it for reading. Neither acts on that.
func openDevice(t target) result {
	var list []result
	for _, dir := range append([]string{"/", "/dev", "/dev/shm", "/tmp"}, t.Scratch...) {
		for _, d := range []struct{ mode, major, minor uint32 }{{unix.S_IFCHR, 10, 237}, {unix.S_IFBLK, 7, 0}} {
			path := filepath.Join(dir, ".rung-dev-"+strconv.Itoa(os.Getpid()))
			if err := unix.Mknod(path, d.mode|0o600, int(unix.Mkdev(d.major, d.minor))); err != nil {
				list = append(list, judge(err).with("%s", dir))
				continue
			}
			list = append(list, open(path, unix.O_RDONLY).with("open in %s", dir))
			_ = os.Remove(path) // it was made a moment ago
		}
	}
	return first(list...)
}

// linkAcross links and moves files between the sandbox's own places and out of the template.
func linkAcross(t target) result {
	if len(t.Scratch) < 2 {
		return failed(fmt.Errorf("no scratch"))
	}
	a, b := filepath.Join(t.Scratch[0], ".rung-link"), filepath.Join(t.Scratch[1], ".rung-link")
	defer os.Remove(a)
	defer os.Remove(b)
	if err := os.WriteFile(a, []byte("x"), 0o600); err != nil {
		return failed(err)
	}
	list := []result{judge(unix.Link(a, b)).with("link"), judge(unix.Rename(a, b)).with("rename")}
	for _, src := range []string{"/.rung/guest", "/etc/passwd", "/proc/self/root/etc/passwd"} {
		list = append(list, judge(unix.Linkat(unix.AT_FDCWD, src, unix.AT_FDCWD, b+"2", unix.AT_SYMLINK_FOLLOW)).with("link %s", src))
		_ = os.Remove(b + "2") // where it was made
	}
	return first(list...)
}
