//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// needle is a text that is searched for by whoever must not have it: a hash of its beginning and one of the whole.
type needle struct {
	Name string `json:"name"`
	Len  int    `json:"len"`
	Roll uint64 `json:"roll"` // of the first bytes
	Sum  string `json:"sum"`  // SHA-256
}

const (
	window = 16            // bytes that the rolling hash is of
	base   = 1099511628211 // of the hash, modulo 2^64; its collisions are settled by SHA-256
	page   = 4096
)

// finder searches streams for all needles.
type finder struct {
	needles []needle
	likely  [1 << 16]bool // by the upper bits of the hash
	top     uint64        // base^(window-1)
	longest int
	found   map[string]bool
	looked  map[string]int64
	buf     []byte
}

func newFinder(list []needle) *finder {
	f := &finder{needles: list, top: 1, found: map[string]bool{}, looked: map[string]int64{}, buf: make([]byte, 1<<20)}
	for range window - 1 {
		f.top *= base
	}
	for _, n := range list {
		f.likely[n.Roll>>48] = true
		f.longest = max(f.longest, n.Len)
	}
	return f
}

// in searches one stream.
func (f *finder) in(where string, r io.Reader) {
	kept := 0
	for {
		n, err := r.Read(f.buf[kept:])
		f.looked["bytes"] += int64(n)
		f.text(where, f.buf[:kept+n])
		if err != nil || n == 0 {
			return
		}
		end := kept + n
		kept = min(f.longest-1, end)
		copy(f.buf, f.buf[end-kept:end])
	}
}

var zeros [page]byte

func (f *finder) text(where string, b []byte) {
	for at := 0; at+window <= len(b); {
		if at+page <= len(b) && bytes.Equal(b[at:at+page], zeros[:]) { // most of a Go program's memory
			at += page - window
			continue
		}
		end := min(at+page, len(b)-window+1)
		h := uint64(0)
		for _, c := range b[at : at+window] {
			h = h*base + uint64(c) + 1
		}
		for ; at < end; at++ {
			if f.likely[h>>48] {
				f.check(where, b[at:], h)
			}
			if at+window < len(b) {
				h = (h-(uint64(b[at])+1)*f.top)*base + uint64(b[at+window]) + 1
			}
		}
	}
}

func (f *finder) check(where string, b []byte, h uint64) {
	for _, n := range f.needles {
		if n.Roll != h || len(b) < n.Len {
			continue
		}
		if sum := sha256.Sum256(b[:n.Len]); hex.EncodeToString(sum[:]) == n.Sum {
			f.found[n.Name+" in "+where] = true
		}
	}
}

// search looks everywhere that this process can read.
func (s step) search() result {
	f := newFinder(s.Needle)
	f.text("my environment", []byte(strings.Join(os.Environ(), "\n")))
	f.processes(s.Method == "own")
	f.files(expand(s.Root), s.Since)
	r := result{Looked: f.looked}
	for where := range f.found {
		r.Found = append(r.Found, where)
	}
	return r
}

// processes reads what /proc tells of each process, and its memory where that is open.
func (f *finder) processes(own bool) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	if own {
		list = nil
	}
	for _, dir := range append(list, "/proc/self") {
		for _, name := range []string{"environ", "cmdline", "auxv", "comm", "stat", "status", "maps", "stack", "syscall", "wchan"} {
			if file, err := os.Open(filepath.Join(dir, name)); err == nil {
				f.looked["proc"]++
				f.in(filepath.Join(dir, name), io.LimitReader(file, 16<<20))
				file.Close()
			}
		}
		f.memory(dir)
	}
}

// memory reads the mapped pages of one process.
func (f *finder) memory(dir string) {
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return
	}
	defer mem.Close()
	maps, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return
	}
	defer maps.Close()
	read := false
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var perms string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &perms); err != nil || !strings.HasPrefix(perms, "r") {
			continue
		}
		before := f.looked["bytes"]
		f.in(dir+"/mem", io.NewSectionReader(mem, from, min(to-from, 64<<20)))
		read = read || f.looked["bytes"] > before
	}
	if read {
		f.looked["memories"]++
	}
}

// attributes of the kernel's devices and caches, tens of thousands of files that neither rung nor a sandbox writes. What is
// beside them, such as control groups, is read.
var attributes = []string{"/sys/kernel", "/sys/devices", "/sys/module", "/sys/bus", "/sys/class", "/sys/block", "/sys/firmware"}

// readOnly is whether nothing of a directory can have been written in here. The host's programs are hundreds of thousands of
// files, all older than the value.
func readOnly(path string) bool {
	var st syscall.Statfs_t
	const flag = 1 // ST_RDONLY, statvfs(3)
	return syscall.Statfs(path, &st) == nil && st.Flags&flag != 0
}

// files reads every file below a directory that could have been written since the value exists.
func (f *finder) files(root string, since int64) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case path == "/proc":
			return f.kernel()
		case slices.Contains(attributes, path), (path == "/usr" || path == "/opt") && readOnly(path):
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && st.Ctim.Sec < since && st.Mtim.Sec < since && !strings.HasPrefix(path, "/sys/") {
			f.looked["older"]++
			return nil
		}
		f.file(path)
		return nil
	})
}

// kernel reads what of /proc belongs to no process.
func (f *finder) kernel() error {
	list, _ := filepath.Glob("/proc/*")
	net, _ := filepath.Glob("/proc/self/net/*")
	for _, path := range append(list, net...) {
		st, err := os.Stat(path)
		if err == nil && st.Mode().IsRegular() && !strings.HasPrefix(path, "/proc/k") {
			f.file(path)
		}
	}
	return fs.SkipDir
}

func (f *finder) file(path string) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	f.looked["files"]++
	f.in(path, io.LimitReader(file, 256<<20))
}
