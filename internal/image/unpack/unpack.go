// Package unpack writes the layers of a container image into a directory, trusting nothing in them.
//
// The archives are hostile: their names, links, sizes, owners and compression ratio were chosen by somebody who may want a
// file outside the directory, a full disk or a set-user-id program. What an honest image never does is refused with
// rung.KindRefused and a message that names the entry; what honest images do and a sandbox does not need (devices, set-id
// bits, extended attributes) is left out and counted.
//
// No link of a tree is ever followed: every entry is created in a directory that was reached one real directory at a time,
// with a handle on it (os.Root), so that neither an order of entries nor a later layer can lead a write elsewhere.
//
// Digests and sizes are checked while streaming. A layer that does not match has been written in part by then; its caller
// throws the tree away.
package unpack

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

// Limits are the caps of one tree, over all its layers.
type Limits struct {
	Bytes    int64 // of file content
	Files    int64 // entries in all layers
	FileSize int64 // of one file
	Depth    int   // components of a path
	Ratio    int64 // decompressed bytes per compressed byte, above RatioFree
}

// DefaultLimits leave room for the largest images in use for machine learning but one.
func DefaultLimits() Limits {
	return Limits{Bytes: 8 << 30, Files: 500_000, FileSize: 4 << 30, Depth: 128, Ratio: 200}
}

const (
	ratioFree  = 64 << 20 // decompressed bytes that any layer may have, whatever the ratio
	maxPath    = 4095
	maxName    = 255
	maxNames   = 128 << 20 // they are in memory
	maxID      = 65535
	whiteout   = ".wh."
	opaque     = ".wh..wh..opq"
	aufsPrefix = ".wh..wh." // bookkeeping of a file system long gone
)

// Stats counts what was written, and what was left out against the image.
type Stats struct {
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Devices int64 `json:"devices"` // device nodes and FIFOs
	SetID   int64 `json:"set_id"`  // files that lost their set-user-id or set-group-id bit
	Attrs   int64 `json:"attrs"`   // files that lost extended attributes
	Owners  int64 `json:"owners"`  // files that belong to the caller instead of the image's owner
}

// Notes says in words what was left out.
func (s Stats) Notes() []string {
	var notes []string
	for _, n := range []struct {
		count int64
		text  string
	}{
		{s.Devices, "%d device nodes and FIFOs left out: a sandbox has devices of its own"},
		{s.SetID, "%d files without their set-user-id or set-group-id bit"},
		{s.Attrs, "%d files without extended attributes such as file capabilities"},
		{s.Owners, "%d files belong to you instead of the image's owner: unpacked without root"},
	} {
		if n.count > 0 {
			notes = append(notes, fmt.Sprintf(n.text, n.count))
		}
	}
	return notes
}

// Tree is a directory being filled.
type Tree struct {
	root     *os.Root
	limits   Limits
	owners   bool
	stats    Stats
	stream   int64             // decompressed bytes read, all layers
	layer    map[string]bool   // what the current layer created and the directories above: whiteouts spare it
	names    int64             // bytes of the names in layer
	dir      *os.Root          // handle of the directory dirName, the last one used
	dirName  string            //
	progress func(bytes int64) // may be nil
}

// New starts a tree in an empty directory. With owners the files get the image's owners, which needs all ids up to 65535;
// without they belong to the caller, who can read and remove all of them. Progress, if not nil, is told the bytes so far.
func New(root *os.Root, limits Limits, owners bool, progress func(bytes int64)) *Tree {
	return &Tree{root: root, limits: limits, owners: owners, progress: progress}
}

// Stats tells what was done so far.
func (t *Tree) Stats() Stats { return t.stats }

// Close releases the tree's handles, not the root.
func (t *Tree) Close() { t.forget() }

func (t *Tree) forget() {
	if t.dir != nil {
		_ = t.dir.Close() // a handle only
	}
	t.dir, t.dirName = nil, ""
}

func refused(name, format string, args ...any) error {
	return rung.Errorf(rung.KindRefused, "entry %.200q: "+format, append([]any{name}, args...)...)
}

func exhausted(format string, args ...any) error {
	return rung.Errorf(rung.KindExhausted, format, args...).WithHint("the caps are those of rung-image import; use a smaller image")
}

// clean checks a name of an archive and returns it relative to the root, "." for the root itself. A leading slash means the
// root, as in every other unpacker.
func (t *Tree) clean(name string) (string, error) {
	if len(name) > maxPath {
		return "", refused(name, "the name has %d bytes", len(name))
	}
	if strings.ContainsRune(name, 0) {
		return "", refused(name, "a zero byte in the name")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", refused(name, "the name leads upwards")
		case len(part) > maxName:
			return "", refused(name, "a component has %d bytes", len(part))
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > t.limits.Depth {
		return "", refused(name, "%d directories deep", depth)
	}
	return path.Clean(strings.TrimLeft(name, "/")), nil
}

// parent opens the directory of name, making missing ones, and returns its handle and name's last component. The handle is
// the tree's: not to be closed.
func (t *Tree) parent(name string) (*os.Root, string, error) {
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return t.root, base, nil
	}
	if t.dir != nil && t.dirName == dir {
		return t.dir, base, nil
	}
	t.forget()
	cur, done := t.root, ""
	for part := range strings.SplitSeq(dir, "/") {
		done = path.Join(done, part)
		next, err := t.step(cur, part, done)
		if cur != t.root {
			_ = cur.Close() // a handle only
		}
		if err != nil {
			return nil, "", err
		}
		cur = next
	}
	t.dir, t.dirName = cur, dir
	return cur, base, nil
}

// step opens one directory in cur. Nobody else writes in the tree, so what Lstat saw is what is opened.
func (t *Tree) step(cur *os.Root, part, full string) (*os.Root, error) {
	info, err := cur.Lstat(part)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := cur.Mkdir(part, 0o755); err != nil {
			return nil, err
		}
		if err := t.made(full); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, refused(full, "used as a directory, but it is a %v", info.Mode().Type())
	}
	return cur.OpenRoot(part)
}

// made counts a name of the current layer, and remembers it and the directories above it.
func (t *Tree) made(name string) error {
	t.stats.Files++
	for ; name != "." && !t.layer[name]; name = path.Dir(name) {
		t.names += int64(len(name))
		t.layer[name] = true
	}
	if t.names > maxNames {
		return exhausted("the names of a layer's files need more than %s", rung.FormatBytes(maxNames))
	}
	return nil
}

// remove deletes what is at name, a tree or nothing.
func (t *Tree) remove(name string) error {
	if t.dir != nil && (t.dirName == name || strings.HasPrefix(t.dirName, name+"/")) {
		t.forget()
	}
	dir, base, err := t.parent(name)
	if err != nil {
		return err
	}
	return dir.RemoveAll(base)
}

// count charges n bytes read from the decompressed stream.
func (t *Tree) count(n int64) error {
	t.stream += n
	if t.progress != nil {
		t.progress(t.stream)
	}
	// Headers and padding come on top of content: at most a few KiB for each entry.
	if t.stream > t.limits.Bytes+t.limits.Files*4096 {
		return exhausted("the layers hold more than %s", rung.FormatBytes(t.limits.Bytes))
	}
	return nil
}

type countingReader struct {
	r     io.Reader
	count func(int64) error
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if capErr := c.count(int64(n)); capErr != nil {
		return 0, capErr
	}
	return n, err
}
