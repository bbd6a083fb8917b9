//go:build linux

package script

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// watch learns the ids of all sandboxes of a story, also of those that leave no record, from the directories they make.
type watch struct {
	fd   int
	seen map[string]bool
}

func newWatch() (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	return &watch{fd: fd, seen: map[string]bool{}}, nil
}

func (w *watch) add(dir string) error {
	if _, err := unix.InotifyAddWatch(w.fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	return nil
}

func (w *watch) close() { unix.Close(w.fd) }

// ids drains the queue. An event is 16 bytes of header, then a name padded with zeros.
func (w *watch) ids() map[string]bool {
	const header = unix.SizeofInotifyEvent
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if n <= 0 || err != nil {
			return w.seen
		}
		for at := 0; at+header <= n; {
			size := int(uint32(buf[at+12]) | uint32(buf[at+13])<<8 | uint32(buf[at+14])<<16 | uint32(buf[at+15])<<24)
			name := string(bytes.TrimRight(buf[at+header:at+header+size], "\x00"))
			if name != "" {
				w.seen[name] = true
			}
			at += header + size
		}
	}
}

func cmdLeftovers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: leftovers")
	}
	s := of(ts)
	var left []string
	if !poll(2*time.Second, func() bool { left = s.leftovers(); return len(left) == 0 }) {
		ts.Fatalf("left behind:\n\t%s", strings.Join(left, "\n\t"))
	}
}

// leftovers looks at everything a sandbox has on the host.
func (s *story) leftovers() (left []string) {
	ids := s.watch.ids()
	for _, d := range s.dirs {
		left = append(left, entries(filepath.Join(d, "sandboxes"))...)
	}
	left = append(left, groups(ids)...)
	left = append(left, s.mounts()...)
	left = append(left, loops(ids)...)
	for _, p := range s.processes(ids) {
		left = append(left, p.String())
	}
	return left
}

func entries(dir string) (left []string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		left = append(left, "directory "+filepath.Join(dir, e.Name()))
	}
	return left
}

// groups finds control groups named like a sandbox, wherever they are.
func groups(ids map[string]bool) (left []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && ids[d.Name()] {
			left = append(left, "control group "+path)
			return fs.SkipDir
		}
		return nil // groups come and go while we look
	})
	return left
}

func (s *story) mounts() (left []string) {
	raw, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.SplitSeq(string(raw), "\n") {
		for _, d := range append(s.dirs, s.state...) {
			if strings.Contains(line, " "+d+"/") {
				left = append(left, "mount "+line)
			}
		}
	}
	return left
}

// loops finds loop devices that still carry a sandbox's disk.
func loops(ids map[string]bool) (left []string) {
	bound, _ := filepath.Glob("/sys/block/loop*/loop")
	for _, dir := range bound {
		dev := "/dev/" + filepath.Base(filepath.Dir(dir))
		f, err := os.Open(dev)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		f.Close()
		if err != nil {
			continue
		}
		if id, ours := strings.CutPrefix(unix.ByteSliceToString(info.File_name[:]), "rung:"); ours && ids[id] {
			left = append(left, "loop device "+dev+" of "+id)
		}
	}
	return left
}

// proc is a process that belongs to the story's sandboxes.
type proc struct {
	pid  int
	name string
	why  string
}

func (p proc) String() string { return fmt.Sprintf("process %d (%s): %s", p.pid, p.name, p.why) }

// processes finds every process that is in a control group of a sandbox or touches a sandbox's directory: by its working
// directory, its command line, an open file or a mount of its own.
func (s *story) processes(ids map[string]bool) (list []proc) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if why := s.touches(dir, ids); why != "" {
			line, _ := os.ReadFile(dir + "/cmdline")
			if st, err := os.ReadFile(dir + "/stat"); err != nil || bytes.Contains(st, []byte(") Z ")) {
				continue // a zombie is its parent's to bury
			}
			list = append(list, proc{pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")), why})
		}
	}
	return list
}

