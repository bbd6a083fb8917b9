//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

const mount = "/sys/fs/cgroup"

// person is somebody who runs rung from inside some control group.
type person struct {
	uid     int
	home    string
	group   string   // where their programs start
	groups  string   // where rung makes the groups of sandboxes
	runtime string   // rung's runtime directory
	flags   []string // of every run
}

func root() *person {
	return &person{home: "/root", group: mount + "/init.scope", groups: mount + "/rung", runtime: "/run/rung"}
}

func user(uid int, name, group string) *person {
	return &person{
		uid: uid, home: "/home/" + name, group: group, groups: group + "/rung",
		runtime: fmt.Sprintf("/run/user/%d/rung", uid),
	}
}

// bound is how long any one command may take on an emulated machine that shares its cores.
const bound = 90 * time.Second

// command is a command of this person; stop must be called when it has ended.
func (p *person) command(args ...string) (cmd *exec.Cmd, stop func()) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = p.home
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + p.home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.uid != 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", p.uid))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}
	}
	group, err := os.Open(p.group + "/rung-self") // where rung has moved this person's programs
	if err != nil {
		group, err = os.Open(p.group)
	}
	if err != nil {
		cmd.Err = err
		return cmd, cancel
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	return cmd, func() { group.Close(); cancel() }
}

// run runs a command to its end.
func (p *person) run(args ...string) (out, errs string, code int) {
	cmd, stop := p.command(args...)
	defer stop()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return o.String(), e.String() + err.Error(), -1
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// rung runs `rung run` on rung r and returns its record.
func (p *person) rung(c *check, r string, args ...string) *rung.Record {
	out, errs, code := p.run(p.args(r, args...)...)
	rec := &rung.Record{Isolation: &rung.Isolation{}}
	if err := json.Unmarshal([]byte(out), rec); err != nil {
		c.errorf("no record: exit %d: %s %s", code, out, errs)
	}
	if rec.Isolation == nil {
		rec.Isolation = &rung.Isolation{}
	}
	if rec.Error != "" || rec.ExitCode != code {
		c.errorf("exit %d, record says %d: %s: %s", code, rec.ExitCode, rec.Error, errs)
	}
	return rec
}

func (p *person) args(r string, args ...string) []string {
	return slices.Concat([]string{"rung", "run", "--json", "--egress", "none", "--rung", r, "--accept-lower", r}, p.flags, args)
}

// clean is what must hold after every case: no groups, no directories, no processes of sandboxes.
func (p *person) clean(c *check) {
	var left []string
	if !eventually(5*time.Second, func() bool { left = p.left(); return len(left) == 0 }) {
		c.errorf("left behind: %s", strings.Join(left, ", "))
	}
}

func (p *person) left() (left []string) {
	for _, dir := range []string{p.groups, p.runtime + "/sandboxes"} {
		list, _ := os.ReadDir(dir) // not there: nothing in it
		for _, e := range list {
			if e.IsDir() {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, pid := range holders() {
		left = append(left, fmt.Sprintf("rung-holder(%d)", pid))
	}
	return append(left, processes("rung-guest", "guest", "crun", "sleep", "python3")...)
}

// processes lists those of the given names as "name(pid)"; what has ended and waits to be collected is none.
func processes(names ...string) (list []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a well-formed pattern
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		_, name, _ = strings.Cut(name, "(")
		if slices.Contains(names, name) && !strings.HasPrefix(rest, "Z") {
			list = append(list, name+"("+filepath.Base(dir)+")")
		}
	}
	return list
}

// handDown says which controllers the children of a group get: "+cpu -memory".
func handDown(group, text string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte(text), 0)
}

// groupFor makes a group with all controllers for its children, as far as its parents have them.
func groupFor(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return handDown(path, "+cpu +memory +pids")
}

// delegate does what systemd does for a unit with Delegate=yes: the group and these files are the user's, and marked.
func delegate(group string, uid int) error {
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(group, f), uid, uid); err != nil {
			return err
		}
	}
	return unix.Setxattr(group, "user.delegate", []byte("1"), 0)
}

func number(file string) int64 {
	raw, _ := os.ReadFile(file) // not there: 0
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n
}

// holders are the processes that stand beside sandboxes; their name is in their command line only.
func holders() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a well-formed pattern
	for _, dir := range dirs {
		line, err := os.ReadFile(dir + "/cmdline")
		if pid, e := strconv.Atoi(filepath.Base(dir)); err == nil && e == nil && bytes.HasPrefix(line, []byte("rung-holder\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
