package held

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/mount"
	"github.com/rung-dev/rung/internal/sys/userns"
)

// Build mounts the tree below the sandbox's directory and returns its root. It runs in the holder: all mounts are in its
// private mount namespace and end with it.
func (t *Tree) Build(w *holder.Workshop) (root string, err error) {
	root = Root(w.Dir, t.Rootless)
	if t.Rootless {
		if err := mount.Tmpfs(passable, mount.TmpfsOptions{Size: 64 << 10, Inodes: 8, Mode: 0o711}); err != nil {
			return "", err
		}
	}
	store := filepath.Join(w.Dir, "disk")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(store, 0o711)); err != nil {
		return "", rung.Errorf(rung.KindInternal, "sandbox tree: %w", err)
	}
	if err := t.mountAll(root, store, w); err != nil {
		return "", err
	}
	if err := t.mountOwn(root, store); err != nil {
		return "", err
	}
	if t.Devices {
		return root, t.mountDevices(root)
	}
	return root, nil
}

// mountAll mounts disk and template, whichever does not need the other first: the disk comes last.
func (t *Tree) mountAll(root, store string, w *holder.Workshop) error {
	if t.Writable {
		if err := t.mountStore(store, w); err != nil {
			return err // without a disk the layers would lie on the host's
		}
		return t.mountTemplate(root, store)
	}
	if err := t.mountTemplate(root, store); err != nil {
		return err
	}
	return t.mountStore(store, w)
}

// mountStore mounts what the sandbox may write to: a disk of exactly that size, or memory where no disk can be had.
func (t *Tree) mountStore(store string, w *holder.Workshop) error {
	f, err := w.Prepared()
	if err != nil {
		return err
	}
	if f == nil {
		// Inside the memory cap: a bigger one would only move the failure from ENOSPC to an out-of-memory kill.
		size := min(t.Disk, t.Memory)
		if err := mount.Tmpfs(store, mount.TmpfsOptions{Size: size, Inodes: inodes(size), Mode: 0o711}); err != nil {
			return err
		}
	} else {
		defer f.Close()
		if err := mount.Attach(f, store); err != nil {
			return err
		}
	}
	for _, name := range []string{"sandbox-work", "sandbox-home"} {
		dir := filepath.Join(store, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return rung.Errorf(rung.KindInternal, "sandbox disk: %w", err)
		}
		owner := int(t.IDs.Base) + t.UID
		if err := os.Chown(dir, owner, owner); err != nil {
			return rung.Errorf(rung.KindInternal, "sandbox disk: %w", err)
		}
	}
	return nil
}

// mountTemplate shows the template and its binds, read-only or each under an overlay of its own: an overlay does not look
// through mounts in its lower layer.
func (t *Tree) mountTemplate(root, store string) error {
	show := t.bind
	if t.Writable {
		show = func(b driver.Bind, dst string) error { return t.overlay(b, dst, store) }
	}
	if err := show(driver.Bind{Source: t.Template.Root, OwnerBase: t.Template.OwnerBase, Target: "/"}, root); err != nil {
		return err
	}
	for _, b := range t.Template.Binds {
		dst := filepath.Join(root, b.Target)
		f := t.bind
		if st, err := os.Lstat(b.Source); err == nil && st.IsDir() {
			f = show
		}
		if err := f(b, dst); err != nil {
			return err
		}
	}
	return nil
}

// bind shows b at dst read-only, with the tree's owners shown as the sandbox's own ids where both have ranges and the file
// system can do it.
func (t *Tree) bind(b driver.Bind, dst string) error {
	o := mount.BindOptions{Nosuid: true, Nodev: true}
	if !t.Rootless && t.IDs.Base != b.OwnerBase {
		ns, err := t.mapping(b.OwnerBase)
		if err != nil {
			return err
		}
		o.Idmap = ns
		if err := mount.BindRO(b.Source, dst, o); err == nil {
			return nil
		}
		o.Idmap = nil // this file system cannot translate owners: they show as nobody's
	}
	return mount.BindRO(b.Source, dst, o)
}

// mapping returns the user namespace that translates owners from base on to the sandbox's; made once, kept until the end.
func (t *Tree) mapping(base uint32) (*os.File, error) {
	if ns := t.mappings[base]; ns != nil {
		return ns, nil
	}
	ns, err := userns.ForMapping(base, t.IDs.Base, rootCount)
	if err != nil {
		return nil, err
	}
	if t.mappings == nil {
		t.mappings = map[uint32]*os.File{}
	}
	t.mappings[base] = ns
	return ns, nil
}

