// Package keep stores small private files: keys, encrypted values, marks. A directory and its files belong to the calling
// user alone, and whatever is not so is refused rather than repaired: a key that others could read is no key any more, and
// a file that others could write is theirs.
//
// Everything goes by handle (os.Root), follows no link, reads a bounded number of bytes and writes atomically and synced.
package keep

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/below"
	"github.com/rung-dev/rung/internal/sys/lock"
)

const (
	lockFile = ".lock"
	newMark  = ".new-"
	// stale is the age after which a half-written file is somebody's who died.
	stale = time.Hour
	// replaced is how often a file may be replaced while it is opened.
	replaced = 8
	// maxNames bounds a listing.
	maxNames = 65536
)

// Dir is one private directory. Its methods may be called from several goroutines and several processes at once.
type Dir struct {
	path string
	root *os.Root
}

// Make opens the directory dir/name, making both where they are missing.
func Make(dir, name string) (*Dir, error) {
	// 0755: templates live in the state directory too, and the ids of a sandbox must reach those.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, problem("make the state directory", err)
	}
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err == nil {
		if err := syncDir(dir); err != nil {
			return nil, problem("sync the state directory", err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, problem("make the directory "+name, err)
	}
	return Open(dir, name)
}

// Open opens the directory dir/name. One that is missing is fs.ErrNotExist.
func Open(dir, name string) (*Dir, error) {
	state, err := os.OpenRoot(dir)
	if err != nil {
		return nil, problem("open the state directory", err)
	}
	defer state.Close()
	info, err := state.Lstat(name)
	if err != nil {
		return nil, problem("open the directory "+name, err)
	}
	path := filepath.Join(dir, name)
	if !info.IsDir() {
		return nil, rung.Errorf(rung.KindUnavailable, "%s is not a directory", path).WithHint("remove it")
	}
	root, err := state.OpenRoot(name)
	if err != nil {
		return nil, problem("open the directory "+name, err)
	}
	if info, err = root.Stat("."); err == nil && !below.Private(info) {
		err = rung.Errorf(rung.KindUnavailable, "%s is not a private directory of user %d", path, os.Geteuid()).
			WithHint("it must be his and of mode 0700; if others could write to it, what it holds may be theirs")
	}
	if err != nil {
		root.Close()
		return nil, problem("look at "+path, err)
	}
	return &Dir{path: path, root: root}, nil
}

// Close releases the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Path is the path of a file, for messages.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Read returns a file of at most limit bytes. A missing one is fs.ErrNotExist.
func (d *Dir) Read(name string, limit int64) ([]byte, error) {
	f, info, err := d.open(name, os.O_RDONLY)
	for range replaced {
		if rung.KindOf(err) != rung.KindConflict {
			break
		}
		f, info, err = d.open(name, os.O_RDONLY)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, rung.Errorf(rung.KindUnavailable, "%s has %d bytes, more than the %d it could have", d.Path(name), info.Size(), limit)
	}
	data := make([]byte, info.Size()+1) // one read, no growing that would leave copies behind
	n, err := io.ReadFull(f, data)
	if err == nil || int64(n) > limit {
		return nil, rung.Errorf(rung.KindConflict, "%s grew while it was read", d.Path(name))
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, problem("read "+d.Path(name), err)
	}
	return data[:n], nil
}

// open opens a private file.
func (d *Dir) open(name string, flags int) (*os.File, fs.FileInfo, error) {
	f, info, err := below.Open(d.root, name, flags)
	switch {
	case errors.Is(err, below.ErrIrregular):
		return nil, nil, d.foreign(name)
	case errors.Is(err, below.ErrReplaced):
		return nil, nil, rung.Errorf(rung.KindConflict, "%s was replaced while it was read", d.Path(name)).WithHint("try again")
	case err != nil:
		return nil, nil, problem("open "+d.Path(name), err)
	case !below.Private(info):
		f.Close()
		return nil, nil, d.foreign(name)
	}
	return f, info, nil
}

func (d *Dir) foreign(name string) error {
	return rung.Errorf(rung.KindUnavailable, "%s is not a private file of user %d", d.Path(name), os.Geteuid()).
		WithHint("it must be a regular file of mode 0600; if others could read or write it, move it away and renew what it held")
}

// Write replaces a file atomically.
func (d *Dir) Write(name string, data []byte) error {
	temp, err := d.temp(data)
	if err != nil {
		return problem("write "+d.Path(name), err)
	}
	if err := d.root.Rename(temp, name); err != nil {
		_ = d.root.Remove(temp) // best effort: Sweep finds it
		return problem("write "+d.Path(name), err)
	}
	return d.sync()
}

// Create makes a file that nobody has made yet: of several processes doing so at once exactly one succeeds, and the others
// get fs.ErrExist and find a whole file.
func (d *Dir) Create(name string, data []byte) error {
	temp, err := d.temp(data)
	if err != nil {
		return problem("write "+d.Path(name), err)
	}
	defer func() { _ = d.root.Remove(temp) }() // best effort: Sweep finds it
	if err := d.root.Link(temp, name); err != nil {
		return problem("write "+d.Path(name), err)
	}
	return d.sync()
}

func (d *Dir) temp(data []byte) (string, error) {
	name := newMark + rand.Text()
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = d.root.Remove(name) // best effort: Sweep finds it
		return "", err
	}
	return name, nil
}

