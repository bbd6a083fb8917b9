// Package profile holds rung's own system call profiles as data: which calls, for what, and why the others not. They are
// compiled when code is generated; see the parent package.
//
// The allow-list was written for what people run in a sandbox: programs in C, Go, Rust, Python, Node.js and Java, shells,
// git, package managers, compilers, databases in their default configuration. A call is on it when such a program needs
// it and cannot do without; what has a fallback in every C library or run-time is answered with ENOSYS so that the fallback
// is taken; what opens kernel code that an unprivileged program does not need is refused.
package profile

import "github.com/rung-dev/rung/internal/sys/seccomp/filter"

// Allowed calls, by purpose. They take no condition: what they reach is bounded by namespaces, ids and capabilities.
var allowed = []filter.Rule{
	{Action: filter.Allow, Names: []string{ // files, by descriptor and by path; mount flags and ids decide what they reach
		"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2",
		"open", "openat", "openat2", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl", "flock",
		"lseek", "stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "ustat",
		"access", "faccessat", "faccessat2", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "umask",
		"mkdir", "mkdirat", "rmdir", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat",
		"symlink", "symlinkat", "readlink", "readlinkat", "chmod", "fchmod", "fchmodat", "fchmodat2",
		"chown", "fchown", "lchown", "fchownat", "utime", "utimes", "utimensat", "futimesat",
		"truncate", "ftruncate", "fallocate", "fadvise64", "readahead", "sync", "syncfs", "fsync", "fdatasync",
		"sync_file_range", "copy_file_range", "sendfile", "splice", "tee", "cachestat",
		"getxattr", "lgetxattr", "fgetxattr", "getxattrat", "listxattr", "llistxattr", "flistxattr", "listxattrat",
		"setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
		"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	}},
	{Action: filter.Allow, Names: []string{ // memory of one's own
		"brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "msync", "mincore", "mlock", "mlock2", "munlock",
		"mlockall", "munlockall", "memfd_create", "membarrier", "remap_file_pages", "mseal", "map_shadow_stack",
		"pkey_alloc", "pkey_free", "pkey_mprotect",
	}},
	{Action: filter.Allow, Names: []string{ // processes, threads and signals; clone is conditional, clone3 is answered ENOSYS
		"fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "kill", "tkill", "tgkill",
		"pidfd_open", "pidfd_send_signal", "rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigqueueinfo",
		"rt_tgsigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "sigaltstack", "signalfd", "signalfd4",
		"restart_syscall", "pause", "getpid", "getppid", "gettid", "getpgid", "getpgrp", "setpgid", "getsid", "setsid",
		"set_tid_address", "set_robust_list", "get_robust_list", "rseq", "futex", "futex_waitv", "futex_wait", "futex_wake",
		"futex_requeue", "arch_prctl", "prctl", "getcpu", "uname", "sysinfo", "getrandom",
		"uretprobe", "uprobe", // made by the kernel's own trampolines when the host traces a program; refusing would kill it
	}},
	{Action: filter.Allow, Names: []string{ // scheduling and limits: without capabilities only ever downwards
		"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam", "sched_getscheduler",
		"sched_setscheduler", "sched_getattr", "sched_setattr", "sched_get_priority_max", "sched_get_priority_min",
		"sched_rr_get_interval", "getpriority", "setpriority", "ioprio_get", "ioprio_set", "getrlimit", "setrlimit",
		"prlimit64", "getrusage", "times",
	}},
	{Action: filter.Allow, Names: []string{ // ids: rung-guest switches users under this filter, others cannot for want of capabilities
		"getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "setuid", "setgid", "setreuid",
		"setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups", "capget", "capset",
	}},
	{Action: filter.Allow, Names: []string{ // clocks are read, never set
		"time", "gettimeofday", "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "alarm", "getitimer",
		"setitimer", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete",
		"timerfd_create", "timerfd_settime", "timerfd_gettime",
	}},
	{Action: filter.Allow, Names: []string{ // waiting, pipes, sockets that exist (socket and socketpair are conditional)
		"poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
		"epoll_pwait2", "eventfd", "eventfd2", "pipe", "pipe2", "bind", "connect", "listen", "accept", "accept4",
		"getsockname", "getpeername", "getsockopt", "setsockopt", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg",
		"recvmmsg", "shutdown",
	}},
	{Action: filter.Allow, Names: []string{ // shared memory and semaphores of the sandbox's own IPC namespace: databases use them
		"shmget", "shmat", "shmdt", "shmctl", "semget", "semop", "semtimedop", "semctl",
	}},
	{Action: filter.Allow, Names: []string{ // confining oneself further
		"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
	}},
}

// absent calls are answered as if the kernel had been built without them, because everybody who uses them has another way
// and takes it on ENOSYS only.
var absent = []filter.Rule{{Action: filter.Errno(filter.ENOSYS), Names: []string{
	"clone3",                 // its flags are behind a pointer, which a filter cannot read; C libraries fall back to clone
	"statmount", "listmount", // /proc/self/mountinfo is the fallback
	"listns", "open_tree_attr", // not before somebody needs them
	"file_getattr", "file_setattr",
	"lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules",
	"rseq_slice_yield",
	"memfd_secret", // hides memory from everyone, including an investigator
	// Kernel asynchronous I/O: databases fall back to threads.
	"io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents",
	// Message queues: hardly any program uses them, and the kernel objects behind them are a favourite of exploits.
	"msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
}}}

// Watched are the calls whose use says something about the program: attempts to leave the box or to reach kernel code that
// most kernel exploits of the last years went through. With Hardened and Process they are refused with EPERM like everything
// else that is not allowed, and each attempt becomes an event. clone, socket and personality are watched for the arguments
// that are refused.
var Watched = []string{
	// namespaces and mounts
	"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
	"move_mount", "open_tree", "mount_setattr",
	// files by handle, and watching whole file systems: around every path check
	"open_by_handle_at", "name_to_handle_at", "fanotify_init",
	// kernel code that has a history
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"add_key", "request_key", "keyctl", "modify_ldt", "vmsplice",
	// other processes' memory and descriptors
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
	// the machine itself
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff",
	"iopl", "ioperm", "quotactl", "quotactl_fd", "acct", "settimeofday", "clock_settime", "syslog",
}

// Not named anywhere, so refused with plain EPERM: mbind, set_mempolicy, get_mempolicy, migrate_pages, move_pages,
// adjtimex, clock_adjtime, lookup_dcookie, nfsservctl, uselib, _sysctl, sysfs, sethostname, setdomainname, vhangup,
// process_mrelease, fanotify_mark and what else there is.

// Constants of the Linux ABI, the same on amd64 and arm64. They are spelled out because this package also compiles where
// the syscall package has none of them.
const (
	afUnix, afInet, afInet6, afNetlink = 1, 2, 10, 16

	sockStream, sockDgram, sockRaw = 1, 2, 3
	sockTypeMask                   = 0xf // the rest are SOCK_CLOEXEC and SOCK_NONBLOCK; the kernel refuses anything else

	protoAny, protoTCP, protoUDP, protoMPTCP = 0, 6, 17, 262

	netlinkRoute = 0

	// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. (CLONE_NEWTIME is not among clone's flags.)
	cloneNamespaces = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

	tiocsti, tioclinux, tiocsetd = 0x5412, 0x541c, 0x5423

	seccompNewListener = 1 << 3

	sIFMT, sIFREG, sIFIFO, sIFSOCK = 0xf000, 0x8000, 0x1000, 0xc000
)

// on is a rule for one call.
func on(name string, a filter.Action, when ...filter.Cond) filter.Rule {
	return filter.Rule{Names: []string{name}, Action: a, When: when}
}

// conditional are the calls of which some uses are needed and others are dangerous.
func conditional(watch filter.Action) []filter.Rule {
	list := []filter.Rule{
		on("clone", filter.Allow, filter.Bits(0, cloneNamespaces, 0)),
		on("clone", watch),

		// Typing into the terminal outside (the sandbox has its own session; this holds when somebody forgets), and line
		// disciplines, which load kernel modules on demand.
		on("ioctl", filter.Errno(filter.EPERM), filter.Int(1, tiocsti)),
		on("ioctl", filter.Errno(filter.EPERM), filter.Int(1, tioclinux)),
		on("ioctl", filter.Errno(filter.EPERM), filter.Int(1, tiocsetd)),
		on("ioctl", filter.Allow),

		// Asking for the execution domain is harmless; setting it switches address randomisation off.
		on("personality", filter.Allow, filter.Int(0, 0)),
		on("personality", filter.Allow, filter.Int(0, 0xffffffff)),
		on("personality", watch),

		// Filters only ever add up, so a program may confine itself or its children. A listener of its own it may not
		// have: where several filters ask to be notified, the newest listener is the one that answers, and it may answer
		// "continue". (The kernel allows one listener for each chain of filters; this does not depend on it.)
		on("seccomp", filter.Allow, filter.Bits(1, seccompNewListener, 0)),

		on("socketpair", filter.Allow, filter.Int(0, afUnix)),
	}
	for _, mode := range []uint64{0, sIFREG, sIFIFO, sIFSOCK} { // no devices, not even the whiteouts everybody may make
		list = append(list,
			on("mknod", filter.Allow, filter.Bits(1, sIFMT, mode)),
			on("mknodat", filter.Allow, filter.Bits(2, sIFMT, mode)))
	}
	return list
}

// Hardened is the profile of the rung of that name. watch answers the calls in Watched: Notify where rung receives the
// notifications, else Errno(EPERM).
//
// It allows internet sockets: the sandbox has a network namespace of its own, and programs use its loopback.
func Hardened(watch filter.Action) *filter.Policy {
	list := []filter.Rule{on("socket", filter.Allow, filter.Int(0, afUnix))}
	for _, family := range []uint32{afInet, afInet6} {
		open := func(kind uint64, proto uint32, a filter.Action) {
			list = append(list, on("socket", a, filter.Int(0, family), filter.Bits(1, sockTypeMask, kind), filter.Int(2, proto)))
		}
		open(sockStream, protoAny, filter.Allow)
		open(sockStream, protoTCP, filter.Allow)
		open(sockDgram, protoAny, filter.Allow)
		open(sockDgram, protoUDP, filter.Allow)
		open(sockStream, protoMPTCP, filter.Errno(filter.EPROTONOSUPPORT)) // Go tries it first and takes TCP when the kernel has none
		list = append(list,
			on("socket", watch, filter.Int(0, family), filter.Bits(1, sockTypeMask, sockRaw)),
			// SCTP, DCCP, L2TP, UDP-Lite, SMC and others load modules on demand.
			on("socket", filter.Errno(filter.EPERM), filter.Int(0, family)))
	}
	list = append(list,
		on("socket", filter.Allow, filter.Int(0, afNetlink), filter.Int(2, netlinkRoute)), // getifaddrs and getaddrinfo ask it
		on("socket", watch)) // AF_ALG, AF_VSOCK, AF_PACKET, netfilter and xfrm, …
	return assemble(watch, list)
}

// Process is the profile of the rung of that name: as Hardened, but internet sockets are refused and watched. Netlink is
// refused without an event, because every C library asks it for the interfaces before it resolves a name.
func Process(watch filter.Action) *filter.Policy {
	return assemble(watch, []filter.Rule{
		on("socket", filter.Allow, filter.Int(0, afUnix)),
		on("socket", filter.Errno(filter.EPERM), filter.Int(0, afNetlink), filter.Int(2, netlinkRoute)),
		on("socket", watch),
	})
}

func assemble(watch filter.Action, sockets []filter.Rule) *filter.Policy {
	p := &filter.Policy{
		Default:    filter.Errno(filter.EPERM),
		Unassigned: filter.Errno(filter.ENOSYS),
		Above:      filter.Errno(filter.ENOSYS),
		// The 32-bit entry: its socketcall hides the address family behind a pointer, so no filter can judge it. Killed and
		// not refused, because a 32-bit program that gets an error from exit as well loops until its time is up. (x32 numbers
		// are above the highest and get ENOSYS, as on kernels built without x32.)
		Foreign: filter.KillProcess,
	}
	p.Rules = append(p.Rules, allowed...)
	p.Rules = append(p.Rules, absent...)
	p.Rules = append(p.Rules, conditional(watch)...)
	p.Rules = append(p.Rules, sockets...)
	p.Rules = append(p.Rules, filter.Rule{Names: Watched, Action: watch})
	return p
}
