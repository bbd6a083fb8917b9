//go:build linux

package hostile

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
)

// result is one line of the probe's.
type result struct {
	Probe   string `json:"probe"`
	Outcome string `json:"outcome"`
	Errno   string `json:"errno"`
	Detail  string `json:"detail"`
}

func (r result) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Outcome, r.Errno, r.Detail))
}

// Reasons that several lines of the table below share.
const (
	sameKernel = "one kernel for all: this rung is no answer to a hole in it"
	plainRoot  = "the runtime's shipped defaults: user code is root inside, as rung-guest is"
	plainCaps  = "the runtime's shipped defaults: its capabilities and filter allow it, in namespaces of its own"
	sentry     = "answered by gVisor's own kernel, of which the host's sees nothing"
)

// expected names the attacks that get through on a rung, each with the reason; everything else must be held. What is not
// an attack that gets through on `none` proves nothing and is skipped.
var expected = map[rung.Rung]map[string]string{
	rung.Process: {"shared-kernel": sameKernel},
	rung.Hardened: {
		"shared-kernel": sameKernel,
	},
	rung.Container: {
		"shared-kernel":  sameKernel,
		"guest-mem-read": plainRoot, "guest-mem-write": plainRoot, "guest-vm-readv": plainRoot, "guest-vm-writev": plainRoot,
		"guest-ptrace": plainRoot, "guest-signal": plainRoot, "guest-thread-signal": plainRoot, "guest-fd-list": plainRoot,
		"guest-fd-open": plainRoot, "guest-environ": plainRoot, "guest-maps": plainRoot, "guest-root": plainRoot, "guest-cwd": plainRoot,
		"guest-oom-score": plainRoot, "guest-limits": plainRoot, "guest-id-map": plainRoot,
		"chroot": plainCaps, "terminal-input": plainCaps, "socket-packet": plainCaps, "socket-xdp": plainCaps, "socket-raw-ip": plainCaps, "socket-raw-ip6": plainCaps,
		"socket-netfilter": plainCaps, "socket-xfrm": plainCaps, "socket-uevent": plainCaps, "socket-audit": plainCaps,
		"socket-key": plainCaps, "socket-rxrpc": plainCaps, "socket-sctp": plainCaps, "socket-bluetooth": plainCaps, "socket-tipc": plainCaps, "socket-can": plainCaps,
		"writable-mounts": "the runtime's shipped defaults: a writable root, thrown away at the end",
		"mount-flags":     "the runtime's shipped defaults: set-user-id programs work",
		"setuid-programs": "the runtime's shipped defaults: set-user-id programs work",
		"kernel-symbols":  "the runtime's shipped defaults: not among the masked paths",
		"kernel-config":   "the runtime's shipped defaults: not among the masked paths",
		"kernel-log":      "the runtime's shipped defaults, where the kernel lets everybody read its log",
		"i386-program":    "the runtime's shipped defaults: 32-bit programs run",
		"i386-call":       "the runtime's shipped defaults: 32-bit programs run",
		"x32-call":        "the runtime's shipped defaults, on kernels that have it",
	},
	rung.GVisor: {
		"unshare-user": sentry, "clone-user": sentry, "clone3": sentry, "guest-namespaces": sentry, "kernel-log": sentry,
		"socket-uevent": sentry, "terminal-input": sentry, "device-nodes": "gVisor's own file system in user space has a node of its own: /dev/fuse",
	},
}

// silent says why an attack does not get through on the control of this host; others are told with what they met.
var silent = map[string]string{
	"descriptors":        "rung closes what its caller left open before it starts anything, the control too",
	"proc-root-walk":     "there is nothing above the host's own root",
	"guest-fd-directory": "the control's root is the host's, so that the guest's directory is no other",
}

// sameUser are attacks that get through where user code has the guest's own id, which is root's of a namespace with one id:
// it can end its own sandbox, and write to /dev and a home of its own. The guest's memory and descriptors stay out of reach.
var sameUser = []string{
	"guest-signal", "guest-thread-signal", "guest-fd-list", "guest-id-map", "guest-limits", "guest-oom-score",
	"writable-mounts", "kernel-knobs",
}

// planted are canaries on the host, made after the probe was built.
type planted struct {
	target map[string]any
	digest string // of every canary's content
}

