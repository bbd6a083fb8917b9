package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/mount"
)

// Disk is a mounted disk.
type Disk struct {
	Dir    string
	Device string
	Size   int64
}

// Maker makes disks whose images and blanks are on the file system of StateDir.
type Maker struct {
	StateDir string
	Mke2fs   string // path of mke2fs, "" to look in the usual places
}

// Mount makes a disk of that size and mounts it at dir, nosuid, nodev and noatime, in the caller's mount namespace. The
// root directory of the disk belongs to the caller and holds lost+found. KindUnavailable where this host cannot (not
// root, no loop devices, no mke2fs), KindExhausted where it is full. On error nothing is left behind.
func (m Maker) Mount(ctx context.Context, dir string, size int64, id string) (*Disk, error) {
	loop, err := m.loop(ctx, size, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = loop.Close() }() // from here on the mount keeps it
	if err := mount.FS("ext4", dir, options(loop)); err != nil {
		return nil, wrap(err, "disk of %s", id)
	}
	return &Disk{Dir: dir, Device: loop.Name(), Size: size}, nil
}

// Detached makes the same disk and mounts it nowhere; mount.Attach does, in this process or in one that was passed the
// file. So the disk can be made while the process that will use it is still starting. It needs Linux 5.2.
func (m Maker) Detached(ctx context.Context, size int64, id string) (*os.File, error) {
	loop, err := m.loop(ctx, size, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = loop.Close() }()
	made, err := mount.NewFS("ext4", options(loop))
	if err != nil {
		return nil, wrap(err, "disk of %s", id)
	}
	return made, nil
}

// options are those of a disk nobody will ever see again: no barriers, no background work to tidy it up for later, and no
// extents that become valid only after their data is written, which on a full disk end in warnings in the host's log.
func options(loop *os.File) mount.FSOptions {
	return mount.FSOptions{Source: loop.Name(), Nosuid: true, Nodev: true, Noatime: true, Params: []mount.Param{
		{Key: "barrier", Value: "0"}, {Key: "noinit_itable"}, {Key: "no_prefetch_block_bitmaps"}, {Key: "dioread_lock"},
	}}
}

// loop is a loop device that carries a new blank image.
func (m Maker) loop(ctx context.Context, size int64, id string) (*os.File, error) {
	if err := errors.Join(rung.ValidName(id), checkSize(size)); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, rung.Errorf(rung.KindUnavailable, "disk: only root can attach a loop device").
			WithHint("run as root for a disk with a quota of its own; an ordinary user gets a tmpfs inside the memory limit")
	}
	loop, err := m.fresh(ctx, size, id)
	if err != nil {
		return nil, wrap(err, "disk of %s", id)
	}
	return loop, nil
}

// fresh attaches an image that is one hole and copies the blank one through the device, not into the file: attaching
// flushes the file to the host's disk, and what is written through the device waits where the mount will look for it.
func (m Maker) fresh(ctx context.Context, size int64, id string) (*os.File, error) {
	blank, err := m.blank(ctx, size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = blank.Close() }()
	if err := m.room(blank, size); err != nil {
		return nil, err
	}
	image, err := m.empty(size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = image.Close() }()
	loop, err := attach(image, id)
	if err != nil {
		return nil, err
	}
	if err := copySparse(loop, blank, size); err != nil {
		_ = loop.Close()
		return nil, err
	}
	return loop, nil
}

func checkSize(size int64) error {
	if size < minSize || size > rung.MaxDisk {
		return rung.Errorf(rung.KindInvalid, "disk: %s is not between %s and %s", rung.FormatBytes(size), rung.FormatBytes(minSize), rung.FormatBytes(rung.MaxDisk))
	}
	return nil
}

// Unmount takes the disk out of the caller's mount namespace; it ends with its last mount. Idempotent.
func (d *Disk) Unmount() error {
	err := unix.Unmount(d.Dir, unix.UMOUNT_NOFOLLOW)
	if err == unix.EBUSY {
		return mount.Detach(d.Dir)
	}
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return wrap(err, "unmount %s", d.Dir)
	}
	return nil
}

// Used is the number of bytes taken, metadata not counted.
func (d *Disk) Used() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Dir, &st); err != nil {
		return 0, wrap(err, "disk at %s", d.Dir)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

// wrap words an error and gives it the kind the caller decides by.
func wrap(err error, format string, args ...any) error {
	kind := rung.KindOf(err)
	if kind == rung.KindInternal {
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			kind = rung.KindExhausted
		case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOSYS):
			kind = rung.KindUnavailable
		}
	}
	return rung.Errorf(kind, format+": %w", append(args, err)...).WithHint(rung.HintOf(err))
}
