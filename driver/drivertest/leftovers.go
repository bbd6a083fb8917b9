package drivertest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// HostLeftovers is Config.Leftovers for drivers on Linux: everything whose name, path or control group contains the
// sandbox's id. dirs are the folders in which the driver and its runtime keep their state.
func HostLeftovers(dirs ...string) func(id string) []string {
	return func(id string) (left []string) {
		left = append(left, processes(id)...)
		left = append(left, mounts(id)...)
		left = append(left, loops(id)...)
		left = append(left, named("cgroup", "/sys/fs/cgroup", id)...)
		for _, d := range dirs {
			left = append(left, named("directory", d, id)...)
		}
		return left
	}
}

// processes whose command line or control group names the sandbox.
func processes(id string) (left []string) {
	for _, dir := range glob("/proc/[0-9]*") {
		pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern has let only digits begin
		if pid == os.Getpid() {
			continue
		}
		cmdline := read(filepath.Join(dir, "cmdline"))
		if strings.Contains(cmdline, id) || strings.Contains(read(filepath.Join(dir, "cgroup")), id) {
			left = append(left, fmt.Sprintf("process %d: %q", pid, strings.ReplaceAll(cmdline, "\x00", " ")))
		}
	}
	return left
}

// HostIDs is Config.HostIDs for drivers on Linux that give each sandbox a control group of its name: the id ranges that are
// mapped for the processes in it, and the ids they have. Root outside any user namespace is left out: that is the runtime
// waiting for its container, not what an escaped process would be. It needs root, who alone sees all of that.
func HostIDs(id string) (ids []rung.IDMap) {
	for _, dir := range glob("/proc/[0-9]*") {
		if !strings.Contains(read(filepath.Join(dir, "cgroup")), id) {
			continue
		}
		for line := range strings.Lines(read(filepath.Join(dir, "uid_map"))) {
			var m rung.IDMap
			if n, err := fmt.Sscan(line, &m.Inside, &m.Host, &m.Size); n == 3 && err == nil && m.Size != 1<<32-1 {
				ids = append(ids, m)
			}
		}
		for line := range strings.Lines(read(filepath.Join(dir, "status"))) {
			var uid uint32
			if n, err := fmt.Sscanf(line, "Uid: %d", &uid); n == 1 && err == nil && uid != 0 {
				ids = append(ids, rung.IDMap{Host: uid, Size: 1})
			}
		}
	}
	return ids
}

func mounts(id string) (left []string) {
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		if strings.Contains(line, id) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	return left
}

func loops(id string) (left []string) {
	for _, f := range glob("/sys/block/loop*/loop/backing_file") {
		if back := read(f); strings.Contains(back, id) {
			left = append(left, "loop "+f+": "+strings.TrimSpace(back))
		}
	}
	return left
}

// named walks at most a few levels: names are given near the top, and a walk of everything would take longer than the
// sandbox lives.
func named(kind, root, id string) (left []string) {
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it went away while we looked
		}
		if p != root && strings.Contains(d.Name(), id) {
			left = append(left, kind+" "+p)
			return skip(d)
		}
		if rel := strings.TrimPrefix(p, root); strings.Count(rel, "/") >= 5 {
			return skip(d)
		}
		return nil
	})
	return left
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func glob(pattern string) []string {
	list, _ := filepath.Glob(pattern) // the patterns are constant and well-formed
	return list
}

// read returns "" for what went away.
func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}