// Remove removes a file. A missing one is fs.ErrNotExist.
func (d *Dir) Remove(name string) error {
	if err := d.root.Remove(name); err != nil {
		return problem("remove "+d.Path(name), err)
	}
	return d.sync()
}

// Has reports whether something of that name is there, whatever it is.
func (d *Dir) Has(name string) (bool, error) {
	_, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, problem("look at "+d.Path(name), err)
	}
	return true, nil
}

// Names lists the files that end in suffix, sorted and without it.
func (d *Dir) Names(suffix string) ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, problem("list "+d.path, err)
	}
	defer f.Close()
	all, err := f.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, problem("list "+d.path, err)
	}
	var names []string
	for _, n := range all {
		if base, ok := strings.CutSuffix(n, suffix); ok && !strings.HasPrefix(n, ".") {
			names = append(names, base)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Sweep removes what writers left who died in the middle.
func (d *Dir) Sweep() {
	f, err := d.root.Open(".")
	if err != nil {
		return // the next one tries again
	}
	defer f.Close()
	all, _ := f.Readdirnames(maxNames)
	for _, n := range all {
		if !strings.HasPrefix(n, newMark) {
			continue
		}
		if info, err := d.root.Lstat(n); err == nil && time.Since(info.ModTime()) > stale {
			_ = d.root.Remove(n) // the next one tries again
		}
	}
}

// Lock takes the directory's lock, shared or alone, and waits for it as long as ctx allows. It ends with the process.
func (d *Dir) Lock(ctx context.Context, alone bool) (unlock func(), err error) {
	f, _, err := d.open(lockFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err = lock.Wait(ctx, f, alone); err == nil {
		return func() { f.Close() }, nil
	}
	f.Close()
	if errors.Is(err, lock.ErrHeld) {
		return nil, rung.Errorf(rung.KindTimeout, "%s is locked by another process", d.path)
	}
	return nil, problem("lock "+d.path, err)
}

func (d *Dir) sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return problem("sync "+d.path, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return problem("sync "+d.path, err)
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// problem names what failed, with the kind and the remedy where the cause tells.
func problem(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case rung.KindOf(err) != rung.KindInternal:
		return err
	case errors.Is(err, fs.ErrNotExist):
		return rung.Errorf(rung.KindNotFound, "%s: %w", what, err)
	case errors.Is(err, fs.ErrExist):
		return rung.Errorf(rung.KindExists, "%s: %w", what, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return rung.Errorf(rung.KindExhausted, "%s: %w", what, err).WithHint("free disk space or set RUNG_STATE_DIR to another place")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return rung.Errorf(rung.KindUnavailable, "%s: %w", what, err).WithHint("set RUNG_STATE_DIR to a directory you may write to")
	}
	return rung.Errorf(rung.KindInternal, "%s: %w", what, err)
}
