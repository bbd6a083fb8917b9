package mount

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// BindRO shows src at dst read-only, nosuid and nodev, without what is mounted below src.
func BindRO(src, dst string, o BindOptions) error {
	o.ReadOnly, o.Nosuid, o.Nodev = true, true, true
	return Bind(src, dst, o)
}

// Bind shows src at dst with the flags of o, without what is mounted below src. Both must exist and be of one type,
// directory or file; neither may be a symbolic link.
func Bind(src, dst string, o BindOptions) error {
	s, err := Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	d, err := Open(dst)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return BindAt(s, d, o)
}

// Open opens path for use as the source or target of a mount (O_PATH), refusing a symbolic link.
func Open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refused("open", path, "", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		_ = unix.Close(fd)
		if err == nil {
			return nil, rung.Errorf(rung.KindInvalid, "mount %s: it is a symbolic link", path)
		}
		return nil, refused("stat", path, "", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// BindAt is Bind by descriptors from Open (or any directory descriptor): what is mounted is what was opened, whatever
// the paths mean by now.
func BindAt(src, dst *os.File, o BindOptions) error {
	tree, err := clone(src, o)
	if errors.Is(err, unix.ENOSYS) && o.Idmap == nil {
		return bindOld(src, dst, o)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	if err := attach(tree, dst); err != nil {
		return refused("bind "+src.Name()+" at", dst.Name(), "move_mount: ", err)
	}
	return verify(tree, dst.Name(), o)
}

// clone makes a detached mount of src with its final flags.
func clone(src *os.File, o BindOptions) (int, error) {
	fd := int(src.Fd())
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err == unix.EINVAL {
		return -1, rung.Errorf(rung.KindUnavailable, "bind %s: open_tree: %w", src.Name(), err).
			WithHint("something is mounted below it that an unprivileged user namespace may not uncover; bind its parts instead")
	}
	if err != nil {
		return -1, refused("bind", src.Name(), "open_tree: ", err)
	}
	attr := unix.MountAttr{Attr_set: o.attrs(), Propagation: unix.MS_PRIVATE}
	if o.Idmap != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(o.Idmap.Fd())
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		_ = unix.Close(tree)
		return -1, refused("bind", src.Name(), "mount_setattr: ", err)
	}
	return tree, nil
}

func (o BindOptions) attrs() (a uint64) {
	for _, f := range []struct {
		on  bool
		bit uint64
	}{
		{o.ReadOnly, unix.MOUNT_ATTR_RDONLY},
		{o.Nosuid, unix.MOUNT_ATTR_NOSUID},
		{o.Nodev, unix.MOUNT_ATTR_NODEV},
		{o.Noexec, unix.MOUNT_ATTR_NOEXEC},
	} {
		if f.on {
			a |= f.bit
		}
	}
	return a
}

func attach(tree int, dst *os.File) error {
	return unix.MoveMount(tree, "", int(dst.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// bindOld is Bind for kernels without the new interface. A remount replaces all flags, and in a user namespace must not
// drop one the source has, so those are taken over.
func bindOld(src, dst *os.File, o BindOptions) error {
	from, to := procPath(src), procPath(dst)
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return refused("bind "+src.Name()+" at", dst.Name(), "mount: ", err)
	}
	// dst still means the directory below the mount; opening its path again means the mount itself.
	top, err := Open(dst.Name())
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	var st unix.Statfs_t
	err = unix.Fstatfs(int(top.Fd()), &st)
	flags := uintptr(st.Flags)&(unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC) | uintptr(o.attrs())
	if err == nil {
		err = unix.Mount("", procPath(top), "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
	}
	if err == nil {
		err = verify(int(top.Fd()), dst.Name(), o)
	}
	if err != nil {
		_ = unix.Unmount(dst.Name(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		return refused("bind "+src.Name()+" at", dst.Name(), "remount: ", err)
	}
	return nil
}

func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// verify checks the flags of what is mounted at name, and takes it away again when the kernel did not keep them.
func verify(fd int, name string, o BindOptions) error {
	err := check(fd, name, o)
	if err != nil {
		_ = unix.Unmount(name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	return err
}

// check compares flags: MOUNT_ATTR_, ST_ and MS_ agree on the bits used here.
func check(fd int, name string, o BindOptions) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return refused("verify mount", name, "statfs: ", err)
	}
	if want := o.attrs(); uint64(st.Flags)&want != want {
		return rung.Errorf(rung.KindUnverified, "mount %s: flags are %#x, lacking %#x", name, st.Flags, want&^uint64(st.Flags))
	}
	return nil
}

// IdmapSupported tells whether the file system of path can be shown with translated owners, nil if so. It makes and drops
// a detached mount, so it changes nothing.
func IdmapSupported(path string, userns *os.File) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	tree, err := clone(f, BindOptions{ReadOnly: true, Idmap: userns})
	if err == nil {
		_ = unix.Close(tree)
	}
	return err
}

// refused words a refusal of the kernel: what was tried, on what, and its answer.
func refused(what, name, call string, err error) error {
	if known, ok := errors.AsType[*rung.Error](err); ok {
		return known
	}
	return rung.Errorf(kindOf(err), "%s %s: %s%w", what, name, call, err)
}

func kindOf(err error) rung.Kind {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return rung.KindNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL):
		return rung.KindUnavailable
	case errors.Is(err, unix.ENOSPC): // the namespace holds its maximum of mounts
		return rung.KindExhausted
	}
	return rung.KindInternal
}
