// Package userns makes user namespaces that are only maps of ids, and reads which ids an ordinary user may map.
//
// A map for an idmapped mount needs a namespace, and a namespace needs a process to be born in. Forking and executing one
// costs about a millisecond, so ForMapping clones a child that shares our memory and never uses it: it stops in pause,
// in a few instructions of assembly without a stack, until the namespace is open and it is killed. 0.2 ms, and nothing
// that outlives the call.
package userns

import (
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// Range is a range of ids: Base to Base+Size-1.
type Range struct{ Base, Size uint32 }

// subIDs finds the largest range of one user in a subuid or subgid file, where lines are name:base:size and the name may
// be the uid. Lines that are not, and ranges beyond 32 bits, do not count.
func subIDs(text, user, uid string) (best Range, ok bool) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != user && f[0] != uid || f[0] == "" {
			continue
		}
		base, errB := strconv.ParseUint(f[1], 10, 32)
		size, errS := strconv.ParseUint(f[2], 10, 32)
		if errB != nil || errS != nil || size == 0 || base+size > 1<<32-1 {
			continue
		}
		if r := (Range{uint32(base), uint32(size)}); r.Size > best.Size {
			best, ok = r, true
		}
	}
	return best, ok
}

// checkMaps refuses maps no kernel takes, before a set-uid program or the kernel sees them.
func checkMaps(maps []rung.IDMap) error {
	if len(maps) == 0 || len(maps) > 340 {
		return rung.Errorf(rung.KindInvalid, "a map of ids has 1 to 340 lines, not %d", len(maps))
	}
	for _, m := range maps {
		if m.Size == 0 || uint64(m.Inside)+uint64(m.Size) > 1<<32-1 || uint64(m.Host)+uint64(m.Size) > 1<<32-1 {
			return rung.Errorf(rung.KindInvalid, "map of ids %d to %d, %d of them: outside the ids there are", m.Inside, m.Host, m.Size)
		}
	}
	return nil
}

func mapText(maps []rung.IDMap) string {
	var b strings.Builder
	for _, m := range maps {
		b.WriteString(strconv.FormatUint(uint64(m.Inside), 10) + " " + strconv.FormatUint(uint64(m.Host), 10) + " " + strconv.FormatUint(uint64(m.Size), 10) + "\n")
	}
	return b.String()
}
