//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// guestAttacks are aimed at rung-guest, which is PID 1 wherever there is a PID namespace: whoever rules it rules every
// later process, and answers rung in its name.
func guestAttacks() []attack {
	return []attack{
		{"guest-mem-read", guestMemory(os.O_RDONLY)},
		{"guest-mem-write", guestMemory(os.O_RDWR)},
		{"guest-vm-readv", guestVM(unix.ProcessVMReadv)},
		{"guest-vm-writev", guestVM(unix.ProcessVMWritev)},
		{"guest-ptrace", func(t target) result { return judge(unix.PtraceSeize(t.Guest)) }},
		{"guest-signal", guestSignal},
		{"guest-thread-signal", guestThreadSignal},
		{"guest-fd-list", func(t target) result { return listable(proc(t.Guest, "fd")) }},
		{"guest-fd-open", guestFD},
		{"guest-fd-directory", guestDirectory},
		{"guest-fd-take", guestTakeFD},
		{"guest-environ", func(t target) result { return open(proc(t.Guest, "environ"), unix.O_RDONLY) }},
		{"guest-maps", func(t target) result { return readable(proc(t.Guest, "maps")) }},
		{"guest-root", func(t target) result { return listable(proc(t.Guest, "root")) }},
		{"guest-cwd", func(t target) result { return listable(proc(t.Guest, "cwd")) }},
		{"guest-program-write", guestProgram},
		{"guest-oom-score", func(t target) result { return open(proc(t.Guest, "oom_score_adj"), unix.O_WRONLY) }},
		{"guest-limits", guestLimits},
		{"guest-namespaces", guestNamespaces},
		{"guest-id-map", func(t target) result { return open(proc(t.Guest, "uid_map"), unix.O_WRONLY) }},
	}
}

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

func listable(dir string) result {
	f, err := os.Open(dir)
	if err != nil {
		return judge(err)
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return judge(err)
}

// goText is where a Go program without relocation begins: rung-guest is one, and its map is not needed to find it.
const goText = 0x400000

// guestMemory reads the guest's memory, and writes the same bytes back where it may.
func guestMemory(mode int) func(target) result {
	return func(t target) result {
		f, err := os.OpenFile(proc(t.Guest, "mem"), mode, 0)
		if err != nil {
			return judge(err)
		}
		defer f.Close()
		var b [16]byte
		if _, err := f.ReadAt(b[:], goText); err != nil || mode == os.O_RDONLY {
			return judge(err)
		}
		_, err = f.WriteAt(b[:], goText)
		return judge(err)
	}
}

// guestVM: EFAULT comes after the permission check, where the page may not be written or is not there.
func guestVM(call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) func(target) result {
	return func(t target) result {
		var b [1]byte
		local := []unix.Iovec{{Base: &b[0]}}
		local[0].SetLen(1)
		_, err := call(t.Guest, local, []unix.RemoteIovec{{Base: goText, Len: 1}}, 0)
		return judge(err, unix.EFAULT)
	}
}

// signals are all there are, the ones that end or stop everything last; only asked about where they would do it.
func signals(t target) []unix.Signal {
	if !t.Really {
		return []unix.Signal{0}
	}
	var list []unix.Signal
	for s := unix.Signal(1); s <= 64; s++ {
		if s != unix.SIGKILL && s != unix.SIGSTOP {
			list = append(list, s)
		}
	}
	return append(list, unix.SIGSTOP, unix.SIGKILL)
}

func guestSignal(t target) result {
	var list []result
	for _, s := range signals(t) {
		list = append(list, judge(unix.Kill(t.Guest, s)).with("signal %d", s))
	}
	return first(list...)
}

func guestThreadSignal(t target) result {
	threads, err := os.ReadDir(proc(t.Guest, "task"))
	if err != nil {
		return judge(err)
	}
	var list []result
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		for _, s := range signals(t) {
			list = append(list, judge(unix.Tgkill(t.Guest, tid, s)).with("thread %d signal %d", tid, s))
			if _, _, e := unix.Syscall(unix.SYS_TKILL, uintptr(tid), uintptr(s), 0); e == 0 {
				list = append(list, result{Outcome: crossed, Detail: "tkill"})
			}
		}
	}
	return first(list...)
}

// guestFD opens what the guest has open by its number, whether or not the list can be read.
func guestFD(t target) result {
	var list []result
	for n := range 16 {
		path := filepath.Join(proc(t.Guest, "fd"), strconv.Itoa(n))
		for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_PATH} {
			list = append(list, open(path, flags).with("descriptor %d", n))
		}
	}
	return first(list...)
}