// overlay shows b at dst, writable, with the changes on the sandbox's disk.
func (t *Tree) overlay(b driver.Bind, dst, store string) error {
	lower := b.Source
	if t.IDs.Base != b.OwnerBase && !t.Rootless {
		// The layers are the host's ids here, so the tree's are translated first.
		lower = filepath.Join(store, "lower"+strconv.Itoa(len(b.Target)))
		if err := os.Mkdir(lower, 0o700); err != nil {
			return rung.Errorf(rung.KindInternal, "sandbox disk: %w", err)
		}
		if err := t.bind(b, lower); err != nil {
			return err
		}
	}
	layer, err := os.MkdirTemp(store, "layer")
	if err != nil {
		return rung.Errorf(rung.KindInternal, "sandbox disk: %w", err)
	}
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o700)); err != nil {
		return rung.Errorf(rung.KindInternal, "sandbox disk: %w", err)
	}
	return mount.Overlay([]string{lower}, upper, work, dst, mount.OverlayOptions{UserXattr: t.Rootless, Volatile: true})
}

// mountOwn shows what is this sandbox's alone: work and home directories, and rung-guest.
func (t *Tree) mountOwn(root, store string) error {
	for from, to := range map[string]string{"sandbox-work": "/work", "sandbox-home": User(t.UID).Home} {
		o := mount.BindOptions{Nosuid: true, Nodev: true}
		if err := mount.Bind(filepath.Join(store, from), filepath.Join(root, to), o); err != nil {
			return err
		}
	}
	if err := mount.BindRO(t.Guest, filepath.Join(root, GuestInside), mount.BindOptions{Nosuid: true, Nodev: true}); err != nil {
		return err
	}
	return t.mountFiles(root, filepath.Dir(store))
}

// mountFiles shows the sandbox's own files, which lie in dir, over the template's.
func (t *Tree) mountFiles(root, dir string) error {
	for i, path := range t.Files {
		o := mount.BindOptions{Nosuid: true, Nodev: true, Noexec: true}
		if err := mount.BindRO(place(dir, i), filepath.Join(root, path), o); err != nil {
			return err
		}
	}
	return nil
}

// Own are the sandbox's writable directories: where they are inside, and below root on the host's side.
func (t *Tree) Own(root string) map[string]string {
	home := User(t.UID).Home
	return map[string]string{"/work": filepath.Join(root, "work"), home: filepath.Join(root, home)}
}

// inodes bounds the files of a tmpfs as disks bound theirs: one per 16 KiB.
func inodes(size int64) int64 { return min(max(size/(16<<10), 1024), 262144) }

// Devices are the six device files of a sandbox's /dev.
func Devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
}

// mountDevices does for rung process what a runtime does from the bundle.
func (t *Tree) mountDevices(root string) error {
	size, _ := strconv.ParseInt(TmpSize(t.Memory), 10, 64)
	dev := filepath.Join(root, "dev")
	if err := mount.Tmpfs(dev, mount.TmpfsOptions{Size: 64 << 10, Inodes: 64, Noexec: true, UID: t.IDs.Base, GID: t.IDs.Base}); err != nil {
		return err
	}
	for _, name := range Devices() {
		f, err := os.OpenFile(filepath.Join(root, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return rung.Errorf(rung.KindInternal, "sandbox /dev: %w", err)
		}
		f.Close()
		if err := mount.Bind(name, filepath.Join(root, name), mount.BindOptions{Nosuid: true, Noexec: true}); err != nil {
			return err
		}
	}
	links := map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return rung.Errorf(rung.KindInternal, "sandbox /dev: %w", err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dev, "shm"), 0o755), os.Mkdir(filepath.Join(dev, "pts"), 0o755)); err != nil {
		return rung.Errorf(rung.KindInternal, "sandbox /dev: %w", err)
	}
	tmp := mount.TmpfsOptions{Size: size, Inodes: inodes(size), Mode: 0o1777, UID: t.IDs.Base, GID: t.IDs.Base}
	if err := mount.Tmpfs(filepath.Join(root, "tmp"), tmp); err != nil {
		return err
	}
	tmp.Noexec = true
	return mount.Tmpfs(filepath.Join(dev, "shm"), tmp)
}

// LandlockABI is the Landlock ABI to enforce: the kernel's, or the newest this program knows if that is older; 0 = none.
func LandlockABI() int {
	const newestKnown = 11
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return min(int(abi), newestKnown)
}

// Kernel is the release of the running kernel.
func Kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
