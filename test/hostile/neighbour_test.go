//go:build linux

package hostile

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
)

func clientCmd(b *box, args ...string) client.Cmd {
	return client.Cmd{Path: b.probe(), Args: args, Dir: b.dirs[0]}
}

// TestNeighbour: somebody who got out of one sandbox, into the host's namespaces but with the ids he had, can neither
// signal nor trace nor read a process of the neighbour's sandbox, or a holder. His own he can, which shows that he tried.
func TestNeighbour(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an ordinary user's sandboxes may share his one id, and the record says so")
	}
	for _, r := range []rung.Rung{rung.Process, rung.Hardened, rung.GVisor} {
		t.Run(string(r), func(t *testing.T) {
			a, b := sleeping(t, r), sleeping(t, r)
			own, other := userProcesses(a.id), userProcesses(b.id)
			if len(own) == 0 || len(other) == 0 {
				t.Fatalf("no processes with a mapped id: %v, %v", own, other)
			}
			uid := status(own[0], "Uid")
			if ids := uidsOf(other); slices.Contains(ids, uid) {
				t.Fatalf("both sandboxes have processes of uid %d", uid)
			}
			got := escapee(t, uid, append([]int{own[0], holderOf(a.id), holderOf(b.id)}, other...))
			if got[own[0]].Signal != "" {
				t.Errorf("the control is broken: uid %d cannot signal its own process: %+v", uid, got[own[0]])
			}
			delete(got, own[0])
			for pid, g := range got {
				if g.Signal != "EPERM" || g.Trace != "EPERM" || g.Copy != "EPERM" || g.Memory == "" {
					t.Errorf("uid %d reaches process %d (uid %d): %+v", uid, pid, status(pid, "Uid"), g)
				}
			}
		})
	}
}

func sleeping(t *testing.T, r rung.Rung) *box {
	t.Helper()
	b := attacked(t, r)
	p, err := b.guest.Start(within(t), client.Cmd{Path: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return b
}

// userProcesses are the sandbox's processes that are not the host's root, the one with the greatest id first: that is user
// code where there is more than one.
func userProcesses(id string) []int {
	pids := slices.DeleteFunc(hostProcesses(id), func(pid int) bool { return status(pid, "Uid") == 0 })
	slices.SortFunc(pids, func(a, b int) int { return int(status(b, "Uid") - status(a, "Uid")) })
	return pids
}

func uidsOf(pids []int) (ids []int64) {
	for _, pid := range pids {
		ids = append(ids, status(pid, "Uid"))
	}
	return ids
}

type reached struct {
	PID    int    `json:"pid"`
	Signal string `json:"signal"`
	Trace  string `json:"trace"`
	Memory string `json:"memory"`
	Copy   string `json:"copy"`
}

// escapee asks, with that id and no rights, what can be done to those processes.
func escapee(t *testing.T, uid int64, pids []int) map[int]reached {
	t.Helper()
	args := []string{"reach"}
	for _, pid := range pids {
		args = append(args, strconv.Itoa(pid))
	}
	cmd := exec.Command(place("probe"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]reached{}
	for line := range strings.Lines(string(out)) {
		var r reached
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		got[r.PID] = r
	}
	if len(got) != len(pids) {
		t.Fatalf("%d answers about %d processes", len(got), len(pids))
	}
	return got
}
