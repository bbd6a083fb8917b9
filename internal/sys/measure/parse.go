package measure

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// Status are the security lines of /proc/<pid>/status. A line the kernel did not write leaves its Has flag false.
type Status struct {
	Held     uint64 // CapInh | CapPrm | CapEff | CapAmb
	Bounding uint64
	Passed   uint64 // CapInh | CapAmb: what an exec passes on besides what the bounding set lets a file give
	HasCaps  bool   // all of CapInh, CapPrm, CapEff and CapBnd were there (CapAmb is younger)

	NoNewPrivs, HasNoNewPrivs bool
	Seccomp                   int
	HasSeccomp                bool
	Filters                   int // -1 when the kernel does not say
}

// ParseStatus reads the text of /proc/<pid>/status. A value that is no number, or a security line that appears twice (a
// process name with a line break in it, on a kernel that does not escape it), makes the whole text suspect: an error.
func ParseStatus(text []byte) (Status, error) {
	st := Status{Filters: -1}
	seen := 0
	for line := range bytes.Lines(text) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		bit := statusKey(string(key))
		if !ok || bit == 0 {
			continue
		}
		if seen&bit != 0 {
			return Status{}, malformed("status", key)
		}
		seen |= bit
		if !st.set(bit, string(bytes.TrimSpace(value))) {
			return Status{}, malformed("status", line)
		}
	}
	const caps = keyInh | keyPrm | keyEff | keyBnd
	st.HasCaps = seen&caps == caps
	st.HasNoNewPrivs, st.HasSeccomp = seen&keyNNP != 0, seen&keySeccomp != 0
	return st, nil
}

const (
	keyInh = 1 << iota
	keyPrm
	keyEff
	keyBnd
	keyAmb
	keyNNP
	keySeccomp
	keyFilters
)

func statusKey(s string) int {
	switch s {
	case "CapInh":
		return keyInh
	case "CapPrm":
		return keyPrm
	case "CapEff":
		return keyEff
	case "CapBnd":
		return keyBnd
	case "CapAmb":
		return keyAmb
	case "NoNewPrivs":
		return keyNNP
	case "Seccomp":
		return keySeccomp
	case "Seccomp_filters":
		return keyFilters
	}
	return 0
}

func (st *Status) set(bit int, value string) bool {
	base := 10
	if bit <= keyAmb {
		base = 16
	}
	n, err := strconv.ParseUint(value, base, 64)
	if err != nil || base == 10 && n > math.MaxInt32 {
		return false
	}
	if bit == keyInh || bit == keyAmb {
		st.Passed |= n
	}
	switch bit {
	case keyBnd:
		st.Bounding = n
	case keyNNP:
		st.NoNewPrivs = n == 1
	case keySeccomp:
		st.Seccomp = int(n)
	case keyFilters:
		st.Filters = int(n)
	default:
		st.Held |= n
	}
	return true
}

// ParseIDMap reads the text of uid_map or gid_map. It never returns nil on success.
func ParseIDMap(text []byte) ([]rung.IDMap, error) {
	m := []rung.IDMap{}
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return nil, malformed("id map", line)
		}
		var n [3]uint32
		for i := range n {
			v, err := strconv.ParseUint(f[i], 10, 32)
			if err != nil {
				return nil, malformed("id map", line)
			}
			n[i] = uint32(v)
		}
		m = append(m, rung.IDMap{Inside: n[0], Host: n[1], Size: n[2]})
	}
	return m, nil
}

// ParseNetDev reads the interface names of /proc/net/dev, in its order. The two heading lines have a '|' instead of a ':'.
func ParseNetDev(text []byte) ([]string, error) {
	names := []string{}
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 || bytes.IndexByte(line, '|') >= 0 {
			continue
		}
		// The last colon: an alias (eth0:1) has one in its name, the counters after it never do.
		i := bytes.LastIndexByte(line, ':')
		name := ""
		if i > 0 {
			name = string(bytes.TrimSpace(line[:i]))
		}
		if name == "" {
			return nil, malformed("net/dev", line)
		}
		names = append(names, name)
	}
	return names, nil
}

// CgroupPath returns the path of the process in /proc/<pid>/cgroup for a version 1 controller, or in the unified
// hierarchy for "". ok is false when there is no such line or its path would leave the hierarchy.
func CgroupPath(text []byte, controller string) (path string, ok bool) {
	for line := range bytes.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(f) != 3 || !hasController(f[1], controller) {
			continue
		}
		if !strings.HasPrefix(f[2], "/") || strings.Contains(f[2], "/..") {
			return "", false
		}
		return f[2], true
	}
	return "", false
}

func hasController(list, want string) bool {
	if want == "" {
		return list == ""
	}
	for name := range strings.SplitSeq(list, ",") {
		if name == want {
			return true
		}
	}
	return false
}

// unlimited is what version 1 writes for "no limit" (the largest page-aligned number), with slack for page sizes.
const unlimited = math.MaxInt64 - 1<<20

// parseMax reads a cgroup limit; "max", version 1's huge numbers and -1 are 0: no cap.
func parseMax(text []byte) (int64, bool) {
	s := string(bytes.TrimSpace(text))
	if s == "max" || s == "-1" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, false
	}
	if n >= unlimited {
		return 0, true
	}
	return int64(n), true
}

// parseCPUMax reads cpu.max of version 2 ("quota period" or "max period") as cores; 0 is no cap.
func parseCPUMax(text []byte) (float64, bool) {
	f := strings.Fields(string(text))
	if len(f) != 2 {
		return 0, false
	}
	quota, ok := parseMax([]byte(f[0]))
	period, err := strconv.ParseUint(f[1], 10, 32)
	if !ok || err != nil || period == 0 {
		return 0, false
	}
	return float64(quota) / float64(period), true
}

// malformed names what was wrong with at most a line's first bytes, quoted: the text may be a hostile container's.
func malformed(what string, near []byte) error {
	const most = 40
	if len(near) > most {
		near = near[:most]
	}
	return rung.Errorf(rung.KindInvalid, "%s: malformed near %q", what, near)
}