// guestDirectory looks for a directory of the host among what the guest has open: one is enough to walk out.
func guestDirectory(t target) result {
	var root, st unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return failed(err)
	}
	var list []result
	for n := range 64 {
		path := filepath.Join(proc(t.Guest, "fd"), strconv.Itoa(n)) + "/."
		if err := unix.Stat(path, &st); err != nil {
			list = append(list, judge(err))
			continue
		}
		r := result{Outcome: crossed, Detail: path}
		if st.Dev == root.Dev && st.Ino == root.Ino {
			r.Outcome = held // the sandbox's own root
		}
		list = append(list, r)
	}
	return first(list...)
}

// guestTakeFD duplicates the guest's control channel.
func guestTakeFD(t target) result {
	p, err := unix.PidfdOpen(t.Guest, 0)
	if err != nil {
		return judge(err)
	}
	defer unix.Close(p)
	var list []result
	for n := range 16 {
		list = append(list, fd(unix.PidfdGetfd(p, n, 0)).with("descriptor %d", n))
	}
	return first(list...)
}

// guestProgram opens the guest's program for writing. ETXTBSY says that only its running forbids it, which is no wall,
// unless its mount is read-only: the kernel asks that afterwards.
func guestProgram(t target) result {
	var list []result
	paths := []string{proc(t.Guest, "exe"), "/.rung/guest"}
	if p, err := os.Readlink(proc(t.Guest, "exe")); err == nil {
		paths = append(paths, p)
	}
	for _, p := range paths {
		_, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		through := []error{unix.ETXTBSY}
		var fs unix.Statfs_t
		if unix.Statfs(p, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0 {
			through = nil
		}
		list = append(list, judge(err, through...).with("%s", p))
	}
	if t.Really {
		for _, p := range []string{"/.rung/guest", "/.rung"} {
			list = append(list, judge(os.Rename(p, p+".old")).with("rename %s", p), judge(os.Chmod(p, 0o777)).with("chmod %s", p))
		}
	}
	return first(list...)
}

// guestLimits asks for the guest's limits, which needs the same right as setting them.
func guestLimits(t target) result {
	var l unix.Rlimit
	return judge(unix.Prlimit(t.Guest, unix.RLIMIT_NOFILE, nil, &l))
}

// guestNamespaces enters the guest's namespaces. EINVAL comes after the permission, for those one is in already.
func guestNamespaces(t target) result {
	var list []result
	for _, kind := range []string{"uts", "ipc", "net", "cgroup", "pid", "mnt", "user"} {
		f, err := unix.Open(proc(t.Guest, filepath.Join("ns", kind)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			list = append(list, judge(err).with("open %s", kind))
			continue
		}
		list = append(list, judge(unix.Setns(f, 0), unix.EINVAL).with("setns %s", kind))
		unix.Close(f)
	}
	return first(list...)
}

// environments looks for a variable in every process's environment that can be read.
func environments(name string) result {
	found := result{Outcome: held, Detail: "not in any environment"}
	list, _ := filepath.Glob("/proc/[0-9]*/environ") // a well-formed pattern
	for _, path := range append(list, "/proc/self/environ") {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(raw, []byte{0}) {
			if value, ok := bytes.CutPrefix(v, []byte(name+"=")); ok {
				return result{Outcome: crossed, Detail: digest(value)}
			}
		}
	}
	return found
}

// visible looks for a process by its command line.
func visible(marker string) (int, error) {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline") // a well-formed pattern
	for _, path := range list {
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(raw, []byte(marker)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil && pid != os.Getpid() {
			return pid, nil
		}
	}
	return 0, errors.New("no such process is visible")
}

// reached is what an escapee can do to one process of the host. Empty says that it was let through.
type reached struct {
	PID    int    `json:"pid"`
	Signal string `json:"signal"`
	Trace  string `json:"trace"`
	Memory string `json:"memory"`
	Copy   string `json:"copy"`
}

func reach(pids []string) error {
	runtime.LockOSThread() // a tracer is a thread
	say := func(r result) string {
		if r.Outcome == crossed {
			return ""
		}
		return r.Errno
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		t := target{Guest: pid}
		err = json.NewEncoder(os.Stdout).Encode(reached{
			PID: pid, Signal: say(judge(unix.Kill(pid, 0))), Trace: say(judge(unix.PtraceSeize(pid))),
			Memory: say(guestMemory(os.O_RDONLY)(t)), Copy: say(guestVM(unix.ProcessVMReadv)(t)),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
