package measure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rung-dev/rung"
)

const status = "Name:\tcat\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000001\nCapEff:\t0000000000000000\n" +
	"CapBnd:\t00000000a80425fb\nCapAmb:\t0000000000200000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n"

func TestParseStatus(t *testing.T) {
	got, err := ParseStatus([]byte(status))
	want := Status{
		Held: 0x200001, Passed: 0x200000, Bounding: 0xa80425fb, HasCaps: true, NoNewPrivs: true, HasNoNewPrivs: true,
		Seccomp: 2, HasSeccomp: true, Filters: 3,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got, err := ParseStatus([]byte("Name:\tx\nSeccomp:\t0\n")); err != nil || got.HasCaps || got.HasNoNewPrivs || got.Filters != -1 {
		t.Errorf("a short status: %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"a forged second line":  "Name:\tx\nNoNewPrivs:\t1\n" + status,
		"no number":             "NoNewPrivs:\tyes\n",
		"a negative number":     "Seccomp:\t-2\n",
		"an overflowing number": "CapBnd:\t1ffffffffffffffff\n",
	} {
		if got, err := ParseStatus([]byte(text)); err == nil {
			t.Errorf("%s passed: %+v", name, got)
		}
	}
}

func TestCapNames(t *testing.T) {
	if got := CapNames(0xa80425fb); len(got) != 14 || got[0] != "CAP_CHOWN" || got[13] != "CAP_SETFCAP" {
		t.Errorf("the usual default set: %v", got)
	}
	if got := CapNames(1 << 63); len(got) != 1 || got[0] != "CAP_63" {
		t.Errorf("a bit without a name: %v", got)
	}
	if got := CapNames(0); got == nil {
		t.Error("no capabilities must be an empty list")
	}
}

func TestParseIDMap(t *testing.T) {
	got, err := ParseIDMap([]byte("         0       1000          1\n         1     100000      65536\n"))
	want := []rung.IDMap{{Inside: 0, Host: 1000, Size: 1}, {Inside: 1, Host: 100000, Size: 65536}}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"0 0\n", "0 0 4294967296\n", "0 -1 1\n", "a b c\n", "0 0 0 0\n"} {
		if got, err := ParseIDMap([]byte(bad)); err == nil {
			t.Errorf("%q passed: %v", bad, got)
		}
	}
}

func TestParseNetDev(t *testing.T) {
	text := "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n    lo: 1 2 3\n  eth0:1: 4 5 6\neth1:123\n"
	got, err := ParseNetDev([]byte(text))
	if err != nil || !cmp.Equal(got, []string{"lo", "eth0:1", "eth1"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ParseNetDev([]byte("nonsense\n")); err == nil {
		t.Errorf("nonsense passed: %v", got)
	}
}

func TestCgroupPath(t *testing.T) {
	text := []byte("9:name=systemd:/\n3:cpu,cpuacct:/a/b\n0::/user.slice:x\n")
	for controller, want := range map[string]string{"cpu": "/a/b", "cpuacct": "/a/b", "": "/user.slice:x", "name=systemd": "/"} {
		if got, ok := CgroupPath(text, controller); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", controller, got, ok, want)
		}
	}
	if got, ok := CgroupPath(text, "pids"); ok {
		t.Errorf("pids found: %q", got)
	}
	if got, ok := CgroupPath([]byte("0::/../../x\n"), ""); ok {
		t.Errorf("a path out of the hierarchy passed: %q", got)
	}
}

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]int64{"max\n": 0, "-1\n": 0, "9223372036854771712\n": 0, "536870912\n": 536870912} {
		if got, ok := parseMax([]byte(text)); !ok || got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	for text, want := range map[string]float64{"max 100000\n": 0, "150000 100000\n": 1.5} {
		if got, ok := parseCPUMax([]byte(text)); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, bad := range []string{"", "1", "1 0", "x 1", "1 2 3"} {
		if got, ok := parseCPUMax([]byte(bad)); ok {
			t.Errorf("%q passed: %v", bad, got)
		}
	}
}

func TestParseMountInfo(t *testing.T) {
	text := `22 27 0:21 / /proc rw,nosuid shared:5 master:2 - proc proc rw
23 27 0:22 /a\040b /mnt\011x ro,nodev - ext4 /dev/sda1 rw
24 27 0:23 / /cut rw - tm`
	got, err := ParseMountInfo([]byte(text))
	want := []Mount{
		{Root: "/", Point: "/proc", Options: "rw,nosuid", Shared: true, Type: "proc", Source: "proc", Super: "rw"},
		{Root: "/a b", Point: "/mnt\tx", Options: "ro,nodev", Type: "ext4", Source: "/dev/sda1", Super: "rw"},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if !got[1].ReadOnly() || got[0].ReadOnly() || !got[0].Has("nosuid") {
		t.Error("options are misread")
	}
	if _, err := ParseMountInfo([]byte("1 2 3\n")); err == nil {
		t.Error("a short line passed")
	}
}

// Whatever a hostile container puts into these files: an answer or an error, no panic, and errors that quote little.
func FuzzParse(f *testing.F) {
	f.Add([]byte(status))
	f.Add([]byte("0 0 1\n"))
	f.Add([]byte("  lo: 1 2\n"))
	f.Add([]byte("0::/a\n1:cpu,x:/b\n"))
	f.Add([]byte("22 27 0:21 / /proc rw - proc proc rw\n\\0\\04\\040"))
	f.Fuzz(func(t *testing.T, text []byte) {
		st, err := ParseStatus(text)
		_, err2 := ParseIDMap(text)
		_, err3 := ParseNetDev(text)
		mounts, err4 := ParseMountInfo(text)
		for _, e := range []error{err, err2, err3, err4} {
			if e != nil && len(e.Error()) > 300 {
				t.Errorf("an error of %d bytes", len(e.Error()))
			}
		}
		if st.Filters < -1 || st.Seccomp < 0 {
			t.Errorf("negative counts: %+v", st)
		}
		if p, ok := CgroupPath(text, ""); ok && (p == "" || p[0] != '/' || strings.Contains(p, "/..")) {
			t.Errorf("cgroup path %q", p)
		}
		for _, m := range mounts {
			if len(m.Point) > len(text) {
				t.Errorf("mount point longer than its text")
			}
		}
		if n, ok := parseMax(text); ok && n < 0 {
			t.Errorf("negative limit %d", n)
		}
		if c, ok := parseCPUMax(text); ok && (c < 0 || c != c) {
			t.Errorf("cpu limit %v", c)
		}
	})
}
