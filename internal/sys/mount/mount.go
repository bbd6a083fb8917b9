// Package mount is a thin typed layer over the kernel's mount calls: by descriptor, never recursive, flags verified
// afterwards. The new mount interface (open_tree, mount_setattr, fsopen, move_mount) makes a mount complete before it is
// attached anywhere, so that there is no moment at which a bind is visible but not yet read-only; kernels without it
// (before 5.12) get mount(2), which needs two steps, in the private namespace of a holder where nobody watches.
//
// Nothing here follows a symbolic link in the last component of a path: sources and targets inside a template were
// written by others.
package mount

import "os"

// BindOptions are the flags of a bind mount. Idmap is a user namespace whose map the mount translates owners by.
type BindOptions struct {
	ReadOnly, Nosuid, Nodev, Noexec bool
	Idmap                           *os.File
}

// TmpfsOptions bound a tmpfs; Size and Inodes must be positive, since the kernel takes 0 for no limit.
type TmpfsOptions struct {
	Size, Inodes int64
	Mode         uint32 // of its root, 0 for 0755
	UID, GID     uint32 // of its root, as ids of the mounting user namespace
	Noexec       bool
}

// OverlayOptions are the choices an overlay leaves.
type OverlayOptions struct {
	UserXattr bool // keep overlay's own marks in user.* attributes: needed in an unprivileged user namespace
	Volatile  bool // skip every sync: for upper layers that are thrown away
}

// Param is one parameter of a file system; an empty Value makes it a flag.
type Param struct{ Key, Value string }

// FSOptions describe a file system to mount.
type FSOptions struct {
	Source                                   string // what mountinfo shows, and the device where there is one
	Params                                   []Param
	ReadOnly, Nosuid, Nodev, Noexec, Noatime bool
}
