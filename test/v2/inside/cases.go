//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// rungs that this host can have; gVisor brings its own kernel and takes too long on an emulated processor.
var rungs = []string{"process", "container", "hardened"}

// cases tries everything. The order matters where a case needs what an earlier one has set up.
func cases() error {
	var u unix.Utsname
	_ = unix.Uname(&u) // never fails
	controllers, err := os.ReadFile(mount + "/cgroup.controllers")
	if err != nil {
		return err
	}
	report("note", "linux", unix.ByteSliceToString(u.Release[:])+", controllers: "+string(controllers))
	if err := os.Mkdir(mount+"/init.scope", 0o755); err != nil {
		return err
	}
	unitTests()
	asRoot()
	if err := systemd(); err != nil {
		return err
	}
	asUser()
	report("done", "", "")
	return nil
}

// unitTests runs the tests of package cgroup, most of which need some hierarchy with controllers, on this one.
func unitTests() {
	try("unit-tests", func(c *check) {
		p := root()
		out, errs, code := p.run("/usr/local/bin/cgroup.test", "-test.v", "-test.skip", "^TestLimitsHold$") // computes for long, and is said again below
		c.that(code == 0, "exit %d: %s", code, errs)
		for line := range strings.Lines(out) {
			switch {
			case slow(line) || strings.Contains(line, "--- FAIL") || strings.Contains(line, "_test.go"):
				report("note", "unit-tests", line)
			case strings.HasPrefix(line, "panic"):
				c.errorf("%s", line)
			}
		}
	})
}

// slow tells of tests that take more than five seconds.
func slow(line string) bool {
	_, took, ok := strings.Cut(line, " (")
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(took), "s)"), 64)
	return ok && err == nil && seconds > 5
}

func asRoot() {
	p := root()
	tryLimits(p, "root", "process", "limits", "memory", "forks", "cpu", "timeout", "parallel", "disk")
	tryLimits(p, "root", "container", "limits", "memory", "disk")
	tryLimits(p, "root", "hardened", "limits", "memory", "forks", "cpu", "timeout", "parallel", "disk")
	try("root-ladder", func(c *check) {
		ladder(c, p, 0)
		c.that(number(p.groups+"/cpu.weight") == 12, "sandboxes weigh %d, as everything else", number(p.groups+"/cpu.weight"))
	})
	try("root-killed-client", func(c *check) { killedClient(c, p) })
	try("root-reap", func(c *check) { reap(c, p) })
	try("root-own-cgroup-namespace", func(c *check) { ownNamespace(c, p) })
}

// systemd makes this host look as if systemd ran it, as far as rung looks: its directory in /run, and control groups as it
// makes them for the session of a user and for the user's own services.
func systemd() error {
	errs := []error{os.MkdirAll("/run/systemd/system", 0o755), handDown(mount, "+cpuset +cpu +io +memory +pids")}
	for _, name := range []string{"tester", "single"} {
		uid := map[string]string{"tester": "1000", "single": "1001"}[name]
		slice := mount + "/user.slice/user-" + uid + ".slice"
		errs = append(errs, groupFor(mount+"/user.slice"), groupFor(slice), os.Mkdir(slice+"/session-1.scope", 0o755),
			os.Mkdir(slice+"/user@"+uid+".service", 0o755))
	}
	return errors.Join(errs...)
}

// scope makes a group as `systemd-run --user --scope -p Delegate=yes` does, below the user's own systemd.
func scope(uid int, service, name string) (string, error) {
	apps := service + "/app.slice"
	err := errors.Join(delegate(service, uid), groupFor(service), delegate(apps, uid), groupFor(apps), delegate(apps+"/"+name, uid))
	// Only the unit itself is marked: app.slice is systemd's own.
	return apps + "/" + name, errors.Join(err, unix.Removexattr(apps, "user.delegate"))
}

func asUser() {
	session := mount + "/user.slice/user-1000.slice/session-1.scope"
	service := mount + "/user.slice/user-1000.slice/user@1000.service"
	group, err := scope(tester, service, "run-1.scope")
	if err != nil {
		report("fail", "delegate", err.Error())
		return
	}
	p := user(tester, "tester", group)
	// The first start in a scope moves its processes; two at once move each other's.
	try("user-first-parallel", func(c *check) { parallel(c, p, "process") })
	// An ordinary user's disk is memory, so there is none to fill.
	tryLimits(p, "user", "process", "limits", "memory", "forks", "timeout")
	tryLimits(p, "user", "container", "limits", "memory")
	tryLimits(p, "user", "hardened", "limits", "memory", "cpu", "timeout", "parallel")
	try("user-ladder", func(c *check) { ladder(c, p, 0) })
	try("user-killed-client", func(c *check) { killedClient(c, p) })
	try("user-undelegated", func(c *check) {
		s := user(tester, "tester", session)
		refused(c, s)
		ladder(c, s, 3)
	})
	if group, err = scope(tester, service, "run-2.scope"); err == nil {
		err = unix.Removexattr(group, "user.delegate")
	}
	try("user-unmarked", func(c *check) {
		c.that(err == nil, "%v", err)
		refused(c, user(tester, "tester", group)) // writable, but systemd has not given it away
	})
	try("user-no-cpu", func(c *check) { withoutCPU(c, service) })
	try("single-process", func(c *check) {
		group, err := scope(single, mount+"/user.slice/user-1001.slice/user@1001.service", "run-1.scope")
		c.that(err == nil, "%v", err)
		s := user(single, "single", group)
		limited(c, s, "process")
		s.clean(c)
	})
}

