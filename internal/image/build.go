package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rung-dev/rung"
)

// Prefixes of directories that are not templates (ValidName refuses a leading dot): being built, being removed.
const (
	newPrefix = ".new-"
	oldPrefix = ".old-"
)

const packagesFile = "packages"

// Build is a template in the making: invisible, and removed by anybody's next build if its builder dies.
type Build struct {
	Dir  string // the directory that becomes the template's
	Root string // Dir/rootfs, made and empty

	store *Store
	name  string
	named *os.File // the lock of the name: one build of it at a time
	self  *os.File // the lock of Dir: its builder lives
}

// Begin starts a build under a name. A second builder of the same name waits here until ctx is done or the first has
// finished, and may then find that the template already is what it wants. End it with Commit or Abort.
func (s *Store) Begin(ctx context.Context, name string) (*Build, error) {
	if err := rung.ValidName(name); err != nil {
		return nil, err
	}
	if name == HostName {
		return nil, rung.Errorf(rung.KindInvalid, "template name %q is the built-in one", name).WithHint("choose another with --name")
	}
	return s.begin(ctx, name)
}

func (s *Store) begin(ctx context.Context, name string) (*Build, error) {
	if err := os.MkdirAll(filepath.Join(s.dir, ".locks"), 0o755); err != nil {
		return nil, err
	}
	named, err := lock(ctx, filepath.Join(s.dir, ".locks", name))
	if err != nil {
		return nil, err
	}
	s.sweep(ctx)
	b := &Build{store: s, name: name, named: named, Dir: s.temp(newPrefix)}
	b.Root = filepath.Join(b.Dir, "rootfs")
	if err := b.make(ctx); err != nil {
		b.Abort()
		return nil, err
	}
	return b, nil
}

// make creates the directory and locks it, under the lock that sweep takes: it never sees the one without the other.
func (b *Build) make(ctx context.Context) error {
	all, err := lock(ctx, filepath.Join(b.store.dir, ".locks", ".sweep"))
	if err != nil {
		return err
	}
	defer all.Close()
	if err := os.Mkdir(b.Dir, 0o755); err != nil {
		return err
	}
	if b.self, err = tryLock(filepath.Join(b.Dir, "lock"), true, true); err != nil {
		return err
	}
	return os.Mkdir(b.Root, 0o755)
}

// Commit writes template.json and makes the template visible under its name, replacing an older one in one step; sandboxes
// of the older one keep its tree. After an error the build is as before: Abort it.
func (b *Build) Commit(t Template) error {
	t.Name = b.name
	data, err := t.encode(b.Dir)
	if err != nil {
		return err
	}
	if len(data) > maxJSON {
		return rung.Errorf(rung.KindExhausted, "template %s: its description has %d bytes, at most %d are allowed", b.name, len(data), maxJSON)
	}
	if len(t.Packages) > 0 { // a run reads template.json, and has no use for a thousand lines in it
		if err := writeFile(filepath.Join(b.Dir, packagesFile), []byte(strings.Join(t.Packages, "\n")+"\n"), true); err != nil {
			return err
		}
	}
	// What is left of a host template after a power cut is damaged and made again; no run should wait for the disk for it.
	if err := writeFile(filepath.Join(b.Dir, "template.json"), data, t.Kind != Host); err != nil {
		return err
	}
	replaced, err := b.publish()
	if err != nil {
		return fmt.Errorf("template %s: %w", b.name, err)
	}
	if replaced {
		b.retire()
	}
	b.unlock()
	return nil
}

// publish moves the directory to its name. Its lock becomes a shared one first, since whoever sees the template may use it
// at once; a sweep in the gap between the two locks is kept out.
func (b *Build) publish() (replaced bool, err error) {
	all, err := lock(context.Background(), filepath.Join(b.store.dir, ".locks", ".sweep"))
	if err != nil {
		return false, err
	}
	defer all.Close()
	if err := flock(b.self, false); err != nil {
		return false, err
	}
	final := b.store.path(b.name)
	err = os.Rename(b.Dir, final)
	if errors.Is(err, fs.ErrExist) { // a directory that is not empty
		return true, swap(b.Dir, final)
	}
	return false, err
}

// retire handles the older template, which swap has put at b.Dir: removed now, or by a later sweep if sandboxes use it.
func (b *Build) retire() {
	f, err := tryLock(filepath.Join(b.Dir, "lock"), true, false)
	if err != nil {
		return // in use: a later sweep finds its lock free
	}
	defer f.Close()
	_ = b.store.discard(b.Dir) // what stays is found by the next sweep
}

// Abort removes everything. It does nothing after Commit.
func (b *Build) Abort() {
	if b.named == nil {
		return
	}
	_ = b.store.discard(b.Dir) // what stays is found by the next sweep
	b.unlock()
}

func (b *Build) unlock() {
	for _, f := range []*os.File{b.self, b.named} {
		if f != nil {
			_ = f.Close() // only a lock
		}
	}
	b.self, b.named = nil, nil
}

// sweep removes what dead builders and removers left: temporary directories whose lock is free. Errors are not reported;
// the next sweep tries again.
func (s *Store) sweep(ctx context.Context) {
	for _, path := range s.orphans(ctx) {
		_ = s.discard(path.dir) // see above
		if path.lock != nil {
			_ = path.lock.Close() // only a lock
		}
	}
}

type orphan struct {
	dir  string
	lock *os.File // nil when the remover died after deleting it
}

// orphans claims all abandoned temporary directories.
func (s *Store) orphans(ctx context.Context) []orphan {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // no store yet
	}
	var temps []string
	for _, e := range entries {
		if isTemp(e.Name()) {
			temps = append(temps, s.path(e.Name()))
		}
	}
	if len(temps) == 0 {
		return nil
	}
	all, err := lock(ctx, filepath.Join(s.dir, ".locks", ".sweep"))
	if err != nil {
		return nil // somebody else sweeps
	}
	defer all.Close()
	var found []orphan
	for _, dir := range temps {
		f, err := tryLock(filepath.Join(dir, "lock"), true, false)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			found = append(found, orphan{dir, f})
		}
	}
	return found
}

func (s *Store) temp(prefix string) string { return s.path(prefix + rand.Text()[:16]) }

// writeFile writes a file; with sync it waits until the bytes are on disk: a template that survives a power cut must not be
// half a one.
func writeFile(path string, data []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if sync {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

// swapInSteps is swap where the file system cannot exchange: for a moment there is no template of that name.
func swapInSteps(from, to string) error {
	aside := from + ".swap"
	if err := os.Rename(to, aside); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return errors.Join(err, os.Rename(aside, to))
	}
	return os.Rename(aside, from)
}

// Lock is the file whose lock says that the build is alive. A builder hands it to its children, so that nobody sweeps the
// directory while one of them still writes there.
func (b *Build) Lock() *os.File { return b.self }
