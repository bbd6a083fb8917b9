package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// asNobody is set in a copy of the test program that runs as an ordinary user.
const asNobody = "RUNG_TEST_AS_NOBODY"

const nobody = 65534

func TestMain(m *testing.M) {
	if os.Getenv(asNobody) != "" {
		if err := lifeAsNobody(); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lifeAsNobody creates a group, prints what it lacks, runs a program in it, and removes it.
func lifeAsNobody() error {
	l, err := Detect()
	if err != nil {
		return err
	}
	g, err := l.Create("as-nobody", limits)
	if err != nil {
		return err
	}
	for _, m := range g.Missing {
		fmt.Println("missing", m)
	}
	cmd := exec.Command("cat", "/proc/self/cgroup")
	cmd.Stdout = os.Stdout
	if err := errors.Join(g.Start(cmd), cmd.Wait()); err != nil {
		return err
	}
	bg := exec.Command("sleep", "60")
	if err := g.Start(bg); err != nil {
		return err
	}
	go func() { _ = bg.Wait() }()
	ctx := context.Background()
	if len(g.Missing) == 3 {
		return bg.Process.Kill()
	}
	pids, err := g.Procs()
	if err != nil || !slices.Contains(pids, bg.Process.Pid) {
		return fmt.Errorf("procs %v, %w", pids, err)
	}
	fmt.Println("oom kills:", first(g.OOMKills()))
	return errors.Join(g.Kill(ctx), g.Remove(ctx))
}

func first(n int64, err error) string { return fmt.Sprint(n, err) }

func runAsNobody(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Dir = append(os.Environ(), asNobody+"=1"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func version1(t *testing.T) Layout {
	t.Helper()
	l, err := Detect()
	if os.Geteuid() != 0 || err != nil || l.Version != 1 {
		t.Skip("needs root and version 1")
	}
	return l
}

func TestOrdinaryUserWithoutDirectories(t *testing.T) {
	version1(t)
	out := runAsNobody(t)
	for _, c := range []string{"memory", "pids", "cpu"} {
		if !strings.Contains(out, "missing "+c+": ") {
			t.Errorf("%s is not missing: %s", c, out)
		}
	}
	if !strings.Contains(out, "sudo sh -c 'mkdir -p /sys/fs/cgroup/memory/rung-65534 && chown -R 65534:65534 ") || strings.Contains(out, "error") {
		t.Errorf("output: %s", out)
	}
}

func TestOrdinaryUserWithDirectories(t *testing.T) {
	l := version1(t)
	for i := range l.trees {
		dir := fmt.Sprintf("%s/rung-%d", l.trees[i].mount, nobody)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Rmdir(dir); err != nil {
				t.Error(err)
			}
		}()
	}
	out := runAsNobody(t)
	if strings.Contains(out, "missing") || strings.Contains(out, "error") || !strings.Contains(out, "oom kills: 0 <nil>") {
		t.Errorf("output: %s", out)
	}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if !strings.Contains(out, ":"+c+":/rung-65534/as-nobody\n") {
			t.Errorf("not inside %s: %s", c, out)
		}
	}
}

// fake is a version 2 hierarchy of plain files: it keeps what is written, and does nothing.
func fake(t *testing.T, files map[string]string) Layout {
	t.Helper()
	mount := t.TempDir()
	fill := func(dir string) {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	fill(mount)
	l := parse("1 1 0:1 / "+mount+" rw - cgroup2 cgroup2 rw\n", "0::/\n")
	l.made = fill
	return l
}

var version2 = map[string]string{
	"cgroup.controllers": "cpu io memory pids\n", "cgroup.subtree_control": "cpu memory pids\n", "cgroup.procs": "", "cgroup.kill": "", "memory.max": "", "memory.swap.max": "", "memory.oom.group": "",
	"memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 1\n", "memory.peak": "4096\n", "pids.max": "", "pids.peak": "5\n",
	"cpu.max": "", "cpu.stat": "usage_usec 1234\nuser_usec 1000\n",
}

func TestVersion2Files(t *testing.T) {
	l := fake(t, version2)
	g, err := l.Create("x", limits)
	if err != nil || len(g.Missing) > 0 {
		t.Fatalf("Create = %+v, %v", g, err)
	}
	defer g.Close()
	pids, mem, cpu, err := g.Read()
	if err != nil || pids != 16 || mem != 64<<20 || cpu != 0.5 {
		t.Errorf("Read = %d %d %v %v", pids, mem, cpu, err)
	}
	if n, err := g.OOMKills(); n != 2 || err != nil {
		t.Errorf("OOMKills = %d, %v", n, err)
	}
	if u := g.Usage(); u != (Usage{MemoryPeak: 4096, CPUMicros: 1234, PIDsPeak: 5}) {
		t.Errorf("Usage = %+v", u)
	}
	dir := g.Paths()[0]
	if want := l.trees[0].mount + "/rung/x"; dir != want || g.FD() < 0 || g.JoinPaths()[0] != want+"/cgroup.procs" {
		t.Errorf("at %s, fd %d, join %v", dir, g.FD(), g.JoinPaths())
	}
	for name, want := range map[string]string{"memory.oom.group": "1", "memory.swap.max": "0", "cpu.max": "50000 100000"} {
		if b, _ := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s = %q", name, b)
		}
	}
	if ids, err := l.List(); err != nil || !slices.Equal(ids, []string{"x"}) {
		t.Errorf("List = %v, %v", ids, err)
	}
	if _, err := l.Create("x", limits); rung.KindOf(err) != rung.KindExists {
		t.Errorf("second Create: %v", err)
	}
	if again, err := l.Open("x"); err != nil || again.FD() < 0 {
		t.Errorf("Open: %v", err)
	}
}

func TestVersion2MissingController(t *testing.T) {
	files := map[string]string{}
	maps.Copy(files, version2)
	delete(files, "cpu.max")
	delete(files, "pids.max")
	g, err := fake(t, files).Create("x", limits)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if len(g.Missing) != 2 || !strings.HasPrefix(g.Missing[0], "pids: ") || !strings.HasPrefix(g.Missing[1], "cpu: ") {
		t.Errorf("Missing = %q", g.Missing)
	}
}

func TestReadOnlyHierarchy(t *testing.T) {
	l := parse("1 1 0:1 / /x ro - cgroup2 cgroup2 rw\n", "0::/\n")
	g, err := l.Create("x", limits)
	if err != nil || len(g.Missing) != 3 || !strings.Contains(g.Missing[0], "read-only") {
		t.Errorf("Create = %+v, %v", g, err)
	}
}

// A scope that was delegated to us holds our own processes: they go to a leaf, and the next start finds the same base.
func TestEvacuateDelegatedGroup(t *testing.T) {
	mount := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(mount + "/cgroup.procs"); os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and a cgroup2 mount beside version 1")
	}
	scope := fmt.Sprintf("%s/rung-test-%d.scope", mount, os.Getpid())
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := openDir(unix.AT_FDCWD, scope, scope, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: d.fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		until(t, func() bool { return unix.Rmdir(scope+"/"+self) == nil && unix.Rmdir(scope) == nil })
	}()
	l := Layout{Version: 2}
	if err := l.evacuate(d); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	own := strings.TrimPrefix(scope, mount) + "/" + self
	if !strings.Contains(string(b), "0::"+own+"\n") {
		t.Errorf("moved to %s", b)
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("systemd marks its delegations; this one is not")
	}
	tr := parse("1 1 0:1 / "+mount+" rw - cgroup2 cgroup2 rw\n", "0::"+own+"\n").trees[0]
	if base, why := delegated(&tr, 1000); base != scope {
		t.Errorf("base %q: %s", base, why)
	}
}

// Lacks must say beforehand what Create then reports.
func TestLacks(t *testing.T) {
	for name, l := range map[string]Layout{
		"none":      {},
		"all":       fake(t, version2),
		"read-only": parse("1 1 0:1 / /x ro - cgroup2 cgroup2 rw\n", "0::/\n"),
	} {
		missing := func(list []string) (names []string) {
			for _, m := range list {
				c, _, _ := strings.Cut(m, ":")
				names = append(names, c)
			}
			return names
		}
		lacks := l.Lacks()
		g, err := l.Create("x", limits)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(missing(lacks), missing(g.Missing)) {
			t.Errorf("%s: Lacks %q, Create %q", name, lacks, g.Missing)
		}
		g.Close()
	}
	some := fake(t, map[string]string{"cgroup.controllers": "io pids\n"})
	if list := some.Lacks(); len(list) != 2 || !strings.HasPrefix(list[0], "memory: ") || !strings.HasPrefix(list[1], "cpu: ") {
		t.Errorf("some: %q", list)
	}
}

func BenchmarkLacks(b *testing.B) {
	for b.Loop() {
		l, _ := Detect()
		_ = l.Lacks()
	}
}
