package held

import (
	"bytes"
	"context"
	"os"
	"strconv"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// Usage sums the proportional set sizes of the holder and everything below it. The tree is walked by parent, since the
// runtime's own processes are not all in the control group on every host.
func (in *instance) Usage(context.Context) (driver.Usage, error) {
	var u driver.Usage
	if err := in.alive(); err != nil {
		return u, err
	}
	root := in.link.PID()
	if root == 0 {
		return u, rung.Errorf(rung.KindUnsupported, "usage of an adopted sandbox")
	}
	children, err := processTree()
	if err != nil {
		return u, err
	}
	todo := []int{root}
	for len(todo) > 0 {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		pss := pssOf(pid)
		u.Memory += pss
		if pid == root || isGuest(pid) {
			u.Own += pss
		}
	}
	return u, nil
}

// processTree maps every process to its children.
func processTree() (map[int][]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "usage: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "usage: %w", err)
	}
	tree := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent := parentOf(name); parent > 0 {
			tree[parent] = append(tree[parent], pid)
		}
	}
	return tree, nil
}

// parentOf reads the fourth field of stat; the second, the name, may hold anything and ends at the last parenthesis.
func parentOf(pid string) int {
	raw, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0 // it has ended
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

func pssOf(pid int) int64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0 // it has ended
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			kb, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kb << 10
		}
	}
	return 0
}

func isGuest(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.HasPrefix(raw, []byte(GuestInside+"\x00"))
}
