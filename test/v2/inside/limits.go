//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// limitCases are what must hold for whoever may use control groups.
var limitCases = []struct {
	name string
	f    func(*check, *person, string)
}{
	{"limits", limited},
	{"memory", memoryBomb},
	{"forks", forkBomb},
	{"cpu", spin},
	{"timeout", timeout},
	{"parallel", parallel},
	{"disk", fillDisk},
}

// tryLimits tries those of the given names on rung r.
func tryLimits(p *person, name, r string, names ...string) {
	for _, k := range limitCases {
		if !slices.Contains(names, k.name) {
			continue
		}
		try(name+"-"+r+"-"+k.name, func(c *check) {
			k.f(c, p, r)
			p.clean(c)
		})
	}
}

// limited asks the record, the kernel, and the sandbox itself what is enforced.
func limited(c *check, p *person, r string) {
	rec := p.rung(c, r, "--cpus", "1.5", "--memory", "96MiB", "--pids", "40", "--", "cat", "/proc/self/cgroup")
	iso := rec.Isolation
	c.that(iso.PIDsMax == 40 && iso.MemoryMax == 96<<20 && iso.CPUMax == 1.5, "record: pids %d, memory %d, cpu %v", iso.PIDsMax, iso.MemoryMax, iso.CPUMax)
	c.that(iso.Sources["pids_max"] == "host", "the caps are told by %v", iso.Sources)
	c.that(len(rec.Limits.Unforced) == 0, "not enforced: %v", rec.Limits.Unforced)
	c.that(rec.ExitCode == 0 && rec.ExitReason == rung.Exited, "exit %d %s", rec.ExitCode, rec.ExitReason)
	// Its own group is the root of what it sees: no name of the host's, and no sandbox id, is told.
	c.that(rec.Stdout == "0::/\n", "inside, the group is %q", rec.Stdout)
}

// memoryBomb writes to more memory than it may have, after it has said something.
func memoryBomb(c *check, p *person, r string) {
	program := "print('before', flush=True)\nx = []\nwhile True: x.append(b'x' * (1 << 20))"
	rec := p.rung(c, r, "--memory", "64MiB", "--timeout", "45s", "--", "python3", "-c", program)
	c.that(rec.ExitReason == rung.OOM && rec.ExitCode == rung.ExitKilled && rec.OOMKilled, "exit %d %s, oom_killed %v", rec.ExitCode, rec.ExitReason, rec.OOMKilled)
	c.that(rec.Stdout == "before\n", "output %q", rec.Stdout)
}

// forkBomb starts as many processes as it can, twice: once to count them, once to be ended.
func forkBomb(c *check, p *person, r string) {
	count := "import os, time\nn = 0\ntry:\n while n < 200:\n  if os.fork() == 0: time.sleep(60)\n  n += 1\nexcept OSError: pass\nprint(n, flush=True)\nos._exit(0)"
	rec := p.rung(c, r, "--pids", "40", "--timeout", "45s", "--", "python3", "-c", count)
	n := 0
	_, err := fmt.Sscan(rec.Stdout, &n)
	c.that(err == nil && n > 3 && n < 40, "forked %q: %s", rec.Stdout, rec.Stderr)
	c.that(rec.ExitReason == rung.Exited, "exit %d %s", rec.ExitCode, rec.ExitReason)
	endless := "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
	rec = p.rung(c, r, "--pids", "40", "--timeout", "2s", "--", "python3", "-c", endless)
	c.that(rec.ExitReason == rung.TimedOut && rec.ExitCode == rung.ExitTimeout, "bomb: exit %d %s", rec.ExitCode, rec.ExitReason)
}

// spin computes for two seconds on half a core.
func spin(c *check, p *person, r string) {
	program := "import time\nend, used = time.monotonic() + 2, time.process_time()\nwhile time.monotonic() < end: pass\nprint(time.process_time() - used)"
	rec := p.rung(c, r, "--cpus", "0.5", "--", "python3", "-c", program)
	used := 0.0
	_, err := fmt.Sscan(rec.Stdout, &used)
	c.that(err == nil && used > 0.05 && used < 1.4, "used %q s of processor time in 2 s on half a core: %s", rec.Stdout, rec.Stderr)
}

