//go:build linux

package fsys

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Info describes one name.
type Info struct {
	Path   string // absolute, as asked for
	Kind   Kind   // of what a link leads to; Broken for one that leads nowhere
	Link   string // where a link leads, absolute; "" for anything else
	Size   int64
	Mode   fs.FileMode
	UID    uint32
	GID    uint32
	Change time.Time // of the contents
}

// Kind is what a name is.
type Kind int

// The kinds. Special is a device, pipe or socket.
const (
	Broken Kind = iota
	File
	Dir
	Special
)

// Open opens a regular file for reading. Anything else is refused after it was opened in a way that has no effect.
func (t *Tree) Open(path string, nolinks bool) (*os.File, Info, error) {
	p, err := t.at(path, how{follow: true, nolinks: nolinks})
	if err != nil {
		return nil, Info{}, wrap("open", path, err)
	}
	defer p.close()
	fd, err := unix.Openat(p.dir, p.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, Info{}, wrap("open", path, err)
	}
	return regular(fd, path)
}

// regular turns a descriptor into a file if that is what it is.
func regular(fd int, path string) (*os.File, Info, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	info := describe(path, &st)
	switch {
	case err != nil:
	case info.Kind == Dir:
		err = unix.EISDIR
	case info.Kind != File:
		err = fmt.Errorf("%w: not a regular file", ErrInvalid)
	}
	if err != nil {
		unix.Close(fd)
		return nil, Info{}, wrap("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), info, nil
}

// Create opens a regular file for writing from its start, makes it and its directories where they are missing, and empties
// it. Mode is for the permission bits, also of a file that exists; 0 leaves them (0644 for a new one).
func (t *Tree) Create(path string, mode fs.FileMode) (*os.File, Info, error) {
	p, err := t.at(path, how{follow: true, parents: true})
	if err != nil {
		return nil, Info{}, wrap("create", path, err)
	}
	defer p.close()
	perm := uint32(mode.Perm())
	if mode == 0 {
		perm = 0o644
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY
	fd, err := unix.Openat(p.dir, p.name, flags, perm)
	if err != nil {
		return nil, Info{}, wrap("create", path, err)
	}
	f, info, err := regular(fd, path)
	if err != nil {
		return nil, info, err
	}
	if err = refuseProc(fd); err == nil {
		err = unix.Ftruncate(fd, 0)
	}
	if err == nil && mode != 0 {
		err = unix.Fchmod(fd, perm)
	}
	if err != nil {
		f.Close()
		return nil, info, wrap("create", path, err)
	}
	return f, info, nil
}

// refuseProc keeps writes away from /proc: a thread may do there to its own program what the user it acts for may not.
func refuseProc(fd int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if st.Type == unix.PROC_SUPER_MAGIC {
		return unix.EPERM
	}
	return nil
}

// Stat describes a name. A link is described itself, but for its kind.
func (t *Tree) Stat(path string, nolinks bool) (Info, error) {
	p, err := t.at(path, how{nolinks: nolinks})
	if err != nil {
		return Info{}, wrap("stat", path, err)
	}
	defer p.close()
	info, err := t.lstat(p, path)
	if err != nil {
		return Info{}, wrap("stat", path, err)
	}
	return info, nil
}

func (t *Tree) lstat(p *place, path string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, err
	}
	info := describe(path, &st)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		info.Kind, info.Link = t.target(p.real)
	}
	return info, nil
}

// target says where a link leads and what is there.
func (t *Tree) target(path string) (Kind, string) {
	p, err := t.at(path, how{follow: true})
	if err != nil {
		return Broken, path
	}
	defer p.close()
	var st unix.Stat_t
	if err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Broken, p.real
	}
	return describe("", &st).Kind, p.real
}

func describe(path string, st *unix.Stat_t) Info {
	info := Info{
		Path: path, Size: st.Size, UID: st.Uid, GID: st.Gid, Change: time.Unix(st.Mtim.Unix()),
		Mode: fs.FileMode(st.Mode & 0o777), Kind: Special,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Kind = File
	case unix.S_IFDIR:
		info.Kind, info.Mode = Dir, info.Mode|fs.ModeDir
	case unix.S_IFLNK:
		info.Kind, info.Mode = Broken, info.Mode|fs.ModeSymlink
	case unix.S_IFIFO:
		info.Mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		info.Mode |= fs.ModeSocket
	case unix.S_IFBLK:
		info.Mode |= fs.ModeDevice
	case unix.S_IFCHR:
		info.Mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for bit, mode := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if st.Mode&bit != 0 {
			info.Mode |= mode
		}
	}
	return info
}

