package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/rung-dev/rung"
)

// guestFile is where rung-guest is bound; an empty file in every tree.
const guestFile = "/.rung/guest"

type mountDir struct {
	path string
	mode os.FileMode
}

// mountDirs are the directories every tree has, parents first.
func mountDirs() []mountDir {
	return []mountDir{
		{"/proc", 0o755},
		{"/sys", 0o755},
		{"/dev", 0o755},
		{"/tmp", os.ModeSticky | 0o777},
		{"/work", 0o755},
		{"/home", 0o755},
		{"/home/user", 0o755},
		{"/run", 0o755},
		{"/var", 0o755},
		{"/root", 0o755},
		{"/.rung", 0o755},
	}
}

// Prepare gives a freshly unpacked tree what drivers mount on and what programs ask for: mount points, the accounts of
// rung-guest and the user, and one place for the host's certificate authorities. It returns what it had to change, in
// words.
//
// The tree is hostile. A runtime that mounts on a name which the image made a link mounts somewhere else (that class of
// runtime bug returns every year), so every mount point and each of its parents is made a real directory here. An image
// that puts something else than a directory at /proc, /sys, /dev or /etc has no other purpose and is refused with
// KindRefused; elsewhere the odd thing is replaced, with a note.
//
// Prepare runs where the tree was unpacked: without privileges on the host.
func Prepare(root *os.Root) (notes []string, err error) {
	p := &preparer{root: root}
	for _, name := range []string{"proc", "sys", "dev", "etc"} {
		p.mustBeDir(name)
	}
	if _, err := root.Lstat(".rung"); err == nil { // ours, whatever the image thinks
		p.replace(".rung", "the image's")
	}
	for _, d := range mountDirs() {
		p.realDir(strings.TrimPrefix(d.path, "/"))
		if d.mode&os.ModeSticky != 0 {
			p.chmod(strings.TrimPrefix(d.path, "/"), d.mode)
		}
	}
	p.file(strings.TrimPrefix(guestFile, "/"), "", 0o555)
	p.accounts()
	p.network()
	p.certificates()
	return p.notes, p.err
}

// preparer stops at the first error.
type preparer struct {
	root  *os.Root
	notes []string
	err   error
}

func (p *preparer) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

func (p *preparer) fail(err error) {
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("prepare the tree: %w", err)
	}
}

func (p *preparer) mustBeDir(name string) {
	info, err := p.root.Lstat(name)
	if err == nil && !info.IsDir() && p.err == nil {
		p.err = rung.Errorf(rung.KindRefused, "the image has a %s at /%s, where a directory must be: mounting there would reach elsewhere",
			kindOf(info.Mode()), name).WithHint("no honest image does this; do not use it")
	}
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	}
	return "special file"
}

// realDir makes name and all its parents real directories.
func (p *preparer) realDir(name string) {
	if parent := path.Dir(name); parent != "." {
		p.realDir(parent)
	}
	if p.err != nil {
		return
	}
	info, err := p.root.Lstat(name)
	if err == nil && info.IsDir() {
		return
	}
	if err == nil {
		p.replace(name, kindOf(info.Mode()))
	}
	p.fail(p.root.Mkdir(name, 0o755))
	p.chmod(name, 0o755)
}

// replace removes what is at name; was tells what that is.
func (p *preparer) replace(name, was string) {
	p.note("/%s: %s replaced", name, was)
	p.fail(p.root.RemoveAll(name))
}

func (p *preparer) chmod(name string, mode os.FileMode) {
	if p.err == nil { // made or checked just before: not a link
		p.fail(p.root.Chmod(name, mode))
	}
}

// file replaces whatever is at name by a regular file.
func (p *preparer) file(name, content string, mode os.FileMode) {
	p.realDir(path.Dir(name))
	if p.err != nil {
		return
	}
	p.fail(p.root.RemoveAll(name))
	f, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		p.fail(err)
		return
	}
	_, err = io.WriteString(f, content)
	p.fail(errors.Join(err, f.Chmod(mode), f.Close()))
}

func (p *preparer) link(target, name string) {
	p.realDir(path.Dir(name))
	if p.err == nil {
		p.fail(p.root.RemoveAll(name))
		p.fail(p.root.Symlink(target, name))
	}
}

// network replaces what an image brought from where it was built; there is none inside, and a gate will say otherwise.
func (p *preparer) network() {
	p.file("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n", 0o644)
	p.file("etc/hostname", "rung\n", 0o644)
	p.file("etc/resolv.conf", "# no network\n", 0o644)
}

// certificates makes the file that the host's bundle is bound on, and links to it at the other usual places. Where the
// image has a bundle of its own and the host none, that one stays.
func (p *preparer) certificates() {
	own := ""
	for _, place := range caPlaces() {
		if own == "" {
			own = p.read(strings.TrimPrefix(place, "/"), 8<<20)
		}
	}
	p.file(strings.TrimPrefix(CAInside, "/"), own, 0o644)
	for _, place := range caPlaces() {
		if place != CAInside {
			p.link(CAInside, strings.TrimPrefix(place, "/"))
		}
	}
}

// read returns the content of a file, links followed inside the tree; "" when there is none or it is too large.
func (p *preparer) read(name string, limit int64) string {
	info, err := p.root.Stat(name) // first: opening a FIFO would wait
	if err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		return ""
	}
	f, err := p.root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		p.fail(err)
	}
	return string(data)
}