// fillDisk writes until the disk is full: an error of the program, and no memory kill, although what is written to the disk
// is charged to the writer as page cache, and /tmp as memory.
func fillDisk(c *check, p *person, r string) {
	for _, dir := range []string{"/work", "/tmp"} {
		rec := p.rung(c, r, "--memory", "48MiB", "--disk", "96MiB", "--timeout", "45s", "--", "dd", "if=/dev/zero", "of="+dir+"/f", "bs=64k")
		c.that(rec.ExitReason == rung.Exited && rec.ExitCode == 1 && !rec.OOMKilled && strings.Contains(rec.Stderr, "No space left"),
			"%s: exit %d %s, oom_killed %v: %s", dir, rec.ExitCode, rec.ExitReason, rec.OOMKilled, rec.Stderr)
	}
}

// timeout leaves a process behind that has a session of its own and holds the pipe.
func timeout(c *check, p *person, r string) {
	begin := time.Now()
	rec := p.rung(c, r, "--timeout", "1s", "--", "sh", "-c", "echo partial; setsid sleep 1000 & exec sleep 1000")
	c.that(rec.ExitReason == rung.TimedOut && rec.ExitCode == rung.ExitTimeout, "exit %d %s", rec.ExitCode, rec.ExitReason)
	c.that(rec.Stdout == "partial\n", "output %q", rec.Stdout)
	c.that(time.Since(begin) < bound/2, "it took %v", time.Since(begin))
}

// parallel runs two at once, and looks at their groups from outside.
func parallel(c *check, p *person, r string) {
	type end struct {
		c   check
		rec *rung.Record
	}
	ends := make(chan end, 2)
	for range cap(ends) {
		go func() {
			var e end
			e.rec = p.rung(&e.c, r, "--pids", "50", "--", "sleep", "3")
			ends <- e
		}()
	}
	seen := false
	eventually(bound/2, func() bool {
		groups, _ := filepath.Glob(p.groups + "/*/cgroup.procs") // a well-formed pattern
		n := 0
		for _, g := range groups {
			if procs, _ := os.ReadFile(g); len(strings.Fields(string(procs))) > 1 && number(filepath.Dir(g)+"/pids.max") == 50 {
				n++
			}
		}
		seen = n == 2
		return seen || len(ends) > 0
	})
	c.that(seen, "there are no two groups with processes and limits at any time")
	for range cap(ends) {
		e := <-ends
		c.wrong = append(c.wrong, e.c.wrong...)
		c.that(e.rec.ExitCode == 0, "exit %d %s", e.rec.ExitCode, e.rec.ExitReason)
	}
}

// refused is an ordinary user's run where nobody has given control groups away.
func refused(c *check, p *person) {
	out, errs, code := p.run(p.args("process", "--", "true")...)
	c.that(code == rung.ExitError, "exit %d: %s", code, out)
	for _, part := range []string{"memory: ", "pids: ", "cpu: ", "systemd-run --user --scope -p Delegate=yes", "--best-effort-limits"} {
		c.that(strings.Contains(errs, part), "the error does not say %q: %s", part, errs)
	}
	p.clean(c)
	p.flags = []string{"--best-effort-limits"}
	for _, r := range rungs {
		rec := p.rung(c, r, "--", "true")
		c.that(rec.ExitCode == 0 && rec.Limits.Best, "%s: exit %d %s", r, rec.ExitCode, rec.ExitReason)
		all := strings.Join(rec.Limits.Unforced, "; ")
		c.that(len(rec.Limits.Unforced) == 3 && strings.Contains(all, "memory: ") && strings.Contains(all, "Delegate=yes"), "%s: the record says not enforced: %q", r, all)
		iso := rec.Isolation
		c.that(iso.PIDsMax == 0 && iso.MemoryMax == 0 && iso.CPUMax == 0, "%s: the record claims caps %d %d %v", r, iso.PIDsMax, iso.MemoryMax, iso.CPUMax)
	}
	p.clean(c)
}