// ladder asks for the rungs of this host, and how many limits cannot be enforced here.
func ladder(c *check, p *person, lacks int) {
	out, errs, code := p.run("rung", "ladder", "--json")
	var report struct {
		Rungs []struct {
			Rung      string   `json:"rung"`
			Available bool     `json:"available"`
			Why       string   `json:"why_not"`
			Limits    []string `json:"unenforced_limits"`
		} `json:"rungs"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		c.errorf("exit %d: %v: %s", code, err, errs)
		return
	}
	for _, r := range rungs {
		found := false
		for _, have := range report.Rungs {
			if have.Rung == r {
				found = true
				c.that(have.Available, "%s is not available: %s", r, have.Why)
				c.that(len(have.Limits) == lacks, "%s: not enforced are %q", r, have.Limits)
			}
		}
		c.that(found, "no rung %s in %s", r, out)
	}
}

// withoutCPU is a user to whose services the administrator has not given the cpu controller, as before systemd 252.
func withoutCPU(c *check, service string) {
	group, err := scope(tester, service, "run-3.scope")
	c.that(err == nil, "%v", err)
	apps := filepath.Dir(group)
	for _, other := range []string{"run-1.scope", "run-2.scope"} {
		for _, g := range []string{apps + "/" + other + "/rung", apps + "/" + other} {
			_ = handDown(g, "-cpu") // whoever hands it down must stop before its parent can
		}
	}
	c.that(handDown(apps, "-cpu") == nil, "the controller cannot be taken back")
	p := user(tester, "tester", group)
	_, errs, code := p.run(p.args("process", "--", "true")...)
	c.that(code == rung.ExitError && strings.Contains(errs, "enforce: cpu: ") && strings.Contains(errs, "Delegate=cpu memory pids"), "exit %d: %s", code, errs)
	ladder(c, p, 1)
	p.flags = []string{"--best-effort-limits", "--memory", "96MiB"}
	rec := p.rung(c, "process", "--", "true")
	c.that(len(rec.Limits.Unforced) == 1 && rec.Isolation.MemoryMax == 96<<20 && rec.Isolation.CPUMax == 0, "record: %q, memory %d", rec.Limits.Unforced, rec.Isolation.MemoryMax)
	p.clean(c)
}

// killedClient kills rung while its sandbox runs, and asks for everything to be gone without another call, but for the
// control group, which the next call removes.
func killedClient(c *check, p *person) {
	cmd, stop := p.command(p.args("process", "--", "sleep", "1000")...)
	defer stop()
	if err := cmd.Start(); err != nil {
		c.errorf("%v", err)
		return
	}
	started := eventually(bound/2, func() bool { return len(processes("sleep")) > 0 })
	c.that(started, "the sandbox does not start")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	c.that(eventually(bound/10, func() bool { return len(processes("sleep", "rung-guest", "guest")) == 0 }),
		"still there: %v", p.left())
	out, errs, code := p.run("rung", "reap")
	c.that(code == 0, "reap: exit %d: %s%s", code, out, errs)
	p.clean(c)
}

// reap kills client and holder of a sandbox that has no PID namespace to die with.
func reap(c *check, p *person) {
	cmd, stop := p.command("rung", "run", "--rung", "none", "--i-know-this-is-not-a-sandbox", "--", "sh", "-c", "setsid sleep 1000 & exec sleep 1000")
	defer stop()
	if err := cmd.Start(); err != nil {
		c.errorf("%v", err)
		return
	}
	c.that(eventually(bound/2, func() bool { return len(processes("sleep")) == 2 }), "it does not start")
	// The holder first, so that it does not do what reap is asked to do.
	for _, pid := range holders() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	out, errs, code := p.run("rung", "reap")
	c.that(code == 0, "reap: exit %d: %s%s", code, out, errs)
	p.clean(c)
}

// ownNamespace runs rung as the root of a container with a cgroup namespace: what it sees as the root group is not, and
// holds processes.
func ownNamespace(c *check, p *person) {
	p.group = mount + "/box"
	if err := os.Mkdir(p.group, 0o755); err != nil {
		c.errorf("%v", err)
		return
	}
	script := "umount /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\""
	p.flags = []string{}
	args := append([]string{"unshare", "--cgroup", "--mount", "sh", "-ec", script, "sh"}, p.args("process", "--", "true")...)
	out, errs, code := p.run(args...)
	c.that(code == 0, "exit %d: %s%s", code, out, errs)
	p.groups = p.group + "/rung"
	p.clean(c)
}
