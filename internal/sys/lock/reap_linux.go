package lock

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// List names the sandboxes that have a directory, dead or alive, sorted.
func List(runtimeDir string) ([]string, error) {
	d, err := os.Open(runtimeDir + "/sandboxes")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err, "list sandboxes")
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(s string) bool { return rung.ValidName(s) != nil })
	slices.Sort(names)
	return names, wrap(err, "list sandboxes")
}

// Dead finds the sandboxes nobody owns any more and takes their locks, so that of two reapers each gets its own. The
// caller clears up after each and calls Remove, or Close to leave it to somebody else. At most 256 per call. A sandbox
// that cannot be judged is in the error, beside those that could.
func Dead(runtimeDir string) ([]*Sandbox, error) {
	ids, err := List(runtimeDir)
	if err != nil {
		return nil, err
	}
	var dead []*Sandbox
	var failed error
	for _, id := range ids {
		if len(dead) == maxDead {
			break
		}
		s, err := claim(runtimeDir, id)
		failed = errors.Join(failed, wrap(err, "sandbox %s", id))
		if s != nil {
			dead = append(dead, s)
		}
	}
	return dead, failed
}

// Claim takes the lock of one dead sandbox, as Dead does of all; nil when it lives, is being made, is being reaped or is
// gone.
func Claim(runtimeDir, id string) (*Sandbox, error) {
	if err := rung.ValidName(id); err != nil {
		return nil, err
	}
	s, err := claim(runtimeDir, id)
	return s, wrap(err, "sandbox %s", id)
}

// claim is Claim without the checks.
func claim(runtimeDir, id string) (*Sandbox, error) {
	dir := runtimeDir + "/sandboxes/" + id
	f, err := openLock(dir+"/lock", 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = adopt(runtimeDir, dir)
	}
	if err != nil || f == nil {
		return nil, err
	}
	ok, err := try(f, unix.LOCK_EX)
	// Between opening and locking another reaper may have finished and somebody made a new sandbox of that id: then the
	// file locked here is not the one that has the name.
	if err != nil || !ok || !same(f, dir+"/lock") {
		_ = f.Close()
		return nil, err
	}
	return &Sandbox{ID: id, Dir: dir, Lock: f}, nil
}

func same(f *os.File, name string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(int(f.Fd()), &a) == nil && unix.Lstat(name, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// adopt gives a lock file to a directory whose maker or remover died before it had one; nil when it is still being made.
func adopt(runtimeDir, dir string) (*os.File, error) {
	reap, err := reapLock(runtimeDir, true, time.Millisecond)
	if rung.KindOf(err) == rung.KindTimeout {
		return nil, nil // somebody is making a sandbox now; the next sweep will tell
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = reap.Close() }()
	if _, err := os.Lstat(dir + "/lock"); err == nil {
		return openLock(dir+"/lock", 0) // made since we looked
	}
	// The name is ours alone while reap.lock is held; what a dead maker left under it is only a file.
	if err := unix.Unlink(dir + "/lock.new"); err != nil && err != unix.ENOENT {
		return nil, err
	}
	f, err := plant(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed meanwhile
	}
	return f, err
}
