//go:build linux

package posture

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/measure"
)

// fake makes a system from files, a measurement and what can be opened. Nothing of the real machine shows.
type fake struct {
	files    map[string]string
	self     measure.Measurement
	mounts   string
	env      map[string]string
	writable []string
	readable []string
	answers  []string
}

func (f fake) system(t *testing.T) System {
	t.Helper()
	root := t.TempDir()
	for name, text := range f.files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := measure.ParseMountInfo([]byte(f.mounts))
	if err != nil {
		t.Fatal(err)
	}
	return System{
		Root: root, Self: f.self, Mounts: mounts,
		Getenv: func(k string) string { return f.env[k] },
		Open: func(path string, write bool) error {
			if write && slices.Contains(f.writable, path) || !write && slices.Contains(f.readable, path) {
				return nil
			}
			return errors.New("permission denied")
		},
		Dial: func(path string) error {
			if slices.Contains(f.answers, path) {
				return nil
			}
			return errors.New("connection refused")
		},
	}
}

// first are a machine's first namespaces on an older kernel, whose net and mnt numbers are not fixed.
func first() map[string]string {
	ns := maps.Clone(initial)
	ns["net"], ns["mnt"] = "net:[4026531840]", "mnt:[4026531841]"
	return ns
}

// apart are a container's namespaces, without the kinds named.
func apart(without ...string) map[string]string {
	ns := first()
	for kind := range ns {
		if !slices.Contains(without, kind) {
			ns[kind] = kind + ":[4026532999]"
		}
	}
	return ns
}

const (
	everyCap   = 0x1ffffffffff
	dockerCaps = 0xa80425fb
	bootID     = "0b0f6ac1-8e51-45fb-b3c9-7a1f2a3b4c5d"
	overlay    = "1 0 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/x\n"
	hosts      = "2 1 8:1 /var/lib/docker/containers/c/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
)

func dockerSelf() measure.Measurement {
	return measure.Measurement{
		UIDMap:       []rung.IDMap{{Size: 1<<32 - 1}},
		Capabilities: measure.CapNames(dockerCaps), Bounding: measure.CapNames(dockerCaps), SeccompMode: 2, SeccompFilters: 1,
		LSM: "docker-default (enforce)", Namespaces: apart("user", "time"), Kernel: "6.1.0", BootID: bootID,
		Interfaces: []string{"lo", "eth0"}, Descriptors: []int{0, 1, 2}, PIDsMax: 100, MemoryMax: 1 << 30,
	}
}

func privilegedSelf() measure.Measurement {
	m := dockerSelf()
	m.Capabilities, m.Bounding, m.SeccompMode, m.LSM = measure.CapNames(everyCap), measure.CapNames(everyCap), 0, "unconfined"
	return m
}

func hardenedSelf() measure.Measurement {
	m := dockerSelf()
	m.UID, m.GID, m.UIDMap = 1000, 1000, []rung.IDMap{{Host: 0x70000000, Size: 65536}}
	m.Capabilities, m.Bounding, m.NoNewPrivs, m.RootReadOnly = []string{}, []string{}, true, true
	m.Namespaces, m.Interfaces = apart("time"), []string{"lo"}
	return m
}

func bareSelf() measure.Measurement {
	return measure.Measurement{
		UID: 1000, UIDMap: []rung.IDMap{{Size: 1<<32 - 1}}, Capabilities: []string{}, Bounding: measure.CapNames(everyCap),
		LSM: "unconfined", Namespaces: first(), Kernel: "6.1.0", BootID: bootID, Interfaces: []string{"lo", "eth0", "docker0"},
		Descriptors: []int{0, 1, 2},
	}
}

const bareMounts = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"

type whereCase struct {
	fake
	want, base rung.Rung
	says       []string // parts of the text
}

