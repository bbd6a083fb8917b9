package session

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/rung-dev/rung"
)

// copyIn copies one input. A directory is walked below os.Root: links inside it that stay inside are followed as files,
// links that leave it are refused, and nothing is ever mounted.
func (r *run) copyIn(ctx context.Context, in Input) error {
	if in.Host == "" {
		return r.put(ctx, in.Inside, bytes.NewReader(in.Data), in.Mode)
	}
	st, err := os.Stat(in.Host)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in: %w", err)
	}
	inside := in.Inside
	if inside == "" {
		abs, err := filepath.Abs(in.Host)
		if err != nil {
			return rung.Errorf(rung.KindInvalid, "copy in %q: %w", in.Host, err)
		}
		inside = filepath.Base(abs)
	}
	if !st.IsDir() {
		return r.copyFileIn(ctx, in.Host, inside)
	}
	root, err := os.OpenRoot(in.Host)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in: %w", err)
	}
	defer root.Close()
	return r.copyDirIn(ctx, root, ".", inside)
}

// copyDirIn walks by hand: io/fs knows only names that are UTF-8.
func (r *run) copyDirIn(ctx context.Context, root *os.Root, name, inside string) error {
	if _, err := r.files.Mkdir(ctx, r.within(inside)); err != nil && rung.KindOf(err) != rung.KindExists {
		return rung.Errorf(kindOf(err), "copy in %q: %w", name, err)
	}
	dir, err := root.Open(name)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in %q: %w", name, err)
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in %q: %w", name, err)
	}
	for _, e := range entries {
		from, to := path.Join(name, e.Name()), path.Join(inside, e.Name())
		if e.IsDir() {
			err = r.copyDirIn(ctx, root, from, to)
		} else {
			err = r.copyEntry(ctx, root, from, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) copyEntry(ctx context.Context, root *os.Root, name, inside string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in %q: %w", name, err).
			WithHint("links out of the directory are not followed; copy what they point to as an input of its own")
	}
	defer f.Close()
	return r.send(ctx, f, name, inside)
}

func (r *run) copyFileIn(ctx context.Context, host, inside string) error {
	f, err := os.OpenFile(host, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in: %w", err)
	}
	defer f.Close()
	return r.send(ctx, f, host, inside)
}

// send copies an open file; what is neither file nor directory is refused, so that no fifo can hang a run.
func (r *run) send(ctx context.Context, f *os.File, name, inside string) error {
	st, err := f.Stat()
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "copy in %q: %w", name, err)
	}
	if !st.Mode().IsRegular() {
		return rung.Errorf(rung.KindInvalid, "copy in %q: neither a file nor a directory", name)
	}
	if st.Size() > r.task.Limits.Disk {
		return rung.Errorf(rung.KindExhausted, "copy in %q: %s is more than the disk of %s", name,
			rung.FormatBytes(st.Size()), rung.FormatBytes(r.task.Limits.Disk)).WithHint("raise --disk")
	}
	return r.put(ctx, inside, io.LimitReader(f, st.Size()), uint32(st.Mode().Perm()))
}

func (r *run) put(ctx context.Context, inside string, content io.Reader, mode uint32) error {
	if err := r.files.Create(ctx, r.within(inside), content, fs.FileMode(mode)); err != nil {
		return rung.Errorf(kindOf(err), "copy in to %q: %w", inside, err)
	}
	return nil
}

// within makes a path inside absolute: relative ones start in the work directory.
func (r *run) within(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	if r.task.Workdir != "" {
		return path.Join(r.task.Workdir, p)
	}
	return path.Join("/work", p)
}
