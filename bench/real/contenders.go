package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rung-dev/rung/bench/bundle"
)

// contender is one way to run a program.
type contender struct {
	name   string
	rung   bool
	peer   string  // the bare runtime it is compared with, listed before it
	goal   float64 // at least this share of the peer's runs per second
	hideV2 bool    // runs without the cgroup v2 mount, in a mount namespace of its own
	// command makes the command line for a program file; id is unique. A bare runtime reads the program from stdin, so
	// that one bundle serves all; rung gets the file and copies it in.
	command func(file, id string) []string
	stdin   bool
}

// contenders are the bare runtimes of this machine and the four rungs, peers first.
func contenders(o options, dir string) ([]contender, error) {
	bundled := filepath.Join(dir, "bundle")
	if err := bundle.Write(bundled, bundle.Options{Host: true, Args: []string{"/usr/bin/python3", "-"}}); err != nil {
		return nil, err
	}
	state := func(name string) string { return filepath.Join(dir, "root-"+name) }
	rung := func(name string, accept bool) func(string, string) []string {
		return func(file, _ string) []string {
			args := []string{filepath.Join(o.bin, "rung"), "run", "--quiet", "--egress", o.egress, "--rung", name, "--threat", "trusted", "--template", o.template}
			if accept {
				args = append(args, "--accept-lower", name)
			}
			return append(args, "--lang", "python", file)
		}
	}
	all := []contender{
		{name: "runsc", stdin: true, command: func(_, id string) []string {
			return []string{
				filepath.Join(o.bin, "runsc"), "--root", state("runsc"), "--platform=systrap", "--ignore-cgroups",
				"--network=none", "run", "--bundle", bundled, id,
			}
		}},
		{name: "rung process", rung: true, peer: "crun", command: rung("process", true)},
		{name: "rung container", rung: true, peer: "crun", command: rung("container", true)},
		{name: "rung hardened", rung: true, peer: "crun", goal: 0.6, command: rung("hardened", false)},
		{name: "rung gvisor", rung: true, peer: "runsc", goal: 0.7, command: rung("gvisor", false)},
	}
	if _, err := exec.LookPath("crun"); err == nil {
		all = append([]contender{{name: "crun", stdin: true, hideV2: o.dir == "" && strayCgroup2() != "", command: func(_, id string) []string {
			return []string{"crun", "--root", state("crun"), "run", "--bundle", bundled, id}
		}}}, all...)
	}
	if o.only != "" {
		names := strings.Split(o.only, ",")
		all = slices.DeleteFunc(all, func(c contender) bool { return !slices.Contains(names, c.name) })
	}
	return all, nil
}

// strayCgroup2 is where a cgroup v2 hierarchy is mounted beside v1, or "". crun refuses such a host as "hybrid" whatever
// the hierarchy is used for, so the bare crun is run where that mount is not seen.
func strayCgroup2() string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil || os.Geteuid() != 0 {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 2 && f[2] == "cgroup2" && f[1] != "/sys/fs/cgroup" {
			return f[1]
		}
	}
	return ""
}
