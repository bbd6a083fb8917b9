//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

// refused are the watched calls that the attacks make on hardened, with how often. Zero is "at least once": how often such a
// call is made is the probe's run-time's business too.
var refused = map[string]int64{
	"unshare": 3, "clone": 1, "mount": 1, "umount2": 1, "fsopen": 1, "fspick": 1, "open_tree": 1, "move_mount": 1, "mount_setattr": 1,
	"pivot_root": 1, "chroot": 1, "bpf": 1, "perf_event_open": 1, "add_key": 1, "keyctl": 1, "io_uring_setup": 1, "userfaultfd": 1,
	"open_by_handle_at": 1, "ptrace": 1, "process_vm_readv": 1, "process_vm_writev": 1, "pidfd_getfd": 16, "init_module": 1,
	"kexec_load": 1, "reboot": 1, "swapon": 1, "acct": 1, "syslog": 1, "personality": 1, "socket": 0,
}

// TestDeniedCalls: what hardened refuses is in the record, by its right name and number.
func TestDeniedCalls(t *testing.T) {
	p := plant(t)
	p.target["scratch"], p.target["really"] = []string{"/work", "/home/user"}, true
	raw, err := json.Marshal(p.target)
	if err != nil {
		t.Fatal(err)
	}
	rec := recorded(t, rung.Hardened, "--in", place("probe"), "--", "/work/probe", "all", string(raw))
	if rec.ExitReason != rung.Exited || rec.ExitCode != 0 {
		t.Fatalf("%s, exit %d: %s %s", rec.ExitReason, rec.ExitCode, rec.Error, rec.Stderr)
	}
	got := map[string]int64{}
	for _, d := range rec.Denied {
		got[d.Syscall] += d.Count
		if d.PID <= 0 || d.First.IsZero() || d.First.After(time.Now()) {
			t.Errorf("%+v names no process or time", d)
		}
	}
	for call, want := range refused {
		if n := got[call]; n == 0 || want != 0 && n != want {
			t.Errorf("%s is recorded %d times, not %d", call, n, want)
		}
		delete(got, call)
	}
	delete(got, "iopl") // made on one architecture only
	if len(got) > 0 {
		t.Errorf("recorded, though nobody made such calls: %v", got)
	}
}

// TestDeniedFlood: a hundred thousand refused calls are answered slower and slower, cost the supervisor a bounded part of a
// processor, and hold up nobody who makes none.
func TestDeniedFlood(t *testing.T) {
	b := attacked(t, rung.Hardened)
	flood, err := b.guest.Start(within(t), clientCmd(b, "exhaust", "denied", "100000"))
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	pid := holderOf(b.id)
	if os.Getuid() == 0 && pid == 0 {
		t.Fatal("no holder is found")
	}
	const span = 4 * time.Second
	begin, before := time.Now(), cpuTime(t, pid)
	for time.Since(begin) < span {
		asked := time.Now()
		b.alive(t)
		if d := time.Since(asked); d > 2*time.Second {
			t.Errorf("a program that makes no such calls took %v", d)
		}
		<-time.After(200 * time.Millisecond) // the flood is to go on meanwhile
	}
	took, used := time.Since(begin), cpuTime(t, pid)-before
	t.Logf("holder: %v of processor time in %v, %d KiB resident", used, took, status(pid, "VmRSS"))
	if used > took/4 {
		t.Errorf("the holder used %v of %v", used, took)
	}
	if rss := status(pid, "VmRSS"); rss > 64<<10 {
		t.Errorf("the holder has grown to %d KiB", rss)
	}
}

// cpuTime is user and system time of a process so far, read in clock ticks of 10 ms.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
