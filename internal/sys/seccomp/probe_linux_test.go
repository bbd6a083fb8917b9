package seccomp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// probe is one harmless call in a form that tells a filter's refusal from the kernel's own.
type probe struct {
	name    string
	nr      uintptr
	args    [6]uintptr
	reached []syscall.Errno // what the kernel answers when the call reaches it (0 = it succeeds)
	denied  syscall.Errno   // what Hardened answers
	process syscall.Errno   // what Process answers, when that is something else
}

const ok = syscall.Errno(0)

func probes() []probe {
	absent := uintptr(0x3ffffff) // a process id nobody has
	list := []probe{
		{name: "unshare", nr: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWUTS}, reached: []syscall.Errno{ok}},
		{name: "setns", nr: unix.SYS_SETNS, args: [6]uintptr{^uintptr(0)}, reached: []syscall.Errno{unix.EBADF}},
		{name: "mount", nr: unix.SYS_MOUNT, reached: []syscall.Errno{unix.EFAULT, unix.EINVAL}},
		{name: "fsopen", nr: unix.SYS_FSOPEN, reached: []syscall.Errno{unix.EFAULT}},
		{name: "pivot_root", nr: unix.SYS_PIVOT_ROOT, reached: []syscall.Errno{unix.EFAULT}},
		{name: "chroot", nr: unix.SYS_CHROOT, reached: []syscall.Errno{unix.EFAULT}},
		{name: "bpf", nr: unix.SYS_BPF, args: [6]uintptr{9999}, reached: []syscall.Errno{unix.EINVAL, unix.EFAULT}},
		{name: "perf_event_open", nr: unix.SYS_PERF_EVENT_OPEN, reached: []syscall.Errno{unix.EFAULT}},
		{name: "io_uring_setup", nr: unix.SYS_IO_URING_SETUP, reached: []syscall.Errno{unix.EFAULT, unix.EINVAL}},
		{name: "userfaultfd", nr: unix.SYS_USERFAULTFD, args: [6]uintptr{0xffff}, reached: []syscall.Errno{unix.EINVAL}},
		{name: "keyctl", nr: unix.SYS_KEYCTL, args: [6]uintptr{9999}, reached: []syscall.Errno{unix.EOPNOTSUPP}},
		{name: "open_by_handle_at", nr: unix.SYS_OPEN_BY_HANDLE_AT, args: [6]uintptr{^uintptr(0)}, reached: []syscall.Errno{unix.EFAULT, unix.EBADF}},
		{name: "ptrace", nr: unix.SYS_PTRACE, args: [6]uintptr{unix.PTRACE_PEEKDATA, absent}, reached: []syscall.Errno{unix.ESRCH}},
		{name: "process_vm_readv", nr: unix.SYS_PROCESS_VM_READV, args: [6]uintptr{absent, 0, 0, 0, 0, 1}, reached: []syscall.Errno{unix.EINVAL, unix.ESRCH}},
		{name: "personality", nr: unix.SYS_PERSONALITY, args: [6]uintptr{0x0040000}, reached: []syscall.Errno{ok}},
		{name: "clone3", nr: unix.SYS_CLONE3, reached: []syscall.Errno{unix.EINVAL, unix.EFAULT}, denied: unix.ENOSYS},
		{name: "clone NEWUSER", nr: unix.SYS_CLONE, args: [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS}, reached: []syscall.Errno{unix.EINVAL}},
		{name: "TIOCSTI", nr: unix.SYS_IOCTL, args: [6]uintptr{^uintptr(0), unix.TIOCSTI}, reached: []syscall.Errno{unix.EBADF}},
		{name: "TIOCSTI with an ignored bit", nr: unix.SYS_IOCTL, args: [6]uintptr{^uintptr(0), 1<<32 | unix.TIOCSTI}, reached: []syscall.Errno{unix.EBADF}},
		{name: "seccomp NEW_LISTENER", nr: unix.SYS_SECCOMP, args: [6]uintptr{1, 8}, reached: []syscall.Errno{unix.EFAULT}},
		{name: "io_setup", nr: unix.SYS_IO_SETUP, reached: []syscall.Errno{unix.EINVAL, unix.EFAULT}, denied: unix.ENOSYS},
		{name: "AF_ALG", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, reached: []syscall.Errno{ok, unix.EAFNOSUPPORT}},
		{name: "AF_ALG with an ignored bit", nr: unix.SYS_SOCKET, args: [6]uintptr{1<<32 | unix.AF_ALG, unix.SOCK_SEQPACKET}, reached: []syscall.Errno{ok, unix.EAFNOSUPPORT}},
		{name: "AF_VSOCK", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, reached: []syscall.Errno{ok, unix.EAFNOSUPPORT}},
		{name: "AF_PACKET", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW}, reached: []syscall.Errno{ok, unix.EAFNOSUPPORT}},
		{name: "netlink xfrm", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, reached: []syscall.Errno{ok, unix.EPROTONOSUPPORT}},
		{name: "raw IP", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_RAW, 1}, reached: []syscall.Errno{ok}},
		{name: "UDP-Lite", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM, 136}, reached: []syscall.Errno{ok, unix.EPROTONOSUPPORT}},
		{name: "MPTCP", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, 262}, reached: []syscall.Errno{ok, unix.EPROTONOSUPPORT}, denied: unix.EPROTONOSUPPORT, process: unix.EPERM},
	}
	for i := range list {
		if list[i].denied == 0 {
			list[i].denied = unix.EPERM
		}
		if list[i].process == 0 {
			list[i].process = list[i].denied
		}
	}
	return append(list,
		probe{name: "TCP", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 6}, reached: []syscall.Errno{ok}, process: unix.EPERM},
		probe{name: "UDP6", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET6, unix.SOCK_DGRAM}, reached: []syscall.Errno{ok, unix.EAFNOSUPPORT}, process: unix.EPERM},
		probe{name: "netlink route", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}, reached: []syscall.Errno{ok}, process: unix.EPERM},
		probe{name: "AF_UNIX", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}, reached: []syscall.Errno{ok}},
		probe{name: "personality query", nr: unix.SYS_PERSONALITY, args: [6]uintptr{0xffffffff}, reached: []syscall.Errno{ok}},
		probe{name: "number 9999", nr: 9999, reached: []syscall.Errno{unix.ENOSYS}},
	)
}

