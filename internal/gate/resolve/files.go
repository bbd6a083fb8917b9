package resolve

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung"
)

const (
	// maxFile caps what is read of resolv.conf and hosts; lists of blocked names are large hosts files.
	maxFile = 8 << 20
	// checkEvery is how often the files are looked at for a change.
	checkEvery = 5 * time.Second
	serverPort = 53
)

// Files is the Resolver of the host's own files, read again when they change. What cannot be read keeps what was read
// before.
type Files struct {
	resolvConf, hosts string

	mu      sync.Mutex
	config  Config
	stamp   [2]time.Time
	checked time.Time
}

// NewFiles reads the files; the usual ones where a path is empty.
func NewFiles(resolvConf, hosts string) (*Files, error) {
	f := &Files{resolvConf: resolvConf, hosts: hosts}
	if f.resolvConf == "" {
		f.resolvConf = "/etc/resolv.conf"
	}
	if f.hosts == "" {
		f.hosts = "/etc/hosts"
	}
	return f, f.load()
}

// Resolve implements Resolver.
func (f *Files) Resolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	return f.current().Resolve(ctx, name)
}

func (f *Files) current() Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.checked) > checkEvery {
		f.checked = now
		if f.changed() {
			_ = f.load() // what was read before stays
		}
	}
	return f.config
}

func (f *Files) changed() bool {
	return stamp(f.resolvConf) != f.stamp[0] || stamp(f.hosts) != f.stamp[1]
}

func stamp(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// load reads both files. That there is no hosts file is no error.
func (f *Files) load() error {
	f.stamp = [2]time.Time{stamp(f.resolvConf), stamp(f.hosts)}
	var c Config
	r, err := os.Open(f.resolvConf)
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "name servers: %w", err)
	}
	defer r.Close()
	c.Servers = readServers(r)
	if h, err := os.Open(f.hosts); err == nil {
		c.Hosts = readHosts(h)
		_ = h.Close() // only read
	}
	f.config = c
	return nil
}

// readServers reads the name servers of a resolv.conf(5). Search domains and options are not ours to apply: a name is
// looked up as it was allowed.
func readServers(r io.Reader) (servers []netip.AddrPort) {
	for fields := range lines(r) {
		if fields[0] == "nameserver" && len(fields) > 1 && len(servers) < MaxServers {
			if a, err := netip.ParseAddr(fields[1]); err == nil {
				servers = append(servers, netip.AddrPortFrom(a, serverPort))
			}
		}
	}
	return servers
}

// readHosts reads a hosts(5) file.
func readHosts(r io.Reader) map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	for fields := range lines(r) {
		a, err := netip.ParseAddr(fields[0])
		if err != nil || a.Zone() != "" {
			continue
		}
		for _, name := range fields[1:] {
			name = strings.TrimSuffix(strings.ToLower(name), ".")
			if len(hosts[name]) < MaxAddrs {
				hosts[name] = append(hosts[name], a)
			}
		}
	}
	return hosts
}

// lines yields the fields of each line that has any, without its comment.
func lines(r io.Reader) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		s := bufio.NewScanner(io.LimitReader(r, maxFile))
		for s.Scan() {
			text := s.Text()
			if i := strings.IndexAny(text, "#;"); i >= 0 {
				text = text[:i]
			}
			if fields := strings.Fields(text); len(fields) > 0 && !yield(fields) {
				return
			}
		}
	}
}
