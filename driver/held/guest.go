package held

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rung-dev/rung"
)

// guestCopy returns the path of a copy of the guest program that sandboxes may see: named by content, owned by the caller,
// writable by nobody, and shown inside only through a read-only mount. One copy serves all sandboxes, so its pages are in
// memory once. The original is looked at by inode, size and time only; a change of it makes a new copy.
func (h Host) guestCopy() (string, error) {
	if h.Guest == "" {
		return "", errNoGuest
	}
	st, err := os.Stat(h.Guest)
	if err != nil {
		return "", errNoGuest
	}
	sys := st.Sys().(*syscall.Stat_t)
	key := fmt.Sprintf("%d-%d-%d-%d", sys.Dev, sys.Ino, st.Size(), st.ModTime().UnixNano())
	dir := filepath.Join(h.StateDir, "guest")
	link := filepath.Join(dir, key)
	if name, err := os.Readlink(link); err == nil {
		path := filepath.Join(dir, name)
		if c, err := os.Lstat(path); err == nil && c.Mode() == 0o555 && c.Size() == st.Size() {
			return path, nil
		}
	}
	name, err := copyGuest(h.Guest, dir)
	if err != nil {
		return "", rung.Errorf(rung.KindInternal, "copy rung-guest into %s: %w", dir, err)
	}
	_ = os.Remove(link)
	if err := os.Symlink(name, link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", rung.Errorf(rung.KindInternal, "copy rung-guest: %w", err)
	}
	return filepath.Join(dir, name), nil
}

func copyGuest(src, dir string) (name string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	in, err := os.Open(src)
	if err != nil {
		return "", err
	}
	defer in.Close()
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(tmp, sum), in); err != nil {
		return "", err
	}
	name = "rung-guest-" + hex.EncodeToString(sum.Sum(nil))[:32]
	if err := tmp.Chmod(0o555); err != nil {
		return "", err
	}
	return name, os.Rename(tmp.Name(), filepath.Join(dir, name))
}
