package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/rung-dev/rung"
)

// tar writes the entries of one layer.
func (t *Tree) tar(r io.Reader) error {
	t.layer, t.names = map[string]bool{}, 0
	tr := tar.NewReader(r)
	for entries := int64(0); ; entries++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if entries >= t.limits.Files || t.stats.Files >= t.limits.Files {
			return exhausted("more than %d files", t.limits.Files)
		}
		if err := t.entry(hdr, tr); err != nil {
			if _, typed := errors.AsType[*rung.Error](err); typed {
				return err
			}
			return fmt.Errorf("entry %.200q: %w", hdr.Name, err)
		}
	}
}

func (t *Tree) entry(hdr *tar.Header, content io.Reader) error {
	name, err := t.clean(hdr.Name)
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch {
	case hdr.Typeflag == tar.TypeXGlobalHeader, name == ".": // of the archive; the root's mode is ours
		return nil
	case base == opaque:
		return t.clear(path.Dir(name))
	case strings.HasPrefix(base, aufsPrefix):
		return nil
	case strings.HasPrefix(base, whiteout):
		return t.whiteout(hdr.Name, path.Join(path.Dir(name), base[len(whiteout):]), base[len(whiteout):])
	}
	switch hdr.Typeflag {
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		t.stats.Devices++
		return nil
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeGNUSparse, tar.TypeCont:
		hdr.Typeflag = tar.TypeReg
	default:
		return refused(hdr.Name, "type %q is none that images use", hdr.Typeflag)
	}
	if hdr.Uid < 0 || hdr.Uid > maxID || hdr.Gid < 0 || hdr.Gid > maxID {
		return refused(hdr.Name, "owner %d:%d is outside 0..%d", hdr.Uid, hdr.Gid, maxID)
	}
	for key := range hdr.PAXRecords {
		if strings.HasPrefix(key, "SCHILY.xattr.") {
			t.stats.Attrs++
			break
		}
	}
	return t.create(name, hdr, content)
}

// create replaces whatever is at name, except a directory by a directory.
func (t *Tree) create(name string, hdr *tar.Header, content io.Reader) error {
	dir, base, err := t.parent(name)
	if err != nil {
		return err
	}
	info, err := dir.Lstat(base)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if hdr.Typeflag == tar.TypeLink { // before removing: the link may name what it replaces
		return t.hardlink(name, hdr, exists)
	}
	if exists && !(info.IsDir() && hdr.Typeflag == tar.TypeDir) {
		if err := t.remove(name); err != nil {
			return err
		}
		exists = false
		if dir, base, err = t.parent(name); err != nil {
			return err
		}
	}
	if err := t.made(name); err != nil {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		if !exists {
			if err := dir.Mkdir(base, 0o700); err != nil {
				return err
			}
		}
		return t.finish(dir, base, hdr, 0o700)
	case tar.TypeSymlink:
		if hdr.Linkname == "" || len(hdr.Linkname) > maxPath || strings.ContainsRune(hdr.Linkname, 0) {
			return refused(hdr.Name, "a link to a name of %d bytes", len(hdr.Linkname))
		}
		if err := dir.Symlink(hdr.Linkname, base); err != nil {
			return err
		}
		return t.own(hdr, func(uid, gid int) error { return dir.Lchown(base, uid, gid) })
	}
	return t.regular(dir, base, hdr, content)
}

func (t *Tree) regular(dir *os.Root, base string, hdr *tar.Header, content io.Reader) error {
	if hdr.Size > t.limits.FileSize {
		return exhausted("entry %.200q: %s in one file, at most %s are allowed", hdr.Name, rung.FormatBytes(hdr.Size), rung.FormatBytes(t.limits.FileSize))
	}
	if hdr.Size > t.limits.Bytes-t.stats.Bytes {
		return exhausted("more than %s in files", rung.FormatBytes(t.limits.Bytes))
	}
	f, err := dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	t.stats.Bytes += n
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n != hdr.Size {
		return refused(hdr.Name, "%d bytes instead of %d", n, hdr.Size)
	}
	if err := t.finish(dir, base, hdr, 0o600); err != nil {
		return err
	}
	// Compiled Python is valid only for the time of its source. A time out of range is the archive's problem.
	_ = dir.Chtimes(base, hdr.ModTime, hdr.ModTime)
	return nil
}

// hardlink makes name another name of a file of the tree.
func (t *Tree) hardlink(name string, hdr *tar.Header, exists bool) error {
	target, err := t.clean(hdr.Linkname)
	if err != nil {
		return err
	}
	if target == name {
		return refused(hdr.Name, "a hard link to itself")
	}
	dir, base, err := t.parent(target)
	if err != nil {
		return err
	}
	info, err := dir.Lstat(base)
	if err != nil || !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return refused(hdr.Name, "a hard link to %.200q, which is no file of the image", hdr.Linkname)
	}
	if exists {
		if strings.HasPrefix(target, name+"/") {
			return refused(hdr.Name, "a hard link in place of the directory of %.200q", hdr.Linkname)
		}
		if err := t.remove(name); err != nil {
			return err
		}
	}
	if err := t.made(name); err != nil {
		return err
	}
	return t.root.Link(target, name) // both parents are real directories by now
}

// finish sets owner and mode, in this order: changing the owner clears bits. Atleast is what a caller without root must
// have to read and remove the tree.
func (t *Tree) finish(dir *os.Root, base string, hdr *tar.Header, atleast os.FileMode) error {
	if err := t.own(hdr, func(uid, gid int) error { return dir.Lchown(base, uid, gid) }); err != nil {
		return err
	}
	mode := os.FileMode(hdr.Mode & 0o777)
	if hdr.Mode&0o1000 != 0 && hdr.Typeflag == tar.TypeDir {
		mode |= os.ModeSticky
	}
	if hdr.Mode&0o6000 != 0 {
		t.stats.SetID++
	}
	if !t.owners {
		mode |= atleast
	}
	return dir.Chmod(base, mode)
}

func (t *Tree) own(hdr *tar.Header, chown func(uid, gid int) error) error {
	if t.owners {
		return chown(hdr.Uid, hdr.Gid)
	}
	if hdr.Uid != 0 || hdr.Gid != 0 {
		t.stats.Owners++
	}
	return nil
}

// whiteout removes target, whose last component is base, except what this very layer made of it: whiteouts are about lower
// layers.
func (t *Tree) whiteout(entry, target, base string) error {
	if base == "" || base == "." || base == ".." {
		return refused(entry, "a whiteout of %q", base)
	}
	if ok, err := t.realDir(path.Dir(target)); err != nil || !ok {
		return err
	}
	if !t.layer[target] {
		return t.remove(target)
	}
	if info, err := t.root.Lstat(target); err != nil || !info.IsDir() {
		return err
	}
	return t.clear(target)
}

// clear makes a directory opaque: what lower layers put in it goes, what this layer put in it stays.
func (t *Tree) clear(dir string) error {
	if ok, err := t.realDir(dir); err != nil || !ok {
		return err
	}
	t.forget()
	f, err := t.root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		child := path.Join(dir, e.Name())
		switch {
		case !t.layer[child]:
			err = t.remove(child)
		case e.IsDir():
			err = t.clear(child)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// realDir reports whether name and all its parents are directories. A link on the way is refused, nothing there is not.
func (t *Tree) realDir(name string) (bool, error) {
	if name == "." {
		return true, nil
	}
	if ok, err := t.realDir(path.Dir(name)); err != nil || !ok {
		return ok, err
	}
	info, err := t.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, refused(name, "a whiteout goes through it, but it is a %v", info.Mode().Type())
	}
	return true, nil
}