func machineCases() map[string]whereCase {
	flagged := map[string]string{"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu hypervisor sse\n"}
	return map[string]whereCase{
		"bare host": {
			fake: fake{self: bareSelf(), mounts: bareMounts, writable: []string{"/proc/sys/kernel/core_pattern"}},
			want: rung.None, base: rung.None, says: []string{"nothing stands between", "NET-02", "whether a hypervisor hides"},
		},
		"a cloud's machine, bare": {
			fake: fake{self: bareSelf(), mounts: bareMounts, files: with(flagged, "sys/class/dmi/id/sys_vendor", "Amazon EC2\n")},
			want: rung.None, base: rung.None, says: []string{"Amazon EC2", "if nothing does, the machine is a boundary"},
		},
		"a cloud's bare metal": {
			fake: fake{self: bareSelf(), mounts: bareMounts, files: map[string]string{
				"proc/cpuinfo": "flags\t\t: fpu sse\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
			}},
			want: rung.None, base: rung.None, says: []string{"none shows itself"},
		},
		"firecracker": {
			fake: fake{self: bareSelf(), mounts: bareMounts, files: with(flagged, "sys/bus/virtio/devices/virtio0", "")},
			want: rung.MicroVM, base: rung.MicroVM, says: []string{"without a PCI bus", "yours alone"},
		},
		"kata": {
			fake: fake{
				self: dockerSelf(), mounts: "1 0 0:9 / / rw - virtiofs kataShared rw\n", files: flagged,
				env: map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
			},
			want: rung.MicroVM, base: rung.MicroVM, says: []string{"made for this container", "Kata"},
		},
		"a microVM with a share": {
			fake: fake{
				self: bareSelf(), mounts: bareMounts + "2 1 0:9 / /work rw - virtiofs work rw\n",
				files: with(flagged, "sys/class/dmi/id/sys_vendor", "Cloud Hypervisor"),
			},
			want: rung.MicroVM, base: rung.MicroVM, says: []string{"VMM-05"},
		},
	}
}

func dockerCases() map[string]whereCase {
	return map[string]whereCase{
		"docker": {
			fake: fake{self: dockerSelf(), mounts: overlay + hosts, files: map[string]string{".dockerenv": ""}},
			want: rung.Container, base: rung.Container,
			says: []string{"made by docker", "not hardened: no user namespace, root inside, 14 capabilities", "PRV-09", "docker-default"},
		},
		"docker, privileged": {
			fake: fake{
				self: privilegedSelf(), mounts: overlay, files: map[string]string{".dockerenv": "", "dev/sda1": ""},
				readable: []string{"/dev/sda1", "/proc/kcore"}, writable: []string{"/proc/sys/kernel/core_pattern"},
			},
			want: rung.None, base: rung.Container,
			says: []string{"lowered by", "PRV-03", "PRV-04", "KRN-18", "KRN-17", "DEV-01", "KRN-01"},
		},
		"docker with its socket": {
			fake: fake{
				self: dockerSelf(), mounts: overlay, files: map[string]string{"var/run/docker.sock": ""},
				answers: []string{"/var/run/docker.sock"},
			},
			want: rung.None, base: rung.Container, says: []string{"built as container, lowered by one finding", "SOC-01"},
		},
		"docker with a dead socket": {
			fake: fake{self: dockerSelf(), mounts: overlay, files: map[string]string{"var/run/docker.sock": ""}},
			want: rung.Container, base: rung.Container,
		},
		"docker with the host's /etc": {
			fake: fake{self: dockerSelf(), mounts: overlay + "3 1 8:1 /etc /host-etc rw - ext4 /dev/sda1 rw\n"},
			want: rung.None, base: rung.Container, says: []string{"the host's /etc is mounted on /host-etc writable"},
		},
		"docker with the host's /etc to read": {
			fake: fake{self: dockerSelf(), mounts: overlay + "3 1 8:1 /etc /host-etc ro - ext4 /dev/sda1 rw\n"},
			want: rung.Container, base: rung.Container, says: []string{"read-only", "FSM-01"},
		},
		"docker with a project": {
			fake: fake{self: dockerSelf(), mounts: overlay + "3 1 8:1 /home/me/project /work rw - ext4 /dev/sda1 rw\n"},
			want: rung.Container, base: rung.Container, says: []string{"set-uid files and devices in it count"},
		},
		"docker in the host's processes and network": {
			fake: fake{self: func() measure.Measurement {
				m := dockerSelf()
				m.Namespaces, m.Interfaces = apart("user", "time", "pid", "net"), []string{"lo", "docker0"}
				return m
			}(), mounts: overlay},
			want: rung.Process, base: rung.Process, says: []string{"NSP-01", "NSP-02", "it sees the machine's processes"},
		},
		"cgroup v1 with release_agent": {
			fake: fake{
				self: dockerSelf(), mounts: overlay + "3 1 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
				writable: []string{"/sys/fs/cgroup/memory/release_agent"},
			},
			want: rung.None, base: rung.Container, says: []string{"KRN-20"},
		},
	}
}

