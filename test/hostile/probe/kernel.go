//go:build linux

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelAttacks reach for kernel code that a sandbox has no business in, each with arguments that fail harmlessly where
// they are let through.
func kernelAttacks() []attack {
	call := func(name string, nr uintptr, through []error, args ...uintptr) attack {
		return attack{name, func(target) result {
			var a [6]uintptr
			copy(a[:], args)
			_, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
			if e == 0 {
				return judge(nil)
			}
			return judge(e, through...)
		}}
	}
	reach := func(errs ...error) []error { return errs }
	return []attack{
		{"unshare-user", func(target) result { return judge(unix.Unshare(unix.CLONE_NEWUSER), unix.EINVAL) }},
		{"unshare-mount", func(target) result { return judge(unix.Unshare(unix.CLONE_NEWNS)) }},
		{"unshare-net", func(target) result { return judge(unix.Unshare(unix.CLONE_NEWNET)) }},
		{"clone-user", cloneUser},
		call("clone3", unix.SYS_CLONE3, reach(unix.EINVAL, unix.EFAULT), 0, 0),
		{"mount", func(target) result { return judge(unix.Mount("none", "/", "rung-no-such-fs", 0, ""), unix.ENODEV) }},
		{"umount", func(target) result { return judge(unix.Unmount("/bin/.", 0), unix.EINVAL) }},
		{"fsopen", func(target) result {
			r := fd(unix.Fsopen("rung-no-such-fs", 0))
			return r.through("ENODEV")
		}},
		call("fspick", unix.SYS_FSPICK, reach(unix.EBADF, unix.EFAULT, unix.EINVAL), ^uintptr(0), 0, 0),
		{"open-tree", func(target) result { return fd(unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)) }},
		{"move-mount", func(target) result {
			return judge(unix.MoveMount(-1, "", -1, "", unix.MOVE_MOUNT_F_EMPTY_PATH), unix.EBADF, unix.ENOENT)
		}},
		{"mount-setattr", func(target) result {
			return judge(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV}), unix.EBADF)
		}},
		{"pivot-root", func(target) result { return judge(unix.PivotRoot("/rung-none", "/rung-none"), unix.ENOENT) }},
		{"chroot", func(target) result { return judge(unix.Chroot("/")) }},
		{"bpf", func(target) result { return fd(bpfMap()) }},
		{"perf-event-open", func(target) result {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0, Config: unix.PERF_COUNT_SW_CPU_CLOCK}
			return fd(unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)) // all processes of one core
		}},
		{"add-key", func(target) result {
			_, err := unix.AddKey("user", "rung-probe", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING) // ends with this process
			return judge(err)
		}},
		{"keyctl", func(target) result {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
			return judge(err)
		}},
		{"io-uring", func(target) result { return fd(ioUring()) }},
		call("userfaultfd", unix.SYS_USERFAULTFD, nil, unix.O_CLOEXEC),
		{"open-by-handle", openByHandle},
		{"init-module", func(target) result { return judge(unix.InitModule([]byte("rung"), ""), unix.ENOEXEC, unix.EFAULT) }},
		call("kexec-load", unix.SYS_KEXEC_LOAD, reach(unix.EINVAL), 0, 17, 0, 0), // more segments than there may be
		call("reboot", unix.SYS_REBOOT, reach(unix.EINVAL), 0, 0, 0, 0),          // without its magic numbers
		call("swapon", unix.SYS_SWAPON, reach(unix.EFAULT), 0, 0),
		{"acct", func(target) result { return judge(unix.Acct("/rung-none"), unix.ENOENT) }},
		{"kernel-log", func(target) result {
			_, err := unix.Klogctl(10, nil) // asks for the buffer's size
			return judge(err)
		}},
		call("personality", unix.SYS_PERSONALITY, nil, 0x0040000), // no address randomisation, for this process
		{"terminal-input", terminalInput},
		{"shared-kernel", sharedKernel},
	}
}

// through makes an error number a crossing, where the call's helper could not say so.
func (r result) through(name string) result {
	if r.Errno == name {
		r.Outcome = crossed
	}
	return r
}

// cloneUser makes a user namespace the way everything does: in a new process, which ends at once.
func cloneUser(target) result {
	cmd := exec.Command(self(), "nothing")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return judge(cmd.Run())
}

// openByHandle: a handle that no file has is ESTALE to those who may ask.
func openByHandle(target) result {
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(dir)
	n, err := unix.OpenByHandleAt(dir, unix.NewFileHandle(1, make([]byte, 8)), unix.O_RDONLY)
	if err == nil {
		unix.Close(n)
	}
	return judge(err, unix.ESTALE, unix.EINVAL)
}

// terminalInput types into a terminal of its own: what is refused here would be refused on the caller's.
func terminalInput(target) result {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(err).with("no terminal")
	}
	signal.Ignore(unix.SIGHUP) // the terminal's end, at ours
	defer unix.Close(m)
	s, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if e != 0 {
		if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
			return failed(err)
		}
		if s, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY); e != 0 {
			return judge(e).with("other end")
		}
	}
	defer unix.Close(int(s))
	if _, err := unix.Setsid(); err != nil {
		_ = err // it leads a session already
	}
	_ = unix.IoctlSetInt(int(s), unix.TIOCSCTTY, 0) // without it only a privileged process may type
	return judge(typeInto(int(s)))
}

// sharedKernel asks whether a hole in the host's kernel is a hole in this wall.
func sharedKernel(t target) result {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return judge(err)
	}
	if strings.TrimSpace(string(raw)) == t.Boot {
		return result{Outcome: crossed, Detail: "the boot id is the host's"}
	}
	return result{Outcome: held, Detail: "the boot id is another"}
}

// knobs are the host's switches by which a writer runs code in it, or stops it.
func knobs() []string {
	return []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/vm/panic_on_oom",
		"/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sysrq-trigger",
		"/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state",
	}
}

func cgroupKnobs() (list []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*", "/sys/fs/cgroup"} {
		for _, name := range []string{"release_agent", "cgroup.procs", "devices.allow", "notify_on_release"} {
			found, _ := filepath.Glob(filepath.Join(pattern, name)) // a well-formed pattern
			list = append(list, found...)
		}
	}
	return list
}