// plant puts a canary wherever a sandbox could look. All end with the test.
func plant(t *testing.T) planted {
	t.Helper()
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	token := hex.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	name := "rung-canary-" + token[:12]
	answer := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Logf("no canary at %s %s: %v", network, address, err)
			return ""
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(token)) // whoever left early learns less
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	socket := filepath.Join(os.TempDir(), name+".sock")
	answer("unix", socket)
	answer("unix", "@"+name)
	if os.Getuid() == 0 {
		if err := os.Chmod(socket, 0o777); err != nil { // any uid may connect: only not seeing it protects
			t.Fatal(err)
		}
	}
	var tcp []string
	for _, a := range []string{"127.0.0.1:0", "[::1]:0"} {
		if at := answer("tcp", a); at != "" {
			tcp = append(tcp, at)
		}
	}
	var files []string
	for _, dir := range []string{"/root", "/home", "/var", "/run", "/tmp", "/etc", "/opt", "/mnt", "/srv", "/dev/shm", "/", os.Getenv(dirEnv)} {
		path := filepath.Join(dir, name)
		if os.WriteFile(path, []byte(token), 0o644) == nil { // not everybody may, and not every host has them all
			files = append(files, path)
			t.Cleanup(func() { os.Remove(path) })
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	secret := "RUNG_CANARY_" + token[:12]
	t.Setenv(secret, token)
	marker := exec.Cmd{Path: "/bin/sleep", Args: []string{name, "600"}, Env: []string{secret + "=" + token}}
	if err := marker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = marker.Process.Kill() // ours, not collected yet
		_ = marker.Wait()         // it was killed: that is no news
	})
	// A descriptor that everything this program starts inherits, unless somebody closes it.
	leak, err := syscall.Open("/", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(leak) })
	return planted{digest: hex.EncodeToString(sum[:]), target: map[string]any{
		"tcp": tcp, "abstract": name, "socket": socket, "files": files, "env": secret, "marker": name,
		"boot": strings.TrimSpace(string(boot)),
	}}
}

// attack runs every attack in b and returns the outcomes by name. An attack that found a canary must have read the right
// one; what found something else is no crossing, and is told.
func (b *box) attack(t *testing.T, p planted, really bool) map[string]result {
	t.Helper()
	p.target["scratch"], p.target["really"] = b.dirs, really
	raw, err := json.Marshal(p.target)
	if err != nil {
		t.Fatal(err)
	}
	out, exit, err := b.run(t, b.probe(), "all", string(raw))
	if err != nil || exit.Code != 0 {
		t.Fatalf("the probe ended with %+v, %v after %d bytes", exit, err, len(out))
	}
	all := map[string]result{}
	for line := range strings.Lines(out) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch r.Probe {
		case "host-tcp", "host-abstract-socket", "host-path-socket", "host-files", "environment":
			if r.Outcome == "crossed" && r.Detail != p.digest {
				r.Outcome = "error"
			}
		}
		all[r.Probe] = r
	}
	return all
}

// TestWalls is the table: every attack on every rung.
func TestWalls(t *testing.T) {
	p := plant(t)
	var control map[string]result
	for _, r := range walls() {
		t.Run(string(r), func(t *testing.T) {
			b := attacked(t, r, func(s *driver.Spec) { s.Limits.PIDs = 512 })
			// Where user code is as strong as the guest, signals would end it: that is known and no news.
			got := b.attack(t, p, (r == rung.Process || r == rung.Hardened || r == rung.GVisor) && !held.SingleID())
			if r == rung.None {
				control = got
				judgeControl(t, got)
				return
			}
			b.alive(t)
			if control == nil && os.Getuid() == 0 {
				t.Fatal("the control on none did not run")
			}
			judgeWall(t, r, got)
		})
	}
}

func judgeControl(t *testing.T, got map[string]result) {
	if os.Getuid() != 0 {
		return // what an ordinary user may not do without a wall either is proved as root
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		r := got[name]
		if r.Outcome == "crossed" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if r.Outcome == "error" {
				t.Fatalf("the control is broken: %s", r)
			}
			if why := silent[name]; why != "" {
				t.Skip("proves nothing here: " + why)
			}
			t.Skipf("proves nothing here: not even without a wall: %s", r)
		})
	}
}

func judgeWall(t *testing.T, r rung.Rung, got map[string]result) {
	for _, name := range slices.Sorted(maps.Keys(got)) {
		res := got[name]
		why, known := expected[r][name]
		if slices.Contains(sameUser, name) && held.SingleID() {
			why, known = "an ordinary user without subordinate ids: user code has the guest's id, and the record says so", true
		}
		switch {
		case res.Outcome == "error":
			t.Errorf("%s: the probe could not try: %s", name, res)
		case res.Outcome == "crossed" && !known:
			t.Errorf("%s: CROSSED: %s", name, res)
		case res.Outcome == "crossed":
			t.Logf("%s: crossed, as it must be: %s", name, why)
		case known:
			t.Logf("%s: held here (%s), though the rung does not promise it: %s", name, res, why)
		}
	}
}
