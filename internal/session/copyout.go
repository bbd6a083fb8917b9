package session

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
)

// Bounds of what comes out. The guest is hostile by now: every name, size and type it tells is a claim.
const (
	maxOutFiles = 100_000
	maxOutDepth = 64
	outTimeout  = 10 * time.Minute
)

// copyOut copies the declared outputs. Each arrives beside its destination and is renamed into place, so that a refused or
// broken output leaves the old file.
func (r *run) copyOut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, outTimeout)
	defer cancel()
	budget := &budget{bytes: r.task.Limits.Disk + r.task.Limits.Memory, files: maxOutFiles}
	var errs []error
	for _, o := range r.task.Outputs {
		if err := r.copyOne(ctx, o, budget); err != nil {
			hint := rung.HintOf(err)
			if strings.Contains(err.Error(), syscall.ELOOP.Error()) {
				hint = "links are never followed out of a sandbox: name what the link leads to"
			}
			errs = append(errs, rung.Errorf(kindOf(err), "copy out %q: %w", o.Inside, err).WithHint(hint))
		}
	}
	return errors.Join(errs...)
}

// budget is what all outputs of a run may use together on the host.
type budget struct {
	bytes int64
	files int
}

func (b *budget) take() error {
	if b.files--; b.files < 0 {
		return rung.Errorf(rung.KindExhausted, "more than %d files", maxOutFiles)
	}
	return nil
}

func (r *run) copyOne(ctx context.Context, o Output, b *budget) error {
	host := o.Host
	if host == "" {
		host = path.Base(path.Clean(o.Inside))
	}
	abs, err := filepath.Abs(host)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "%w", err)
	}
	if strings.HasSuffix(host, "/") {
		if st, err := os.Stat(abs); err != nil || !st.IsDir() {
			return rung.Errorf(rung.KindInvalid, "%s is not a directory", host)
		}
		abs = filepath.Join(abs, path.Base(path.Clean(o.Inside)))
	}
	dir, name := filepath.Split(abs)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "%w", err)
	}
	defer root.Close()
	e, err := r.files.Strict().Stat(ctx, r.within(o.Inside))
	if err != nil {
		return err
	}
	if e.Dir && !e.Link {
		return r.copyTree(ctx, root, r.within(o.Inside), name, b)
	}
	return r.copyFile(ctx, root, r.within(o.Inside), name, uint32(e.Mode), b)
}

// copyTree adds to a directory that exists, file by file; one that does not appears complete or not at all.
func (r *run) copyTree(ctx context.Context, root *os.Root, inside, name string, b *budget) error {
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return r.copyDir(ctx, root, inside, name, b, 0)
	}
	part := ".rung-" + r.task.ID + ".part.d"
	if err := r.copyDir(ctx, root, inside, part, b, 0); err != nil {
		return errors.Join(err, root.RemoveAll(part))
	}
	return root.Rename(part, name)
}

// copyDir makes the directory anew or adds to an existing one; it never goes through a link on either side.
func (r *run) copyDir(ctx context.Context, root *os.Root, inside, name string, b *budget, depth int) error {
	if depth > maxOutDepth {
		return rung.Errorf(rung.KindExhausted, "directories nested deeper than %d", maxOutDepth)
	}
	if err := b.take(); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return rung.Errorf(rung.KindInvalid, "%w", err)
	}
	if st, err := root.Lstat(name); err != nil || !st.IsDir() {
		return rung.Errorf(rung.KindConflict, "%s exists and is not a directory", name)
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "%w", err)
	}
	defer sub.Close()
	entries, err := r.files.Strict().List(ctx, inside, 1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := plainName(e.Name); err != nil {
			return err
		}
		at := path.Join(inside, e.Name)
		if e.Dir && !e.Link {
			err = r.copyDir(ctx, sub, at, e.Name, b, depth+1)
		} else {
			err = r.copyFile(ctx, sub, at, e.Name, uint32(e.Mode), b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plainName refuses a name that is more than one component of a path.
func plainName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
		return rung.Errorf(rung.KindInvalid, "the guest names a file %.200q", name)
	}
	return nil
}

func (r *run) copyFile(ctx context.Context, root *os.Root, inside, name string, mode uint32, b *budget) (err error) {
	if err := errors.Join(plainName(name), b.take()); err != nil {
		return err
	}
	from, err := r.files.Strict().Open(ctx, inside)
	if err != nil {
		return err
	}
	defer from.Close()
	tmp := ".rung-" + r.task.ID + ".part"
	to, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "%w", err)
	}
	defer func() {
		if err != nil {
			_ = root.Remove(tmp) // the part of a file nobody will use
		}
	}()
	n, err := io.Copy(to, io.LimitReader(from, b.bytes+1))
	// Execute bits come along; set-id and sticky bits never.
	err = errors.Join(err, to.Chmod(fs.FileMode(mode&0o111|0o644)), to.Close())
	if b.bytes -= n; b.bytes < 0 && err == nil {
		err = rung.Errorf(rung.KindExhausted, "outputs are larger than the sandbox's disk and memory together")
	}
	if err != nil {
		return rung.Errorf(rung.KindOf(err), "%w", err)
	}
	if st, err := root.Lstat(name); err == nil && st.IsDir() {
		_ = root.Remove(tmp)
		return rung.Errorf(rung.KindConflict, "%s exists and is a directory", name)
	}
	return root.Rename(tmp, name)
}