func otherCases() map[string]whereCase {
	return map[string]whereCase{
		"a pod": {
			fake: fake{
				self: func() measure.Measurement { m := dockerSelf(); m.SeccompMode = 0; return m }(), mounts: overlay,
				env:   map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
				files: map[string]string{"var/run/secrets/kubernetes.io/serviceaccount/token": "secret"},
			},
			want: rung.Container, base: rung.Container, says: []string{"made by kubernetes", "SEC-09", "KRN-01"},
		},
		"rootless podman": {
			fake: fake{self: func() measure.Measurement {
				m := dockerSelf()
				m.UIDMap = []rung.IDMap{{Host: 1000, Size: 1}, {Inside: 1, Host: 100000, Size: 65536}}
				m.Namespaces, m.LSM = apart("time"), ""
				return m
			}(), mounts: overlay, files: map[string]string{"run/.containerenv": ""}},
			want: rung.Container, base: rung.Container, says: []string{"made by podman", "id 0 is 1000 outside", "PRV-14", "KRN-15"},
		},
		"hardened": {
			fake: fake{self: hardenedSelf(), mounts: overlay},
			want: rung.Hardened, base: rung.Hardened, says: []string{"no capabilities", "user namespace", "read-only root"},
		},
		"hardened with a leaked descriptor": {
			fake: fake{self: func() measure.Measurement { m := hardenedSelf(); m.Descriptors = []int{0, 1, 2, 7}; return m }(), mounts: overlay},
			want: rung.Hardened, base: rung.Hardened, says: []string{"descriptors came in from outside: 7"},
		},
		"rung's own process rung": {
			fake: fake{self: hardenedSelf(), mounts: overlay, env: map[string]string{said: "process"}, files: map[string]string{".rung/guest": ""}},
			want: rung.Process, base: rung.Hardened, says: []string{"made by rung", "rung built it as process"},
		},
		"a sandbox that boasts": {
			fake: fake{self: dockerSelf(), mounts: overlay, env: map[string]string{said: "microvm"}},
			want: rung.Container, base: rung.Container,
		},
		"a filtered service": {
			fake: fake{self: func() measure.Measurement { m := bareSelf(); m.SeccompMode, m.NoNewPrivs = 2, true; return m }(), mounts: bareMounts},
			want: rung.Process, base: rung.Process, says: []string{"system calls are filtered", "NSP-01"},
		},
		"gVisor": {
			fake: fake{
				self: measure.Measurement{
					Kernel: "4.19.0-gvisor", GVisor: true, GVisorSigns: []string{"uname release 4.19.0-gvisor"}, BootID: bootID,
					Capabilities: measure.CapNames(everyCap), Interfaces: []string{"lo"}, Descriptors: []int{0, 1, 2},
					Errors: map[string]string{"namespaces": "gVisor's own", "pids_max": "none", "cpu_max": "none"},
				},
				mounts: "1 0 0:1 / / rw - 9p none rw\n", files: map[string]string{".dockerenv": ""},
			},
			want: rung.GVisor, base: rung.GVisor, says: []string{"4.19.0-gvisor", "cpu_max, pids_max: none"},
		},
		"gVisor with the engine's socket": {
			fake: fake{
				self:   measure.Measurement{Kernel: "4.19.0-gvisor", GVisor: true},
				mounts: "1 0 0:1 / / rw - 9p none rw\n", files: map[string]string{"run/docker.sock": ""}, answers: []string{"/run/docker.sock"},
			},
			want: rung.None, base: rung.GVisor, says: []string{"SOC-01"},
		},
	}
}

