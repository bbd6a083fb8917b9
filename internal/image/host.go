package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/rung-dev/rung"
)

// hostRevision changes with the code that makes host templates: templates of another revision are made again.
const hostRevision = 1

// hostSource is a host to make a template from.
type hostSource struct {
	root  string // "/", or a made-up host in tests
	paths []string
}

func realHost() hostSource { return newHostSource("/") }

func newHostSource(root string) hostSource {
	h := hostSource{root: root}
	// What decides the content, cheaply: the package database covers /usr, the rest covers the generated /etc. A change of
	// these between two runs makes the template again.
	for _, p := range append([]string{
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/usr/local",
		"/var/lib/dpkg/status", "/etc/ld.so.cache", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/ssl/certs",
	}, caPlaces()...) {
		h.paths = append(h.paths, filepath.Join(root, p))
	}
	return h
}

// state is a digest of how every input is now: the kind of the file itself, and size and time of what it leads to (of a link
// to a certificate bundle the bundle matters). It costs a run some forty microseconds.
func (h hostSource) state() string {
	text := make([]byte, 0, 2048)
	text = strconv.AppendInt(text, hostRevision, 10)
	for _, path := range h.paths {
		text = append(append(text, '\n'), path...)
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		text = strconv.AppendUint(append(text, ' '), uint64(info.Mode()), 8)
		if info.Mode()&fs.ModeSymlink != 0 {
			if info, err = os.Stat(path); err != nil {
				continue
			}
		}
		text = strconv.AppendInt(append(text, ' '), info.Size(), 10)
		text = strconv.AppendInt(append(text, ' '), info.ModTime().UnixNano(), 10)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// stale reports whether the host is not as it was when t was made.
func (h hostSource) stale(t Template) bool { return t.Digest != h.state() }

// makeHost makes the built-in template unless another process just did.
func (s *Store) makeHost(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return rung.Errorf(rung.KindUnavailable, "this machine runs %s: a view of it is no Linux root file system", runtime.GOOS)
	}
	b, err := s.begin(ctx, HostName)
	if err != nil {
		return err
	}
	defer b.Abort()
	if t, f, err := s.hold(HostName); err == nil {
		_ = f.Close() // only a lock
		if !s.src.stale(t) {
			return nil
		}
	}
	t, err := s.src.build(b.Dir, b.Root)
	if err != nil {
		return err
	}
	return b.Commit(t)
}

// build writes the skeleton into dir and returns its description.
func (h hostSource) build(dir, root string) (Template, error) {
	state := h.state() // before reading: a change in between must show as stale
	w := &hostWriter{src: h.root, root: root}
	w.skeleton()
	w.views(dir)
	w.etc()
	if w.err != nil {
		return Template{}, w.err
	}
	return Template{
		Kind:    Host,
		Digest:  state,
		Created: time.Now().UTC(),
		Source:  Source{Reference: "this host"},
		Arch:    runtime.GOARCH,
		Env:     defaultEnv(),
		Workdir: "/work",
		Binds:   w.binds,
		Notes:   w.notes,
	}, nil
}

func defaultEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
}

// hostWriter writes below root, which only it can see; src is the host. The first error stops it.
type hostWriter struct {
	src, root string
	binds     []Bind
	notes     []string
	err       error
	copied    int64 // bytes, against maxCopied
}

const (
	maxCopied   = 32 << 20 // all of /etc that is copied
	maxCopyFile = 8 << 20
)

func (w *hostWriter) at(path string) string   { return filepath.Join(w.root, path) }
func (w *hostWriter) from(path string) string { return filepath.Join(w.src, path) }

func (w *hostWriter) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

func (w *hostWriter) dir(path string, mode os.FileMode) {
	if w.err == nil {
		w.err = os.MkdirAll(w.at(path), 0o755)
	}
	if w.err == nil { // whatever the umask is; a sticky bit needs it anyway
		w.err = os.Chmod(w.at(path), mode)
	}
}

func (w *hostWriter) link(target, path string) {
	if w.err == nil {
		w.err = os.Symlink(target, w.at(path))
	}
}

func (w *hostWriter) file(path, content string) { w.fileMode(path, []byte(content), 0o644) }

func (w *hostWriter) fileMode(path string, content []byte, mode os.FileMode) {
	if w.err == nil {
		w.err = os.WriteFile(w.at(path), content, mode)
	}
	if w.err == nil {
		w.err = os.Chmod(w.at(path), mode)
	}
}

// skeleton makes the mount points and what a program expects to exist.
func (w *hostWriter) skeleton() {
	for _, d := range mountDirs() {
		w.dir(d.path, d.mode)
	}
	for _, d := range []string{"/usr", "/etc", "/opt", "/mnt", "/var/lib", "/var/cache", "/var/log"} {
		w.dir(d, 0o755)
	}
	w.link("../tmp", "/var/tmp") // the root is read-only, and /tmp is the one place for scratch files
	w.link("../run", "/var/run")
	w.fileMode(guestFile, nil, 0o555)
}

// views binds /usr and whatever of the old top-level directories is not a link into it, and hides configuration kept there.
func (w *hostWriter) views(dir string) {
	w.bind("/usr")
	for _, d := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(w.from(d))
		switch {
		case err != nil: // this host has none
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(w.from(d))
			if err != nil {
				w.err = err
				return
			}
			w.link(target, d)
		case info.IsDir():
			w.dir(d, 0o755)
			w.bind(d)
		}
	}
	empty := filepath.Join(dir, "empty")
	if w.err == nil {
		w.err = os.Mkdir(empty, 0o755)
	}
	usr, err := os.Stat(w.from("/usr"))
	if err != nil && w.err == nil {
		w.err = err
	}
	for _, d := range []string{"/usr/etc", "/usr/local/etc"} { // host configuration, such as a registry's token in an npmrc
		if info, err := os.Lstat(w.from(d)); w.err == nil && err == nil && info.IsDir() && sameDevice(usr, info) {
			w.binds = append(w.binds, Bind{Source: empty, Target: d})
		}
	}
	w.tools()
}

func (w *hostWriter) bind(path string) {
	source, err := filepath.EvalSymlinks(w.from(path))
	if err != nil && w.err == nil {
		w.err = err
		return
	}
	w.binds = append(w.binds, Bind{Source: source, Target: path})
}

// tools notes what people expect and this host has only outside /usr, or not at all.
func (w *hostWriter) tools() {
	for _, tool := range []struct{ program, install string }{{"python3", "python3"}, {"node", "nodejs"}, {"bash", "bash"}} {
		found := false
		for _, d := range []string{"/usr/bin", "/usr/local/bin", "/bin"} {
			info, err := os.Stat(filepath.Join(w.from(d), tool.program))
			found = found || err == nil && info.Mode()&0o111 != 0
		}
		if !found {
			w.note("no %s below /usr on this host: install %s, or use another template", tool.program, tool.install)
		}
	}
}
