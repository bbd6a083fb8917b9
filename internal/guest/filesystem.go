//go:build linux

package guest

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"syscall"
	"unicode/utf8"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/fsys"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/ident"
)

const (
	maxEntries = 50_000 // of one listing: they are held in memory
	maxDepth   = 64
)

// filesystem serves the methods of filesystem.Filesystem.
func (s *server) filesystem(method string, w *http1.Response, r *http1.Request) {
	u, err := s.user(r, "")
	if err != nil {
		failUnary(w, err)
		return
	}
	f := &fileCall{s: s, user: u, nolinks: r.Header.Get(wire.HeaderNofollow) == "1"}
	switch method {
	case "Stat":
		unary(w, r, f.stat)
	case "ListDir":
		unary(w, r, f.list)
	case "MakeDir":
		unary(w, r, f.mkdir)
	case "Move":
		unary(w, r, f.move)
	case "Remove":
		unary(w, r, f.remove)
	case "WatchDir":
		failStream(w, errorf(wire.Unimplemented, "this method is not supported"))
	default:
		unary(w, r, unimplemented)
	}
}

// fileCall is one call with who it acts for.
type fileCall struct {
	s       *server
	user    ident.User
	nolinks bool
	owners  map[uint32]string
	groups  map[uint32]string
}

// entry runs do as the user and encodes what it returns.
func (f *fileCall) entry(do func() (fsys.Info, error)) (any, error) {
	var info fsys.Info
	err := f.user.As(func() (err error) {
		info, err = do()
		return err
	})
	if err != nil {
		return nil, err
	}
	return wire.EntryResponse{Entry: f.encode(info)}, nil
}

// path is the absolute path of a request.
func (f *fileCall) path(req *wire.PathRequest) string {
	if len(req.RawPath) > 0 {
		return homePath(f.user, string(req.RawPath))
	}
	return homePath(f.user, req.Path)
}

func (f *fileCall) stat(_ context.Context, req *wire.PathRequest) (any, error) {
	return f.entry(func() (fsys.Info, error) { return f.s.files.Stat(f.path(req), f.nolinks) })
}

func (f *fileCall) mkdir(_ context.Context, req *wire.PathRequest) (any, error) {
	return f.entry(func() (fsys.Info, error) { return f.s.files.Mkdir(f.path(req)) })
}

func (f *fileCall) move(_ context.Context, req *wire.MoveRequest) (any, error) {
	return f.entry(func() (fsys.Info, error) {
		return f.s.files.Move(homePath(f.user, req.Source), homePath(f.user, req.Destination))
	})
}

func (f *fileCall) remove(_ context.Context, req *wire.PathRequest) (any, error) {
	return wire.Empty{}, f.user.As(func() error { return f.s.files.Remove(f.path(req)) })
}

func (f *fileCall) list(_ context.Context, req *wire.PathRequest) (any, error) {
	var found []fsys.Info
	err := f.user.As(func() (err error) {
		found, err = f.s.files.List(f.path(req), int(min(req.Depth, maxDepth)), maxEntries, f.nolinks)
		return err
	})
	if errors.Is(err, syscall.ENOBUFS) {
		return nil, errorf(wire.ResourceExhausted, "more than %d entries", maxEntries)
	}
	if err != nil {
		return nil, err
	}
	answer := wire.ListDirResponse{Entries: []*wire.EntryInfo{}}
	for _, info := range found {
		answer.Entries = append(answer.Entries, f.encode(info))
	}
	return answer, nil
}

func (f *fileCall) encode(info fsys.Info) *wire.EntryInfo {
	if f.owners == nil {
		f.owners, f.groups = ident.Names("/etc/passwd"), ident.Names("/etc/group")
	}
	e := &wire.EntryInfo{
		Name: path.Base(info.Path), Path: info.Path, Size: info.Size, Mode: uint32(info.Mode.Perm()),
		Permissions: info.Mode.String(), Owner: named(f.owners, info.UID), Group: named(f.groups, info.GID),
		ModifiedTime: info.Change.UTC(),
	}
	switch info.Kind {
	case fsys.Dir:
		e.Type = wire.TypeDirectory
	case fsys.File:
		e.Type = wire.TypeFile
	}
	if info.Mode&fs.ModeSymlink != 0 {
		e.SymlinkTarget = &info.Link
	}
	if !utf8.ValidString(info.Path) {
		e.RawPath = wire.Bytes(info.Path)
	}
	return e
}

// named is the name of an id, or the number where nobody has it.
func named(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return itoa(int64(id))
}
