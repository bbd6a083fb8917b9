package lock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// bound is the longest a start waits for a reaper that judges an ambiguous directory; that takes microseconds.
const bound = 5 * time.Second

// dirMode lets the mapped root of a sandbox, to the host just some other user, pass through to the tree that its runtime
// mounts below the sandbox's directory. Nobody else can list, and what lies there has modes of its own.
const dirMode = 0o711

func full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// Prepare makes the runtime directory and refuses one that somebody else could have put there (it may lie in /tmp).
// NewSandbox does it every time, for the check: it costs a few microseconds.
func Prepare(runtimeDir string) error {
	for _, d := range []string{runtimeDir, runtimeDir + "/sandboxes", runtimeDir + "/slots"} {
		err := os.Mkdir(d, dirMode)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(d), 0o755); err == nil {
				err = os.Mkdir(d, dirMode)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return wrap(err, "runtime directory")
		}
		var st unix.Stat_t
		if err := unix.Lstat(d, &st); err != nil {
			return wrap(err, "runtime directory %s", d)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			return rung.Errorf(rung.KindUnavailable, "runtime directory %s: it must be a directory owned by uid %d that nobody else can write to (mode %o, owner %d)",
				d, os.Geteuid(), st.Mode&0o7777, st.Uid).WithHint("remove it, or set RUNG_RUNTIME_DIR")
		}
	}
	return nil
}

// NewSandbox makes the directory of a new sandbox and holds its lock. An id that is taken, by a live sandbox or by remains
// not reaped yet, is KindExists. On error nothing is left behind.
func NewSandbox(runtimeDir, id string) (*Sandbox, error) {
	if err := rung.ValidName(id); err != nil {
		return nil, err
	}
	if err := Prepare(runtimeDir); err != nil {
		return nil, err
	}
	birth, err := reapLock(runtimeDir, false, bound)
	if err != nil {
		return nil, wrap(err, "sandbox %s", id)
	}
	defer func() { _ = birth.Close() }()
	dir := runtimeDir + "/sandboxes/" + id
	if err := unix.Mkdir(dir, dirMode); err == unix.EEXIST {
		return nil, rung.Errorf(rung.KindExists, "sandbox %s exists", id)
	} else if err != nil {
		return nil, wrap(&os.PathError{Op: "mkdir", Path: dir, Err: err}, "sandbox %s", id)
	}
	f, err := plant(dir)
	if err != nil {
		_ = unix.Unlink(dir + "/lock.new")
		_ = unix.Rmdir(dir)
		return nil, wrap(err, "sandbox %s", id)
	}
	return &Sandbox{ID: id, Dir: dir, Lock: f}, nil
}

// plant makes the lock file of dir, already locked when it gets its name. The caller holds reap.lock.
func plant(dir string) (*os.File, error) {
	name := dir + "/lock.new"
	f, err := openLock(name, unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	ok, err := try(f, unix.LOCK_EX)
	if err == nil && !ok {
		err = rung.Errorf(rung.KindConflict, "%s is locked", name)
	}
	if err == nil {
		err = unix.Rename(name, dir+"/lock")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// openLock opens a lock file. The descriptor is kept out of Go's poller: it is locked, passed on and closed, never read.
func openLock(name string, flags int) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// reapLock takes reap.lock, waiting at most that long.
func reapLock(runtimeDir string, exclusive bool, wait time.Duration) (*os.File, error) {
	name := runtimeDir + "/reap.lock"
	f, err := openLock(name, unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err = Wait(ctx, f, exclusive); err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, ErrHeld) {
		err = rung.Errorf(rung.KindTimeout, "%s is held by another process", name)
	}
	return nil, err
}

// Alive tells whether somebody holds the lock of that sandbox. A sandbox being made counts as alive.
func Alive(runtimeDir, id string) (bool, error) {
	if err := rung.ValidName(id); err != nil {
		return false, err
	}
	dir := runtimeDir + "/sandboxes/" + id
	f, err := openLock(dir+"/lock", 0)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return true, wrap(err, "sandbox %s", id)
	}
	if err != nil {
		return false, wrap(err, "sandbox %s", id)
	}
	defer func() { _ = f.Close() }()
	free, err := try(f, unix.LOCK_SH) // shared, so that two who ask do not take each other for the owner
	return !free, wrap(err, "sandbox %s", id)
}

// Remove removes the directory, its lock file last, and gives the lock up. The walk goes by descriptor and follows no
// link. Whatever cannot be removed (something mounted) keeps the directory and is the error; the lock is given up anyway,
// so that the next sweep tries again.
func (s *Sandbox) Remove() error {
	defer func() { _ = s.Lock.Close() }()
	root, err := os.OpenRoot(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return wrap(err, "remove sandbox %s", s.ID)
	}
	defer func() { _ = root.Close() }()
	names, err := list(root)
	if err != nil {
		return wrap(err, "remove sandbox %s", s.ID)
	}
	var failed error
	for _, name := range names {
		if name != "lock" {
			failed = errors.Join(failed, removeAll(root, name))
		}
	}
	if failed == nil {
		failed = s.vanish(root)
	}
	return wrap(failed, "remove sandbox %s", s.ID)
}

// removeAll removes a tree of the caller's own, also where a directory forbids even him to look into it, as the working
// directory of an overlay does. The sandbox is dead: nobody changes the tree meanwhile.
func removeAll(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	open(root, name)
	return root.RemoveAll(name)
}

// open makes directories accessible to their owner, as far as it can.
func open(root *os.Root, name string) {
	if st, err := root.Lstat(name); err != nil || !st.IsDir() || root.Chmod(name, 0o700) != nil {
		return
	}
	dir, err := root.Open(name)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, n := range names {
		open(root, filepath.Join(name, n))
	}
}

// vanish removes the lock file and the directory, under reap.lock because between the two the directory is ambiguous.
func (s *Sandbox) vanish(root *os.Root) error {
	death, err := reapLock(filepath.Dir(filepath.Dir(s.Dir)), false, bound)
	if err != nil {
		return err
	}
	defer func() { _ = death.Close() }()
	if err := root.Remove("lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(s.Dir)
}

func list(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}