// TestMain is also the child: it installs a filter and tells on its standard output what each probe got.
func TestMain(m *testing.M) {
	role := os.Getenv("RUNG_SECCOMP_CHILD")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := child(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(role string) error {
	if p, flood := strings.CutPrefix(role, "flood "); flood {
		return floodChild(p)
	}
	if role != "none" {
		if _, err := Install(Filter(Profile(role)), false); err != nil {
			return err
		}
	}
	got := map[string]syscall.Errno{}
	done := make(chan struct{})
	go func() { // another thread than the one that installed: the filter has to be on all
		runtime.LockOSThread()
		for _, p := range probes() {
			_, _, e := syscall.Syscall6(p.nr, p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], p.args[5])
			got[p.name] = e
		}
		close(done)
	}()
	<-done
	return json.NewEncoder(os.Stdout).Encode(got)
}

func inChild(t *testing.T, role string) map[string]syscall.Errno {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "RUNG_SECCOMP_CHILD="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child %q: %v: %s", role, err, out)
	}
	var got map[string]syscall.Errno
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: without it the kernel itself refuses what the filter is to refuse")
	}
}

func contains(list []syscall.Errno, e syscall.Errno) bool {
	return slices.Contains(list, e)
}

func TestProbes(t *testing.T) {
	requireRoot(t)
	control, hardened, process := inChild(t, "none"), inChild(t, "hardened"), inChild(t, "process")
	for _, p := range probes() {
		if !contains(p.reached, control[p.name]) {
			t.Errorf("%s: without a filter: %v; the probe proves nothing", p.name, control[p.name])
		}
		check := func(what string, got, denied syscall.Errno) {
			if denied == 0 && got != control[p.name] || denied != 0 && got != denied {
				t.Errorf("%s: %s: %v (%d), want %v", p.name, what, got, got, denied)
			}
		}
		check("hardened", hardened[p.name], p.denied)
		check("process", process[p.name], p.process)
	}
}

// TestContainer compares moby's profile with what is known of it: it is what a plain container has.
func TestContainer(t *testing.T) {
	requireRoot(t)
	got := inChild(t, "container")
	for name, want := range map[string]syscall.Errno{
		"unshare": unix.EPERM, "mount": unix.EPERM, "bpf": unix.EPERM, "keyctl": unix.EPERM, "io_uring_setup": unix.EPERM,
		"clone3": unix.ENOSYS, "clone NEWUSER": unix.EPERM, "AF_ALG": unix.EPERM, "AF_VSOCK": unix.EPERM,
		"ptrace": unix.ESRCH, "raw IP": 0, "chroot": unix.EFAULT, "number 9999": unix.ENOSYS,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// i386 is a 32-bit program: socketcall(SYS_SOCKET, {AF_ALG, SOCK_SEQPACKET, 0}), then exit(0) if that reached the kernel and
// exit(1) if it was refused with EPERM or ENOSYS.
func i386() []byte {
	code := []byte{
		0x6a, 0x00, 0x6a, 0x05, 0x6a, 0x26, // push 0, 5, 38
		0xb8, 0x66, 0, 0, 0, 0xbb, 1, 0, 0, 0, 0x89, 0xe1, 0xcd, 0x80, // socketcall(1, esp)
		0x31, 0xdb, // ebx = 0
		0x83, 0xf8, 0xff, 0x74, 0x07, // eax == -EPERM: to the inc
		0x83, 0xf8, 0xda, 0x74, 0x02, // eax == -ENOSYS: to the inc
		0xeb, 0x01, 0x43, // skip; inc ebx
		0xb8, 1, 0, 0, 0, 0xcd, 0x80, // exit(ebx)
		0xeb, 0xfe,
	}
	const base, head = 0x08048000, 52 + 32
	elf := []byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 1, 0, 0, 0}
	le := func(v ...uint32) {
		for _, x := range v {
			elf = append(elf, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
		}
	}
	le(base+head, 52, 0, 0, 52|32<<16, 1, 0)
	le(1, 0, base, base, uint32(head+len(code)), uint32(head+len(code)), 5, 0x1000)
	return append(elf, code...)
}

func TestThirtyTwoBitEntry(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the program is for x86")
	}
	file := filepath.Join(t.TempDir(), "i386")
	if err := os.WriteFile(file, i386(), 0o755); err != nil {
		t.Fatal(err)
	}
	control := exec.CommandContext(t.Context(), file)
	if err := control.Run(); err != nil {
		t.Skipf("this kernel runs no 32-bit programs: %v", err)
	}
	for _, p := range []Profile{Hardened, Process} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], file)
		cmd.Env = append(os.Environ(), "RUNG_SECCOMP_CHILD=flood exec "+string(p))
		err := cmd.Run()
		if state := cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() || state.Signal() != unix.SIGSYS {
			t.Errorf("%s: a 32-bit program ended with %v, want a kill by SIGSYS", p, err)
		}
	}
}
