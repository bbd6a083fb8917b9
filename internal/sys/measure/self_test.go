//go:build linux

package measure

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func BenchmarkSelf(b *testing.B) {
	for b.Loop() {
		Self()
	}
}

func TestSelfAgreesWithTheSystem(t *testing.T) {
	m := Self()
	if m.UID != os.Getuid() || m.GID != os.Getgid() {
		t.Errorf("ids %d:%d, want %d:%d", m.UID, m.GID, os.Getuid(), os.Getgid())
	}
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Skip("no /proc/self/ns here: ", err)
	}
	if m.Namespaces["net"] != host {
		t.Errorf("net namespace %q, want %q", m.Namespaces["net"], host)
	}
	if m.BootID == "" || m.Kernel == "" || !slices.Contains(m.Descriptors, 2) {
		t.Errorf("boot id %q, kernel %q, descriptors %v", m.BootID, m.Kernel, m.Descriptors)
	}
	if iso := m.Isolation(Host()); !iso.SharedKernel || iso.Namespaces["net"] {
		t.Errorf("measured against itself: shared kernel %v, net apart %v", iso.SharedKernel, iso.Namespaces["net"])
	}
}

// An inherited descriptor is told from one this process opened by the close-on-exec flag, which exec itself guarantees.
func TestSelfCountsOnlyInheritedDescriptors(t *testing.T) {
	own, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if got := Self().Descriptors; slices.Contains(got, int(own.Fd())) {
		t.Errorf("own descriptor %d listed in %v", own.Fd(), got)
	}
	dup, err := unix.FcntlInt(own.Fd(), unix.F_DUPFD, 50)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	if got := Self().Descriptors; !slices.Contains(got, dup) {
		t.Errorf("descriptor %d without close-on-exec missing in %v", dup, got)
	}
}

func TestSelfLeavesNothingOpen(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	Self()
	before := count()
	for range 10 {
		Self()
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// The same process without /proc, as in a badly built sandbox: everything that needs it is named, nothing looks safe.
func TestSelfWithoutProc(t *testing.T) {
	if os.Getenv("MEASURE_WITHOUT_PROC") != "" {
		m := Self()
		iso := m.Isolation(HostFacts{BootID: "x", Namespaces: map[string]string{"net": "net:[1]"}})
		for _, field := range []string{"proc", "uid_map", "boot_id", "interfaces", "descriptors"} {
			if m.Errors[field] == "" {
				t.Errorf("%s is not named as unreadable", field)
			}
		}
		if !iso.SharedKernel || iso.Namespaces["net"] || len(iso.Interfaces) == 0 || iso.Descriptors != nil {
			t.Errorf("unmeasured fields look safe: %+v", iso)
		}
		return
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("bwrap is not installed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The libraries are for a test built with the race detector, which is not static.
	cmd := exec.Command(bwrap, "--unshare-all", "--ro-bind", self, "/test", "--ro-bind-try", "/lib", "/lib",
		"--ro-bind-try", "/lib64", "/lib64", "--setenv", "MEASURE_WITHOUT_PROC", "1",
		"/test", "-test.run=TestSelfWithoutProc$", "-test.v")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
