package mount

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// FS mounts a file system of that type at dst, which must exist and not be a symbolic link.
func FS(fstype, dst string, o FSOptions) error {
	made, err := NewFS(fstype, o)
	if errors.Is(err, unix.ENOSYS) {
		d, err := Open(dst)
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }()
		return mountOld(fstype, d, o)
	}
	if err != nil {
		return refused("mount "+fstype+" at", dst, "", err)
	}
	defer func() { _ = made.Close() }()
	return Attach(made, dst)
}

// NewFS makes a file system and mounts it nowhere: it exists as long as the file is open, can be passed to another
// process, and is put into that one's mount namespace by Attach. Its flags are verified here.
func NewFS(fstype string, o FSOptions) (*os.File, error) {
	fd, err := newFS(fstype, o)
	if err != nil {
		return nil, rung.Errorf(kindOf(err), "make %s: %w", fstype, err)
	}
	if err := check(fd, fstype, o.bind()); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), fstype), nil
}

// Attach mounts what NewFS made at dst, which must exist and not be a symbolic link. A mount is attached once.
func Attach(made *os.File, dst string) error {
	d, err := Open(dst)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := attach(int(made.Fd()), d); err != nil {
		return refused("mount "+made.Name()+" at", dst, "move_mount: ", err)
	}
	return nil
}

func (o FSOptions) bind() BindOptions {
	return BindOptions{ReadOnly: o.ReadOnly, Nosuid: o.Nosuid, Nodev: o.Nodev, Noexec: o.Noexec}
}

// newFS makes a detached mount of a new file system instance.
func newFS(fstype string, o FSOptions) (int, error) {
	ctx, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen: %w", err)
	}
	defer func() { _ = unix.Close(ctx) }()
	if err := configure(ctx, o); err != nil {
		return -1, err
	}
	attrs := int(o.bind().attrs())
	if o.Noatime {
		attrs |= unix.MOUNT_ATTR_NOATIME
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("fsmount: %w", explain(ctx, err))
	}
	return fd, nil
}

func configure(ctx int, o FSOptions) error {
	if o.Source != "" {
		if err := unix.FsconfigSetString(ctx, "source", o.Source); err != nil {
			return fmt.Errorf("fsconfig source=%s: %w", o.Source, explain(ctx, err))
		}
	}
	for _, p := range o.Params {
		set := func() error { return unix.FsconfigSetString(ctx, p.Key, p.Value) }
		if p.Value == "" {
			set = func() error { return unix.FsconfigSetFlag(ctx, p.Key) }
		}
		if err := set(); err != nil {
			return fmt.Errorf("fsconfig %s=%s: %w", p.Key, p.Value, explain(ctx, err))
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("fsconfig create: %w", explain(ctx, err))
	}
	return nil
}

// explain adds the kernel's own words, which wait in the context, to its error number.
func explain(ctx int, err error) error {
	var words []string
	var b [512]byte
	for range 8 {
		n, readErr := unix.Read(ctx, b[:])
		if readErr != nil || n <= 0 {
			break
		}
		words = append(words, strings.TrimSpace(string(b[:n])))
	}
	if len(words) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(words, "; "))
}

// mountOld is FS for kernels without the new interface.
func mountOld(fstype string, dst *os.File, o FSOptions) error {
	flags := uintptr(o.bind().attrs())
	if o.Noatime {
		flags |= unix.MS_NOATIME
	}
	var data []string
	for _, p := range o.Params {
		if strings.Contains(p.Value, ",") {
			return rung.Errorf(rung.KindUnavailable, "mount %s: a comma in %s=%s", fstype, p.Key, p.Value).WithHint("use a kernel from 5.2 on")
		}
		data = append(data, strings.TrimSuffix(p.Key+"="+p.Value, "="))
	}
	if err := unix.Mount(o.Source, procPath(dst), fstype, flags, strings.Join(data, ",")); err != nil {
		return refused("mount "+fstype+" at", dst.Name(), "mount: ", err)
	}
	top, err := Open(dst.Name())
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	return verify(int(top.Fd()), dst.Name(), o.bind())
}

// Tmpfs mounts an empty tmpfs, nosuid and nodev. What is written to it counts as memory of the writer's cgroup and ends
// in an out-of-memory kill, not ENOSPC, when that is smaller than Size.
func Tmpfs(dst string, o TmpfsOptions) error {
	if o.Size <= 0 || o.Inodes <= 0 {
		return rung.Errorf(rung.KindInvalid, "tmpfs at %s: size %d and inodes %d must be positive", dst, o.Size, o.Inodes)
	}
	if o.Mode == 0 {
		o.Mode = 0o755
	}
	return FS("tmpfs", dst, FSOptions{Source: "rung", Nosuid: true, Nodev: true, Noexec: o.Noexec, Params: []Param{
		{"size", strconv.FormatInt(o.Size, 10)},
		{"nr_inodes", strconv.FormatInt(o.Inodes, 10)},
		{"mode", strconv.FormatUint(uint64(o.Mode), 8)},
		{"uid", strconv.FormatUint(uint64(o.UID), 10)},
		{"gid", strconv.FormatUint(uint64(o.GID), 10)},
	}})
}

// Proc mounts the proc of the caller's PID namespace, nosuid, nodev and noexec, with parameters such as hidepid.
func Proc(dst string, params ...Param) error {
	return FS("proc", dst, FSOptions{Source: "proc", Nosuid: true, Nodev: true, Noexec: true, Params: params})
}

// Overlay mounts lower (topmost first) with what is written going to upper, nosuid and nodev; with upper empty it is
// read-only. Layers are named to the kernel by descriptor, so their names may hold any byte, and a layer that is an
// idmapped mount stays one. It needs /proc.
func Overlay(lower []string, upper, work, dst string, o OverlayOptions) error {
	var held []*os.File
	defer func() {
		for _, f := range held {
			_ = f.Close()
		}
	}()
	hold := func(path string) (string, error) {
		f, err := Open(path)
		if err != nil {
			return "", err
		}
		held = append(held, f)
		return procPath(f), nil
	}
	var layers []string
	for _, l := range lower {
		p, err := hold(l)
		if err != nil {
			return err
		}
		layers = append(layers, p)
	}
	fo := FSOptions{Source: "rung", Nosuid: true, Nodev: true, ReadOnly: upper == "", Params: []Param{{"lowerdir", strings.Join(layers, ":")}}}
	if upper != "" {
		u, errU := hold(upper)
		w, errW := hold(work)
		if err := errors.Join(errU, errW); err != nil {
			return err
		}
		fo.Params = append(fo.Params, Param{"upperdir", u}, Param{"workdir", w})
		if o.Volatile {
			fo.Params = append(fo.Params, Param{"volatile", ""})
		}
	}
	if o.UserXattr {
		fo.Params = append(fo.Params, Param{"userxattr", ""})
	}
	return FS("overlay", dst, fo)
}

// Private cuts path and everything mounted below it off from other mount namespaces, both ways.
func Private(path string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Propagation: unix.MS_PRIVATE})
	if err == unix.ENOSYS {
		err = unix.Mount("", path, "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		return refused("make private", path, "", err)
	}
	return nil
}

// Detach takes the mount at path out of the tree now; it ends when its last user does. A path where nothing is mounted is
// detached already.
func Detach(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || err == unix.EINVAL || err == unix.ENOENT {
		return nil
	}
	return refused("unmount", path, "", err)
}
