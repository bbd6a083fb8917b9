//go:build linux

package proc

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Terminate sends SIGTERM to the process's group.
func (t *Table) Terminate(p *Process) error {
	err := t.reap.signal(p.PID, true, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return ErrNotFound
	}
	return err
}

// TerminateAll asks everything that was started to end.
func (t *Table) TerminateAll() {
	for _, p := range t.List() {
		t.Terminate(p) // it may have ended meanwhile
	}
}

// KillAll ends everything that was started, and what that started.
func (t *Table) KillAll() {
	for _, p := range t.List() {
		t.killTree(p)
	}
	if t.cfg.Init {
		return // the namespace's end has the rest
	}
	// Daemons of processes that have ended: this program is their parent now (PR_SET_CHILD_SUBREAPER, prctl(2)).
	own := map[int]bool{os.Getpid(): true}
	rest := tree{send: t.cfg.Forker.kill, alone: true, others: own, sessions: map[int]bool{}, groups: map[int]bool{}}
	rest.killAll()
}

// Kill ends the process and all its descendants, and returns when the process is gone.
func (t *Table) Kill(p *Process) error {
	t.killTree(p)
	timer := time.NewTimer(killWait)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return ErrSurvived
	}
}

// rounds bounds how often the tree is looked for again: it may be forking while it is killed.
const rounds = 100

// killTree kills until nothing of the tree is left. What belongs to it: the session and groups of the process, everything
// below those by parentage, and the sessions and groups of what was found so. A daemon that changed its session and whose
// parents are gone belongs to nobody; it counts as this process's when no other was ever started, which is how `rung run`
// uses a sandbox. The sandbox's end gets the rest in any case.
func (t *Table) killTree(p *Process) {
	t.mu.Lock()
	alone := t.started == 1 && !p.Spec.Internal
	others := map[int]bool{os.Getpid(): true}
	for pid, q := range t.live {
		if q != p {
			others[pid] = true
		}
	}
	t.mu.Unlock()
	if others[p.PID] {
		return // the number is taken again, so nothing with it as its session is left
	}
	if alone && t.cfg.Init && len(others) == 1 {
		t.cfg.Forker.kill(-1, syscall.SIGKILL) // everything in the namespace but this program, in one go
	}
	tree := tree{send: t.cfg.Forker.kill, alone: alone, others: others, sessions: map[int]bool{p.PID: true}, groups: map[int]bool{p.PID: true}}
	tree.killAll()
	t.reap.signal(p.PID, true, syscall.SIGKILL) // where /proc cannot be read; ESRCH is the ordinary answer
}

// pause lets killed processes end; there is no event to wait for, as they are not this program's children.
func pause(d time.Duration) { <-time.After(d) }

type tree struct {
	send             func(pid int, sig syscall.Signal) error
	alone            bool
	others           map[int]bool // never part of it
	sessions, groups map[int]bool // grows over the rounds: parents vanish, their sessions are remembered
}

// killAll kills until no member is left, or killWait is over.
func (t *tree) killAll() {
	deadline := time.Now().Add(killWait)
	for range rounds { // each from a look before the kill: afterwards the children of the killed belong to PID 1
		if t.kill(scanProc()) == 0 || time.Now().After(deadline) {
			return
		}
		pause(time.Millisecond)
	}
}

// kill kills every member in the list and returns how many there were.
func (t *tree) kill(list []procStat) int {
	members := map[int]bool{}
	for grew := true; grew; {
		grew = false
		for _, s := range list {
			if members[s.pid] || t.others[s.pid] || !t.member(s, members) {
				continue
			}
			members[s.pid], grew = true, true
			t.sessions[s.session] = t.sessions[s.session] || s.session > 0 && !t.others[s.session]
			t.groups[s.group] = t.groups[s.group] || s.group > 0 && !t.others[s.group]
		}
	}
	living := 0
	for _, s := range list {
		if members[s.pid] && s.state != 'Z' && s.state != 'X' {
			living++
			if t.groups[s.group] {
				t.send(-s.group, syscall.SIGKILL) // at once: nobody in the group forks past it
			}
			t.send(s.pid, syscall.SIGKILL)
		}
	}
	return living
}

func (t *tree) member(s procStat, members map[int]bool) bool {
	orphan := t.alone && s.parent == os.Getpid()
	return members[s.parent] || t.sessions[s.session] || t.groups[s.group] || orphan
}

type procStat struct {
	pid, parent, group, session int
	state                       byte
}

// scanProc reads what /proc knows of all processes. A process that ends meanwhile is left out.
func scanProc() []procStat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var list []procStat
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		raw, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if s, ok := parseStat(raw); ok {
			list = append(list, s)
		}
	}
	return list
}

// parseStat reads a line of /proc/pid/stat. The command name in it is the process's choice and may hold anything, also
// parentheses; what follows the last one does not.
func parseStat(raw []byte) (procStat, bool) {
	open, shut := bytes.IndexByte(raw, ' '), bytes.LastIndexByte(raw, ')')
	if open < 0 || shut < 0 {
		return procStat{}, false
	}
	f := bytes.Fields(raw[shut+1:])
	if len(f) < 4 || len(f[0]) != 1 {
		return procStat{}, false
	}
	s := procStat{state: f[0][0]}
	for dst, src := range map[*int][]byte{&s.pid: raw[:open], &s.parent: f[1], &s.group: f[2], &s.session: f[3]} {
		n, err := strconv.Atoi(string(src))
		if err != nil {
			return procStat{}, false
		}
		*dst = n
	}
	return s, true
}
