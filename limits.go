package rung

import (
	"strconv"
	"strings"
	"time"
)

// Limits are the caps of one sandbox. Every field is always set: a sandbox without a cap does not exist.
type Limits struct {
	CPUs     float64       `json:"cpus"`                 // processor time per wall time, 1.5 = one and a half cores
	Memory   int64         `json:"memory_bytes"`         // resident memory and page cache of the sandbox; no swap
	PIDs     int64         `json:"pids"`                 // processes and threads
	Files    int64         `json:"open_files"`           // open files per process (RLIMIT_NOFILE)
	Disk     int64         `json:"disk_bytes"`           // writable bytes of work, home and (container) root together
	Output   int64         `json:"output_bytes"`         // stdout and stderr together; one more byte ends the run
	Timeout  time.Duration `json:"timeout_ns"`           // wall clock of the run, from the command's start
	Best     bool          `json:"best_effort"`          // the caller accepts limits that this host cannot enforce
	Unforced []string      `json:"unenforced,omitempty"` // the limits this host does not enforce, with the reason
}

// DefaultLimits are what a run gets without flags; CPUs only where the host has as many.
func DefaultLimits() Limits {
	return Limits{CPUs: 2, Memory: 512 << 20, PIDs: 256, Files: 1024, Disk: 1 << 30, Output: 10 << 20, Timeout: 60 * time.Second}
}

// Bounds of the limits. The lower ones are what rung-guest and a small program need to start; the upper ones keep a typing
// error from becoming a promise no host can keep.
const (
	MinMemory, MaxMemory   = 16 << 20, 1 << 42
	MinPIDs, MaxPIDs       = 8, 1 << 20
	MinFiles, MaxFiles     = 16, 1 << 20
	MinDisk, MaxDisk       = 1 << 20, 1 << 42
	MinOutput, MaxOutput   = 1, 1 << 34
	MinTimeout, MaxTimeout = 10 * time.Millisecond, 24 * time.Hour
	MinCPUs, MaxCPUs       = 0.01, 1024.0
)

// Validate refuses a limit of zero, below or above its bounds, with a KindInvalid error that names it.
func (l Limits) Validate() error {
	if l.CPUs < MinCPUs || l.CPUs > MaxCPUs || l.CPUs != l.CPUs {
		return Errorf(KindInvalid, "cpus: %v is not between %v and %v", l.CPUs, MinCPUs, MaxCPUs)
	}
	for _, c := range []struct {
		name        string
		v, min, max int64
		text        func(int64) string
	}{
		{"memory", l.Memory, MinMemory, MaxMemory, FormatBytes},
		{"pids", l.PIDs, MinPIDs, MaxPIDs, plain},
		{"open files", l.Files, MinFiles, MaxFiles, plain},
		{"disk", l.Disk, MinDisk, MaxDisk, FormatBytes},
		{"max-output", l.Output, MinOutput, MaxOutput, FormatBytes},
	} {
		if c.v < c.min || c.v > c.max {
			return Errorf(KindInvalid, "%s: %s is not between %s and %s", c.name, c.text(c.v), c.text(c.min), c.text(c.max))
		}
	}
	if l.Timeout < MinTimeout || l.Timeout > MaxTimeout {
		return Errorf(KindInvalid, "timeout: %v is not between %v and %v", l.Timeout, MinTimeout, MaxTimeout)
	}
	return nil
}

func plain(n int64) string { return strconv.FormatInt(n, 10) }

var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"T", 1 << 40},
	{"G", 1 << 30},
	{"M", 1 << 20},
	{"K", 1 << 10},
	{"k", 1 << 10},
	{"B", 1},
}

// ParseBytes reads a size such as 512MiB, 1.5GiB, 64k or 1000. IEC units are powers of 1024, MB and GB powers of 1000, and
// a bare K, M, G or T is a power of 1024 as in Docker and Kubernetes' older tools. Negative, fractional-byte and overflowing
// sizes are KindInvalid.
func ParseBytes(s string) (int64, error) {
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(n), u.size
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	total := v * float64(unit)
	if err != nil || strings.ContainsAny(number, "xXpPeEnN_") || total < 0 || total != total || total >= 1<<62 {
		return 0, Errorf(KindInvalid, "size %q: not a number with a unit", s).WithHint("write for example 512MiB, 1GiB or 1000000")
	}
	return int64(total), nil
}

// FormatBytes writes n with the largest IEC unit that divides it exactly, else with one decimal.
func FormatBytes(n int64) string {
	for _, u := range units[:4] {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + " " + u.name
		}
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}
