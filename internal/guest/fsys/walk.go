//go:build linux

// Package fsys is the file tree of a sandbox as rung-guest works on it: every path is resolved here, component by
// component and by directory descriptor, and never leaves the tree's root, whatever links user code puts in the way or
// swaps while it happens.
//
// The kernel can do this too (openat2 with RESOLVE_IN_ROOT), but not under gVisor, and one way that is the same on every
// rung is worth more than the system calls it saves. Symbolic links are expanded by text, so the magic ones of /proc lead
// nowhere special.
//
// Functions run with the ids of the calling thread; the guest calls them as the user (see package ident).
package fsys

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Caps of one resolution.
const (
	maxPath       = 4096
	maxLinks      = 40
	maxComponents = 2048 // with those of expanded links
)

// ErrInvalid is wrapped by errors about the request rather than the tree.
var ErrInvalid = errors.New("invalid path")

// Tree is a directory that plays the part of "/".
type Tree struct{ fd int }

// New opens the root, an absolute path of the program's own view.
func New(root string) (*Tree, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("files root %s: %w", root, err)
	}
	return &Tree{fd}, nil
}

// Close releases the root.
func (t *Tree) Close() error { return unix.Close(t.fd) }

// place is a name in an open directory. The name is "." for the root itself, and never "..".
type place struct {
	dir  int
	name string
	real string // absolute path in the tree, links expanded
}

func (p *place) close() { unix.Close(p.dir) }

// how says how to resolve.
type how struct {
	follow  bool // expand a link in the last place as well
	nolinks bool // refuse links anywhere
	parents bool // make missing directories on the way
}

// walk is one resolution under way.
type walk struct {
	how
	stack []int    // descriptors from the root down; the first is the tree's own copy
	names []string // their names, without the root's
	todo  []string // components still to resolve, next one last
	links int
	total int
}

// at resolves an absolute path to a place; the caller closes it.
func (t *Tree) at(path string, h how) (*place, error) {
	if err := valid(path); err != nil {
		return nil, err
	}
	root, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	w := &walk{how: h, stack: []int{root}}
	defer w.release()
	if err := w.push(path); err != nil {
		return nil, err
	}
	for len(w.todo) > 0 {
		last := len(w.todo) - 1
		c := w.todo[last]
		w.todo = w.todo[:last]
		switch {
		case c == "" || c == ".":
		case c == "..":
			w.up()
		case w.final():
			done, err := w.end(c)
			if err != nil {
				return nil, err
			}
			if done {
				return w.place(c), nil
			}
		default:
			if err := w.down(c); err != nil {
				return nil, err
			}
		}
	}
	return w.here()
}

func valid(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("%w: not absolute", ErrInvalid)
	case len(path) > maxPath:
		return fmt.Errorf("%w: %w", ErrInvalid, unix.ENAMETOOLONG)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("%w: NUL", ErrInvalid)
	}
	return nil
}

func (w *walk) release() {
	for _, fd := range w.stack {
		unix.Close(fd)
	}
}

// push puts a path in front of what is to be resolved.
func (w *walk) push(path string) error {
	parts := strings.Split(path, "/")
	if w.total += len(parts); w.total > maxComponents {
		return unix.ELOOP
	}
	for _, c := range slices.Backward(parts) {
		w.todo = append(w.todo, c)
	}
	return nil
}

// final reports whether nothing but empty components is left.
func (w *walk) final() bool {
	for _, c := range w.todo {
		if c != "" && c != "." {
			return false
		}
	}
	return true
}

func (w *walk) top() int { return w.stack[len(w.stack)-1] }

// up goes to the directory this walk came from, not to what ".." is by now: a directory may have been moved meanwhile.
func (w *walk) up() {
	if len(w.stack) > 1 {
		unix.Close(w.top())
		w.stack = w.stack[:len(w.stack)-1]
		w.names = w.names[:len(w.names)-1]
	}
}

func (w *walk) down(c string) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(w.top(), c, flags, 0)
	if err == unix.ENOENT && w.parents {
		if err = unix.Mkdirat(w.top(), c, 0o755); err == nil || err == unix.EEXIST {
			fd, err = unix.Openat(w.top(), c, flags, 0)
		}
	}
	if err == unix.ENOTDIR || err == unix.ELOOP {
		if linked, e := w.expand(c); linked || e != nil {
			return e
		}
	}
	if err != nil {
		return err
	}
	w.stack = append(w.stack, fd)
	w.names = append(w.names, c)
	return nil
}

// expand puts the target of a link in the link's place.
func (w *walk) expand(c string) (bool, error) {
	target, err := readlink(w.top(), c)
	if err != nil || target == "" {
		return false, nil // not a link; what it is shows in the error of the caller
	}
	if w.links++; w.links > maxLinks || w.nolinks {
		return false, unix.ELOOP
	}
	if strings.HasPrefix(target, "/") {
		for len(w.stack) > 1 {
			w.up()
		}
	}
	return true, w.push(target)
}

// end looks at the last component; it is done unless that was a link to expand.
func (w *walk) end(c string) (done bool, err error) {
	if w.nolinks {
		if target, err := readlink(w.top(), c); err == nil && target != "" {
			return false, unix.ELOOP
		}
		return true, nil
	}
	if !w.follow {
		return true, nil
	}
	linked, err := w.expand(c)
	return !linked, err
}

// place hands the directory on top over to the caller.
func (w *walk) place(name string) *place {
	p := &place{dir: w.top(), name: name, real: "/" + strings.Join(append(w.names, name), "/")}
	w.stack = w.stack[:len(w.stack)-1]
	return p
}

// here is the place of a path that ended in a directory on the stack: "/", or something like "a/..".
func (w *walk) here() (*place, error) {
	if len(w.stack) == 1 {
		p := w.place(".")
		p.real = "/"
		return p, nil
	}
	name := w.names[len(w.names)-1]
	w.up()
	return w.place(name), nil
}

func readlink(dir int, name string) (string, error) {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
