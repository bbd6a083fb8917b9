package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rung-dev/rung"
)

// Store is the directory of templates. It holds no state of its own: any number of processes may use the same one.
type Store struct {
	dir string
	src hostSource // where host templates come from; another tree in tests
}

// Open returns the store below stateDir. It touches nothing: directories are made by the first build.
func Open(stateDir string) *Store {
	return &Store{dir: filepath.Join(stateDir, "templates"), src: realHost()}
}

// Dir is the directory of the store.
func (s *Store) Dir() string { return s.dir }

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// Get returns a template. It reads one small file, and for `host` checks a dozen time stamps and makes the template when
// one of them changed. KindNotFound, with the command that would make it in the hint, when there is none of that name.
func (s *Store) Get(ctx context.Context, name string) (Template, error) {
	t, f, err := s.Hold(ctx, name)
	if err != nil {
		return Template{}, err
	}
	return t, f.Close()
}

// Use is Get for a sandbox: until release is called the tree stays where it is and Remove answers KindConflict.
func (s *Store) Use(ctx context.Context, name string) (t Template, release func(), err error) {
	t, f, err := s.Hold(ctx, name)
	if err != nil {
		return Template{}, nil, err
	}
	return t, func() { _ = f.Close() }, nil // closing a lock cannot fail in a way that matters: the lock is gone
}

// Hold is Use for a caller that hands the lock to another process: the template is in use as long as any process has the
// returned file, or a duplicate of it, open.
func (s *Store) Hold(ctx context.Context, name string) (Template, *os.File, error) {
	if err := rung.ValidName(name); err != nil {
		return Template{}, nil, err
	}
	t, f, err := s.hold(name)
	for try := 0; errors.Is(err, fs.ErrNotExist) && try < holdTries; try++ {
		if _, gone := os.Lstat(s.path(name)); gone != nil {
			break
		}
		t, f, err = s.hold(name) // what was opened was on its way out, and another has taken its place
	}
	switch {
	case name == HostName && (err != nil || s.src.stale(t)):
		if f != nil {
			_ = f.Close() // only a lock
		}
		if err := s.makeHost(ctx); err != nil {
			return Template{}, nil, fmt.Errorf("template host: %w", err)
		}
		return s.hold(name)
	case errors.Is(err, fs.ErrNotExist):
		return Template{}, nil, notFound(name)
	}
	return t, f, err
}

// holdTries is how often a template that is there is looked at again when the one that was opened is being removed.
const holdTries = 32

// hold locks the template's directory, then reads it: a directory that was swapped for a newer one between the two steps
// fails tryLock's check and is tried again.
func (s *Store) hold(name string) (Template, *os.File, error) {
	dir := s.path(name)
	f, err := tryLock(filepath.Join(dir, "lock"), false, false)
	if errors.Is(err, errLocked) { // being removed right now: as good as gone
		return Template{}, nil, fmt.Errorf("template %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return Template{}, nil, err
	}
	data, err := readCapped(filepath.Join(dir, "template.json"), maxJSON)
	if err != nil {
		_ = f.Close() // only a lock
		return Template{}, nil, err
	}
	t, err := decode(dir, name, data)
	if err != nil {
		_ = f.Close() // only a lock
		return Template{}, nil, err
	}
	return t, f, nil
}

func notFound(name string) error {
	hint := "rung template list shows what is there; rung template import docker.io/library/" + name + " --name " + name + " imports an image"
	if name == "python" || name == "node" || name == "full" {
		hint = "build it from Debian's packages: rung template build " + name
	}
	return rung.Errorf(rung.KindNotFound, "no template %q", name).WithHint(hint)
}

// List returns all templates by name, the built-in one among them. One that cannot be read is left out and its error
// joined to the returned one, so that a damaged template does not hide the others.
func (s *Store) List(ctx context.Context) ([]Template, error) {
	s.sweep(ctx)
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []Template
	var bad []error
	for _, name := range names {
		t, err := s.Get(ctx, name)
		if rung.KindOf(err) == rung.KindNotFound { // removed since
			continue
		}
		if err != nil {
			bad = append(bad, err)
			continue
		}
		list = append(list, t)
	}
	return list, errors.Join(bad...)
}

// names lists the directories with a valid name, sorted, and the built-in one whether or not it was made yet.
func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := []string{HostName}
	for _, e := range entries {
		if e.IsDir() && e.Name() != HostName && rung.ValidName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Inspection is what Inspect tells beyond the template itself.
type Inspection struct {
	Template
	Bytes    int64    `json:"bytes"` // of regular files in the tree, a hard link once per name
	Files    int64    `json:"files"` // everything in the tree
	InUse    bool     `json:"in_use"`
	Packages []string `json:"packages,omitempty"`
}

// Inspect reads a template and measures its tree.
func (s *Store) Inspect(ctx context.Context, name string) (Inspection, error) {
	t, err := s.Get(ctx, name)
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{Template: t}
	list, err := readCapped(filepath.Join(s.path(name), packagesFile), maxJSON)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Inspection{}, err
	}
	in.Packages = strings.Fields(string(list))
	err = filepath.WalkDir(t.Root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		in.Files++
		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			in.Bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		return Inspection{}, fmt.Errorf("template %s: measure: %w", name, err)
	}
	f, err := tryLock(filepath.Join(s.path(name), "lock"), true, false)
	in.InUse = errors.Is(err, errLocked)
	if err == nil {
		err = f.Close()
	}
	if in.InUse {
		err = nil
	}
	return in, err
}

// Remove deletes a template. KindConflict while a sandbox uses it; KindNotFound when there is none. The built-in one is
// made again by its next use.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := rung.ValidName(name); err != nil {
		return err
	}
	s.sweep(ctx)
	f, err := tryLock(filepath.Join(s.path(name), "lock"), true, false)
	switch {
	case errors.Is(err, errLocked):
		return rung.Errorf(rung.KindConflict, "template %s: a sandbox uses it", name).
			WithHint("end the sandbox first; rung reap clears those whose owner is gone")
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Lstat(s.path(name)); statErr == nil { // half a template: nobody can hold it
			return s.discard(s.path(name))
		}
		return notFound(name)
	case err != nil:
		return err
	}
	defer f.Close()
	// Out of sight first: whoever looks from here on finds no template rather than half a one.
	gone := s.temp(oldPrefix)
	if err := os.Rename(s.path(name), gone); err != nil {
		return err
	}
	return s.discard(gone)
}

// discard removes a tree. The directories of an image can lack write permission for their owner, which stops an ordinary
// user from emptying them.
func (s *Store) discard(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // what cannot be changed fails again below, where it is reported
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// readCapped reads a whole regular file of at most limit bytes.
func readCapped(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return data, err
}

func isTemp(name string) bool {
	return strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, oldPrefix)
}