func (s *story) touches(dir string, ids map[string]bool) string {
	raw, _ := os.ReadFile(dir + "/cgroup")
	for id := range ids {
		if bytes.Contains(raw, []byte("/"+id)) {
			return "in the control group of " + id
		}
	}
	links := []string{dir + "/cwd", dir + "/root"}
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		links = append(links, dir+"/fd/"+fd.Name())
	}
	for _, l := range links {
		to, _ := os.Readlink(l)
		for _, d := range s.dirs {
			if strings.HasPrefix(to, d+"/sandboxes/") {
				return "has " + to
			}
		}
	}
	line, _ := os.ReadFile(dir + "/cmdline")
	mounts, _ := os.ReadFile(dir + "/mountinfo")
	for _, d := range s.dirs {
		if bytes.Contains(line, []byte(d+"/sandboxes/")) {
			return "names " + d
		}
		if bytes.Contains(mounts, []byte(d+"/sandboxes/")) {
			return "mounts " + d
		}
	}
	return ""
}

// holders are the processes that stand beside the story's sandboxes.
func (s *story) holders() (list []proc) {
	for _, p := range s.processes(s.watch.ids()) {
		if p.name == "rung-holder" {
			list = append(list, p)
		}
	}
	return list
}

func cmdAlive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: alive N")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	s, got := of(ts), 0
	if !poll(patience, func() bool { got = len(s.sockets()); return got == want }) {
		ts.Fatalf("%d sandboxes are alive, not %d", got, want)
	}
}

func (s *story) sockets() (list []string) {
	for _, d := range s.dirs {
		found, _ := filepath.Glob(filepath.Join(d, "sandboxes", "*", "control.sock"))
		list = append(list, found...)
	}
	return list
}

// cmdGone is stricter than leftovers: processes must end by themselves and at once; directories may wait for a reaper.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: gone")
	}
	s := of(ts)
	var left []proc
	if !poll(time.Second, func() bool { left = s.processes(s.watch.ids()); return len(left) == 0 }) {
		ts.Fatalf("still there after a second: %v", left)
	}
}

func cmdKillHolder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: killholder")
	}
	list := of(ts).holders()
	if len(list) == 0 {
		ts.Fatalf("no holder is alive")
	}
	for _, p := range list {
		ts.Check(syscall.Kill(p.pid, syscall.SIGKILL))
	}
}

// cmdApart checks from the host that no two live sandboxes share a user id, but for the caller's own.
func cmdApart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: apart N")
	}
	s := of(ts)
	caller := map[string]bool{"0": true}
	for _, p := range s.people {
		caller[p.uid] = true
	}
	owner := map[string]int{}
	holders := s.holders()
	if strconv.Itoa(len(holders)) != args[0] {
		ts.Fatalf("%d sandboxes are alive, not %s", len(holders), args[0])
	}
	for _, h := range holders {
		ids := 0
		for uid := range below(h.pid) {
			if caller[uid] {
				continue
			}
			ids++
			if other := owner[uid]; other != 0 {
				ts.Fatalf("the sandboxes of holders %d and %d share user id %s", other, h.pid, uid)
			}
			owner[uid] = h.pid
		}
		if ids == 0 {
			ts.Fatalf("the sandbox of holder %d has no user id of its own", h.pid)
		}
	}
}

// below returns the user ids of a process's descendants.
func below(root int) map[string]bool {
	uids := map[string]bool{}
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", root))
	for _, f := range children {
		raw, _ := os.ReadFile(f)
		for field := range strings.FieldsSeq(string(raw)) {
			status, _ := os.ReadFile("/proc/" + field + "/status")
			for line := range strings.SplitSeq(string(status), "\n") {
				if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
					uids[strings.Fields(rest)[0]] = true
				}
			}
			pid, _ := strconv.Atoi(field)
			for uid := range below(pid) {
				uids[uid] = true
			}
		}
	}
	return uids
}
