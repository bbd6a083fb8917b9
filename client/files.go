package client

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/api/wire"
)

// Files is the file tree of the sandbox as one of its users sees it. Paths are absolute, or relative to the user's home.
type Files struct {
	g    *Guest
	user string
	// strict refuses symbolic links anywhere in a path and anything but regular files and directories.
	strict bool
}

// Files returns the tree as user sees it, "" being the sandbox's user.
func (g *Guest) Files(user string) *Files { return &Files{g: g, user: user} }

// Strict returns the tree for reading what may not be trusted to stay what it is: see Files.
func (f *Files) Strict() *Files {
	s := *f
	s.strict = true
	return &s
}

func (f *Files) header() []wire.Field {
	if f.strict {
		return []wire.Field{{Name: wire.HeaderNofollow, Value: "1"}}
	}
	return nil
}

// Info describes one name in the tree. Everything in it is the guest's claim, but for what is checked here: the name has
// no slash, is not "." or "..", and is the last part of the path.
type Info struct {
	Name  string
	Path  string
	Dir   bool
	File  bool // regular
	Link  bool // a symbolic link; Dir and File are of what it leads to
	Size  int64
	Mode  fs.FileMode // permission bits
	Owner string
	Group string
	Time  time.Time
}

// Open opens a regular file for reading. The context bounds the whole read.
func (f *Files) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	e, err := f.g.do(ctx, request{method: "GET", path: filePath(name), user: f.user, header: f.header(), last: true})
	if err != nil {
		return nil, err
	}
	return &file{e}, nil
}

// file is the body of an answer; cut short, it ends in an error.
type file struct{ e *exchange }

func (f *file) Read(p []byte) (int, error) {
	n, err := f.e.body.Read(p)
	if err != nil && err != io.EOF {
		err = f.e.explain(err)
	}
	return n, err
}

func (f *file) Close() error {
	f.e.close()
	return nil
}

// Create writes a file, making its directories, with the permission bits (0 is 0644 for a new file). The context bounds
// the whole write.
func (f *Files) Create(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	var header []wire.Field
	if mode != 0 {
		header = append(header, wire.Field{Name: wire.HeaderMode, Value: strconv.FormatUint(uint64(mode.Perm()), 8)})
	}
	req := request{method: "POST", path: filePath(name), kind: "application/octet-stream", user: f.user, header: header}
	if b, ok := r.(*bytes.Reader); ok && b.Len() <= maxWhole {
		req.body = make([]byte, b.Len())
		_, _ = io.ReadFull(b, req.body) // it has them
	} else {
		req.stream, req.last = r, true // the guest may answer while we are still sending
	}
	e, err := f.g.do(ctx, req)
	if err != nil {
		return err
	}
	if _, err := e.all(); err != nil {
		defer e.close()
		return e.explain(err)
	}
	f.g.keep(e)
	return nil
}

// maxWhole is up to how much content that is in memory anyway is sent in one piece.
const maxWhole = 1 << 20

func filePath(name string) string { return "/files?path=" + url.QueryEscape(name) }

// pathRequest keeps the bytes of a name that JSON cannot carry.
func pathRequest(name string) wire.PathRequest {
	req := wire.PathRequest{Path: name}
	if !utf8.ValidString(name) {
		req.RawPath = wire.Bytes(name)
	}
	return req
}

// Stat describes a name. A link is described itself.
func (f *Files) Stat(ctx context.Context, name string) (Info, error) {
	return f.entry(ctx, "Stat", pathRequest(name))
}

// Mkdir makes a directory and its parents; KindExists when it is there.
func (f *Files) Mkdir(ctx context.Context, name string) (Info, error) {
	return f.entry(ctx, "MakeDir", pathRequest(name))
}

// Move renames, making the destination's parents.
func (f *Files) Move(ctx context.Context, from, to string) (Info, error) {
	return f.entry(ctx, "Move", wire.MoveRequest{Source: from, Destination: to})
}

// Remove removes a tree; a name that is not there is no error.
func (f *Files) Remove(ctx context.Context, name string) error {
	return f.g.call(ctx, "/filesystem.Filesystem/Remove", f.user, pathRequest(name), nil, f.header()...)
}

// maxList caps a listing.
const maxList = 100_000

// List describes what is in a directory, depth levels down (0 is 1), depth first and by name. Links are not followed.
func (f *Files) List(ctx context.Context, dir string, depth int) ([]Info, error) {
	var answer wire.ListDirResponse
	req := pathRequest(dir)
	req.Depth = wire.Uint32(max(depth, 0))
	if err := f.g.call(ctx, "/filesystem.Filesystem/ListDir", f.user, req, &answer, f.header()...); err != nil {
		return nil, err
	}
	if len(answer.Entries) > maxList {
		return nil, rung.Errorf(rung.KindExhausted, "the guest lists more than %d entries", maxList)
	}
	list := make([]Info, 0, len(answer.Entries))
	for _, e := range answer.Entries {
		info, err := decodeEntry(e, dir)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

func (f *Files) entry(ctx context.Context, method string, req any) (Info, error) {
	var answer wire.EntryResponse
	if err := f.g.call(ctx, "/filesystem.Filesystem/"+method, f.user, req, &answer, f.header()...); err != nil {
		return Info{}, err
	}
	return decodeEntry(answer.Entry, "")
}

// decodeEntry checks what a caller will make file names of; below is the directory it must be in, when that is known.
func decodeEntry(e *wire.EntryInfo, below string) (Info, error) {
	if e == nil {
		return Info{}, rung.Errorf(rung.KindUnavailable, "the guest's answer has no entry")
	}
	where := e.Path
	if len(e.RawPath) > 0 {
		where = string(e.RawPath)
	}
	info := Info{
		Name: path.Base(where), Path: where, Dir: e.Type == wire.TypeDirectory, File: e.Type == wire.TypeFile,
		Link: e.SymlinkTarget != nil || strings.HasPrefix(e.Permissions, "L"), Size: max(e.Size, 0),
		Mode: fs.FileMode(e.Mode).Perm(), Owner: e.Owner, Group: e.Group, Time: e.ModifiedTime,
	}
	ok := path.IsAbs(where) && path.Clean(where) == where && !strings.ContainsRune(where, 0)
	if below != "" && path.IsAbs(below) {
		ok = ok && strings.HasPrefix(where, strings.TrimSuffix(path.Clean(below), "/")+"/")
	}
	if !ok {
		return Info{}, rung.Errorf(rung.KindUnavailable, "the guest names an impossible path %.200q", where)
	}
	return info, nil
}