func TestWhereami(t *testing.T) {
	cases := machineCases()
	maps.Copy(cases, dockerCases())
	maps.Copy(cases, otherCases())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Whereami(c.system(t))
			var text strings.Builder
			if err := got.Text(&text, Style{}); err != nil {
				t.Fatal(err)
			}
			if got.Rung != c.want || got.Base != c.base {
				t.Errorf("rung %s built as %s, want %s built as %s\n%s", got.Rung, got.Base, c.want, c.base, text.String())
			}
			flat := strings.Join(strings.Fields(text.String()), " ")
			for _, part := range c.says {
				if !strings.Contains(flat, part) {
					t.Errorf("the text lacks %q:\n%s", part, text.String())
				}
			}
			if got.Rung != got.Base && len(got.LoweredBy) == 0 || len(got.Because) == 0 {
				t.Errorf("lowered without a finding, or no evidence: %+v", got)
			}
			if _, err := json.Marshal(got); err != nil {
				t.Error(err)
			}
		})
	}
}

func with(m map[string]string, k, v string) map[string]string {
	out := maps.Clone(m)
	out[k] = v
	return out
}

// A container chooses the texts of its mounts, files and environment. None of it may reach the terminal as control characters
// or break the line width.
func TestHostileTexts(t *testing.T) {
	evil := "\x1b[2J\x1b]0;x\a" + strings.Repeat("A", 5000) + "\u202e"
	self := dockerSelf()
	self.Kernel, self.LSM, self.Interfaces = evil, evil, []string{evil, evil}
	self.Errors = map[string]string{evil: evil}
	f := fake{
		self: self, mounts: overlay + "3 1 8:1 /etc\\033[2J /x\\012y rw - ext4 /dev/sda1 rw\n",
		env: map[string]string{"container": evil, said: evil},
		files: map[string]string{
			"proc/cpuinfo": "flags: hypervisor\n", "sys/class/dmi/id/sys_vendor": "QEMU" + evil, "sys/hypervisor/type": evil,
			"dev/sd" + "\x1b[31m": "", "proc/device-tree/hypervisor/compatible": evil,
		},
		readable: []string{"/dev/sd\x1b[31m"},
	}
	var text strings.Builder
	if err := Whereami(f.system(t)).Text(&text, Style{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("a line of %d columns", n)
		}
	}
	if strings.ContainsAny(text.String(), "\x1b\a\u202e") {
		t.Errorf("control characters: %q", text.String())
	}
}

// FIFOs and devices in place of files must neither block nor be read without end.
func TestHostileFiles(t *testing.T) {
	s := fake{self: dockerSelf(), mounts: overlay}.system(t)
	for _, name := range []string{"proc/cpuinfo", "proc/cmdline"} {
		if err := os.MkdirAll(filepath.Join(s.Root, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := mkfifo(filepath.Join(s.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Root, "sys/hypervisor"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(s.Root, "sys/hypervisor/type")); err != nil {
		t.Fatal(err)
	}
	if got := Whereami(s); got.Rung != rung.Container {
		t.Errorf("%+v", got)
	}
}
