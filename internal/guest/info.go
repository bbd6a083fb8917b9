//go:build linux

package guest

import (
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/http1"
)

// envs tells the variables that every process gets.
func (s *server) envs(w *http1.Response) {
	all := map[string]string{}
	for _, kv := range s.cfg.Env {
		k, v, _ := strings.Cut(kv, "=")
		all[k] = v
	}
	w.JSON(200, wire.Marshal(all))
}

// metrics tells what the sandbox uses, as far as it can be seen from inside; the host has the numbers that count.
func (s *server) metrics(w *http1.Response) {
	m := map[string]any{"ts": time.Now().Unix(), "cpu_count": runtime.NumCPU(), "cpu_used_pct": 0}
	var mem unix.Sysinfo_t
	if unix.Sysinfo(&mem) == nil {
		total, free := uint64(mem.Totalram)*uint64(mem.Unit), uint64(mem.Freeram+mem.Bufferram)*uint64(mem.Unit)
		m["mem_total"], m["mem_used"], m["mem_cache"] = total, total-min(free, total), uint64(mem.Bufferram)*uint64(mem.Unit)
		m["mem_total_mib"], m["mem_used_mib"] = total>>20, (total-min(free, total))>>20
	}
	var disk unix.Statfs_t
	if unix.Statfs(s.cfg.User.Home, &disk) == nil {
		size := uint64(disk.Bsize)
		m["disk_total"], m["disk_used"] = disk.Blocks*size, (disk.Blocks-disk.Bfree)*size
	}
	w.JSON(200, wire.Marshal(m))
}