// Mkdir makes a directory and its parents. It is EEXIST when there is one and ErrInvalid when there is something else.
func (t *Tree) Mkdir(path string) (Info, error) {
	p, err := t.at(path, how{follow: true, parents: true})
	if err != nil {
		return Info{}, wrap("mkdir", path, err)
	}
	defer p.close()
	if p.name == "." {
		return Info{}, wrap("mkdir", path, unix.EEXIST)
	}
	err = unix.Mkdirat(p.dir, p.name, 0o755)
	info, e := t.lstat(p, path)
	switch {
	case err == unix.EEXIST && e == nil && info.Kind != Dir:
		err = fmt.Errorf("%w: not a directory", ErrInvalid)
	case err == nil:
		err = e
	}
	if err != nil {
		return Info{}, wrap("mkdir", path, err)
	}
	return info, nil
}

// Move renames, within one file system, making the destination's parents.
func (t *Tree) Move(from, to string) (Info, error) {
	src, err := t.at(from, how{})
	if err != nil {
		return Info{}, wrap("move", from, err)
	}
	defer src.close()
	if _, err := t.lstat(src, from); err != nil { // before anything is made at the destination
		return Info{}, wrap("move", from, err)
	}
	dst, err := t.at(to, how{parents: true})
	if err != nil {
		return Info{}, wrap("move", to, err)
	}
	defer dst.close()
	if src.name == "." || dst.name == "." {
		return Info{}, wrap("move", from, ErrInvalid)
	}
	if err := unix.Renameat(src.dir, src.name, dst.dir, dst.name); err != nil {
		return Info{}, wrap("move", from, err)
	}
	info, err := t.lstat(dst, to)
	return info, wrap("move", to, err)
}

// maxDepth bounds recursion; a descriptor is open per level.
const maxDepth = 256

// List describes what is in a directory, depth levels down, depth first and by name. The directory itself may be a link,
// links below it are not followed. More than limit entries is ENOBUFS.
func (t *Tree) List(dir string, depth, limit int, nolinks bool) ([]Info, error) {
	p, err := t.at(dir, how{follow: true, nolinks: nolinks})
	if err != nil {
		return nil, wrap("list", dir, err)
	}
	defer p.close()
	l := &lister{tree: t, limit: limit}
	if err := l.list(p.dir, p.name, dir, p.real, min(max(depth, 1), maxDepth)); err != nil {
		return nil, wrap("list", dir, err)
	}
	return l.found, nil
}

type lister struct {
	tree  *Tree
	limit int
	found []Info
}

func (l *lister) list(at int, name, shown, real string, depth int) error {
	f, names, err := readDir(at, name, l.limit-len(l.found))
	if err != nil {
		return err
	}
	defer f.Close()
	slices.Sort(names)
	for _, n := range names {
		p := &place{dir: int(f.Fd()), name: n, real: path.Join(real, n)}
		info, err := l.tree.lstat(p, path.Join(shown, n))
		if err == unix.ENOENT {
			continue // gone meanwhile
		}
		if err != nil {
			return err
		}
		if l.found = append(l.found, info); len(l.found) > l.limit {
			return unix.ENOBUFS
		}
		if depth > 1 && info.Mode.IsDir() {
			err := l.list(p.dir, n, info.Path, p.real, depth-1)
			if err != nil && err != unix.EACCES && err != unix.ENOENT && err != unix.ENOTDIR {
				return err
			}
		}
	}
	return nil
}

// readDir opens a directory, not through a link, and reads its names, at most limit and one.
func readDir(at int, name string, limit int) (*os.File, []string, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	var names []string
	for len(names) <= limit {
		part, err := f.Readdirnames(1024)
		names = append(names, part...)
		if err != nil {
			return f, names, nil // io.EOF, or a directory that was removed: what was read counts
		}
	}
	f.Close()
	return nil, nil, unix.ENOBUFS
}

// Remove removes a tree. A name that is not there is no error.
func (t *Tree) Remove(path string) error {
	p, err := t.at(path, how{})
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return wrap("remove", path, err)
	}
	defer p.close()
	if p.name == "." {
		return wrap("remove", path, ErrInvalid)
	}
	return wrap("remove", path, remove(p.dir, p.name, 0))
}

func remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM { // EPERM is what some file systems say of a directory
		return err
	}
	if e := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); e == nil || e == unix.ENOENT {
		return nil
	} else if e != unix.ENOTEMPTY && e != unix.EEXIST {
		return e
	}
	if depth == maxDepth {
		return fmt.Errorf("%w: deeper than %d directories", ErrInvalid, maxDepth)
	}
	for { // by portions, so that memory does not grow with the directory
		left, err := removeSome(dir, name, depth)
		if err != nil || !left {
			return err
		}
	}
}

// removeSome empties a directory of up to a portion of names, then tries to remove it.
func removeSome(dir int, name string, depth int) (left bool, err error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, _ := f.Readdirnames(1024) // an error shows as the directory's not being empty
	for _, n := range names {
		if err := remove(fd, n, depth+1); err != nil {
			return false, err
		}
	}
	switch err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); {
	case err == nil || err == unix.ENOENT:
		return false, nil
	case (err == unix.ENOTEMPTY || err == unix.EEXIST) && len(names) > 0:
		return true, nil
	default:
		return false, err
	}
}

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
