package profile

import "github.com/rung-dev/rung/internal/sys/seccomp/filter"

const (
	protExec    = 4       // mmap(2)
	cloneThread = 0x10000 // clone(2): a thread of this process, never a process
)

// gateCalls are what a Go program needs that speaks over sockets it makes or is given, and reads a few files.
var gateCalls = []string{
	// descriptors and files; Landlock says which
	"read", "readv", "write", "writev", "pread64", "lseek", "close", "close_range", "openat", "fstat", "newfstatat", "statx",
	"fcntl", "getdents64", "readlinkat", "pipe2", "eventfd2", "dup3", "splice",
	// sockets that exist
	"bind", "listen", "connect", "accept4", "getsockname", "getpeername", "getsockopt", "setsockopt", "sendto", "recvfrom",
	"sendmsg", "sendmmsg", "recvmsg", "recvmmsg", "shutdown",
	// waiting
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "futex", "nanosleep", "clock_nanosleep",
	"restart_syscall", "sched_yield",
	// memory
	"brk", "munmap", "mremap", "madvise", "mincore", "mlock", "munlock",
	// the Go runtime
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "tgkill", "gettid", "getpid", "getuid", "geteuid", "getgid",
	"getegid", "sched_getaffinity", "set_robust_list", "rseq", "getrandom", "clock_gettime", "clock_getres", "gettimeofday",
	"getrlimit", "prlimit64", "uname", "arch_prctl", "set_tid_address", "exit", "exit_group", "timer_create", "timer_settime",
	"timer_delete", "prctl",
}

// Gate is the profile of the gate's own process, which parses what hostile sandboxes and servers send: it can speak, and
// neither start a program nor make executable memory, nor touch what the kernel keeps for administrators.
func Gate() *filter.Policy {
	p := &filter.Policy{
		Default:    filter.Errno(filter.EPERM),
		Unassigned: filter.Errno(filter.ENOSYS),
		Above:      filter.Errno(filter.ENOSYS),
		Foreign:    filter.KillProcess,
	}
	p.Rules = append(p.Rules, filter.Rule{Names: gateCalls, Action: filter.Allow})
	p.Rules = append(p.Rules, absent...)
	p.Rules = append(p.Rules,
		on("mmap", filter.Errno(filter.EPERM), filter.Bits(2, protExec, protExec)), on("mmap", filter.Allow),
		on("mprotect", filter.Errno(filter.EPERM), filter.Bits(2, protExec, protExec)), on("mprotect", filter.Allow),
		on("clone", filter.Allow, filter.Bits(0, cloneThread, cloneThread)),
		on("ioctl", filter.Errno(filter.EPERM)),
		on("socketpair", filter.Allow, filter.Int(0, afUnix)),
	)
	for _, family := range []uint32{afInet, afInet6} {
		p.Rules = append(p.Rules,
			on("socket", filter.Allow, filter.Int(0, family), filter.Bits(1, sockTypeMask, sockStream)),
			on("socket", filter.Allow, filter.Int(0, family), filter.Bits(1, sockTypeMask, sockDgram)))
	}
	return p
}
