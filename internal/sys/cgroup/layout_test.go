package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	v1Mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	coMounts = `32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,nosuid shared:11 - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,nosuid shared:12 - cgroup2 cgroup2 rw,nsdelegate
`
	v2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
)

func TestParse(t *testing.T) {
	all := []string{"memory", "pids", "cpu"}
	for _, c := range []struct {
		name, mounts, membership string
		want                     Layout
	}{
		{"nothing", "", "", Layout{}},
		{"v1 in separate mounts beside an empty v2", v1Mounts, "8:pids:/\n4:memory:/api/x\n2:cpuacct:/\n1:cpu:/\n0::/\n", Layout{Version: 1, trees: []tree{
			{controllers: []string{"memory"}, mount: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory/api/x"},
			{controllers: []string{"pids"}, mount: "/sys/fs/cgroup/pids", own: "/sys/fs/cgroup/pids"},
			{controllers: []string{"cpu"}, mount: "/sys/fs/cgroup/cpu", own: "/sys/fs/cgroup/cpu"},
			{controllers: []string{"cpuacct"}, mount: "/sys/fs/cgroup/cpuacct", own: "/sys/fs/cgroup/cpuacct"},
		}}},
		{"hybrid, cpu and cpuacct together", coMounts, "5:memory:/user.slice\n4:cpu,cpuacct:/user.slice\n3:pids:/user.slice/u\n0::/user.slice/s.scope\n", Layout{Version: 1, trees: []tree{
			{controllers: []string{"memory"}, mount: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory/user.slice"},
			{controllers: []string{"pids"}, mount: "/sys/fs/cgroup/pids", own: "/sys/fs/cgroup/pids/user.slice/u"},
			{controllers: []string{"cpu", "cpuacct"}, mount: "/sys/fs/cgroup/cpu,cpuacct", own: "/sys/fs/cgroup/cpu,cpuacct/user.slice"},
		}}},
		{"v2 root", v2Mounts, "0::/\n", Layout{Version: 2, trees: []tree{{controllers: all, mount: "/sys/fs/cgroup", own: "/sys/fs/cgroup"}}}},
		{"v2 user session", v2Mounts, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n", Layout{Version: 2, trees: []tree{
			{controllers: all, mount: "/sys/fs/cgroup", own: "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope"},
		}}},
		{"v2 container with a cgroup namespace, read-only", strings.Replace(v2Mounts, "rw,nosuid", "ro,nosuid", 1), "0::/\n", Layout{Version: 2, trees: []tree{
			{controllers: all, mount: "/sys/fs/cgroup", own: "/sys/fs/cgroup", readonly: true},
		}}},
		{"v2 container without one: the mount shows a part", "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/abc/x\n", Layout{Version: 2, trees: []tree{
			{controllers: all, mount: "/sys/fs/cgroup", own: "/sys/fs/cgroup/x"},
		}}},
		{"own group outside the mount", "30 23 0:26 /docker/abc /cg rw - cgroup2 cgroup rw\n", "0::/docker/abcd\n", Layout{Version: 2, trees: []tree{{controllers: all, mount: "/cg"}}}},
		{"own group outside the namespace", v2Mounts, "0::/../../x\n", Layout{Version: 2, trees: []tree{{controllers: all, mount: "/sys/fs/cgroup"}}}},
		{"writable mount preferred, escapes undone", "1 1 0:1 / /a ro - cgroup cgroup rw,memory\n2 1 0:1 / /b\\040c rw - cgroup cgroup rw,memory\n", "1:memory:/\n", Layout{Version: 1, trees: []tree{
			{controllers: []string{"memory"}, mount: "/b c", own: "/b c"},
		}}},
		{"overmounted", v2Mounts + "50 30 0:50 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", "0::/\n", Layout{}},
		{"garbage", "a b - c\n - \nx\n1 2 3 4 5 6 - cgroup\n", "::\nx\n1:a\n0:::/\n", Layout{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := parse(c.mounts, c.membership)
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(Layout{}, tree{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(v1Mounts, "8:pids:/\n")
	f.Add(v2Mounts, "0::/x\n")
	f.Fuzz(func(t *testing.T, mounts, membership string) {
		l := parse(mounts, membership)
		if l.Version == 0 != (len(l.trees) == 0) {
			t.Errorf("version %d with %d trees", l.Version, len(l.trees))
		}
		for _, tr := range l.trees {
			if len(tr.controllers) == 0 {
				t.Error("a tree without controllers")
			}
		}
	})
}

func TestQuota(t *testing.T) {
	for cpus, want := range map[float64]int64{1: 100000, 0.01: 1000, 0.0001: 1000, 1.5: 150000, 0.333: 33300} {
		if got := quota(cpus); got != want {
			t.Errorf("quota(%v) = %d, want %d", cpus, got, want)
		}
	}
}
