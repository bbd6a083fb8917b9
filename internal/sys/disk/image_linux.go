package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// room refuses when the file system of f could not take one more disk.
func (m Maker) room(f *os.File, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < needed(size) {
		return rung.Errorf(rung.KindExhausted, "%s has %s free, and a disk of %s needs %s", m.StateDir, rung.FormatBytes(free), rung.FormatBytes(size), rung.FormatBytes(needed(size))).
			WithHint("free some space, or set RUNG_STATE_DIR to a directory on a larger disk")
	}
	return nil
}

// empty makes a file of that size without a name that is one hole.
func (m Maker) empty(size int64) (*os.File, error) {
	f, err := nameless(m.StateDir)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make a file of %s: %w", rung.FormatBytes(size), err)
	}
	return f, nil
}

// nameless opens a new file that has no name, so that it goes with its last user whatever happens.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "(nameless)")), nil
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR { // file systems without it say one, kernels without it the other
		return nil, &os.PathError{Op: "make a file in", Path: dir, Err: err}
	}
	f, err := os.CreateTemp(dir, ".image-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// copySparse copies the parts of src that hold data, a few pages in a few pieces.
func copySparse(dst, src *os.File, size int64) error {
	s := int(src.Fd())
	for at := int64(0); at < size; {
		from, err := unix.Seek(s, at, unix.SEEK_DATA)
		if err == unix.ENXIO { // only a hole is left
			return nil
		}
		to := size
		if err == nil {
			to, err = unix.Seek(s, from, unix.SEEK_HOLE)
		}
		to = min(to, size)
		if err == nil {
			_, err = io.CopyBuffer(io.NewOffsetWriter(dst, from), io.NewSectionReader(src, from, to-from), make([]byte, min(to-from, 256<<10)))
		}
		if err != nil {
			return fmt.Errorf("copy a blank image: %w", err)
		}
		at = to
	}
	return nil
}

// blank opens the blank image of that size, making it on first use. The name tells the layout version too.
func (m Maker) blank(ctx context.Context, size int64) (*os.File, error) {
	name := filepath.Join(m.StateDir, "blank", fmt.Sprintf("%d.v1.ext4", size))
	for range 3 {
		f, err := os.Open(name)
		if err == nil {
			if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Size() == size {
				return f, nil
			}
			_ = f.Close()
			_ = os.Remove(name) // not what was made here
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := m.format(ctx, name, size); err != nil {
			return nil, err
		}
	}
	return nil, rung.Errorf(rung.KindConflict, "%s keeps changing", name)
}

// format makes a blank image. It gets its name when it is complete, so that nobody ever sees half of one.
func (m Maker) format(ctx context.Context, name string, size int64) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	prune(dir)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	f, finish := os.NewFile(uintptr(fd), name), link
	if err != nil {
		if f, err = os.CreateTemp(dir, ".new-*"); err != nil {
			return err
		}
		finish = rename
		defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("make a file of %s: %w", rung.FormatBytes(size), err)
	}
	if err := m.mke2fs(ctx, f, size); err != nil {
		return err
	}
	return finish(f, name)
}

func link(f *os.File, name string) error {
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	if err == unix.EEXIST { // somebody else was faster
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

func rename(f *os.File, name string) error { return os.Rename(f.Name(), name) }

// mke2fs formats f without what only costs time or room in a disk of one life: journal, checksums, resize room, backups.
func (m Maker) mke2fs(ctx context.Context, f *os.File, size int64) error {
	path, err := m.find()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-q", "-F", "-t", "ext4", "-b", fmt.Sprint(blockSize), "-I", "256", "-m", "0", "-N", fmt.Sprint(inodes(size)),
		"-O", "none,extent,filetype,flex_bg,sparse_super2,large_file,huge_file,dir_index,ext_attr,uninit_bg,extra_isize,dir_nlink",
		"-E", "lazy_itable_init=1,num_backup_sb=0,nodiscard,root_owner=0:0", "/proc/self/fd/3", fmt.Sprint(size/blockSize))
	cmd.ExtraFiles, cmd.Env, cmd.WaitDelay = []*os.File{f}, []string{"MKE2FS_CONFIG=/dev/null", "MKE2FS_SYNC=0", "LC_ALL=C"}, time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return rung.Errorf(rung.KindUnavailable, "format a blank disk: %s: %w: %s", path, err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (m Maker) find() (string, error) {
	for _, p := range []string{m.Mke2fs, "/usr/sbin/mke2fs", "/sbin/mke2fs", "/usr/bin/mke2fs", "/usr/local/sbin/mke2fs"} {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", rung.Errorf(rung.KindUnavailable, "mke2fs is not installed").WithHint("install the package e2fsprogs")
}

// prune makes room for one more size: the oldest go. Errors only mean that a file stays.
func prune(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < maxBlanks {
		return
	}
	made := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return made(a).Compare(made(b)) })
	for _, e := range entries[:len(entries)-maxBlanks+1] {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}
