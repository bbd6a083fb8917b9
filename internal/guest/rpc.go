//go:build linux

package guest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/confine"
	"github.com/rung-dev/rung/internal/guest/fsys"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/ident"
	"github.com/rung-dev/rung/internal/guest/proc"
)

// server is the state behind the handlers.
type server struct {
	cfg     *Config
	files   *fsys.Tree
	procs   *proc.Table
	measure measurement
	// confined is what package confine achieved, nil where a container runtime built the wall.
	confined *confine.Report
}

// errorf makes an error with a code.
func errorf(code wire.Code, format string, args ...any) error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// handle routes one request.
func (s *server) handle(w *http1.Response, r *http1.Request) {
	if name, ok := strings.CutPrefix(r.Path, "/process.Process/"); ok {
		s.process(name, w, r)
		return
	}
	if name, ok := strings.CutPrefix(r.Path, "/filesystem.Filesystem/"); ok {
		s.filesystem(name, w, r)
		return
	}
	switch r.Method + " " + r.Path {
	case "GET /health", "HEAD /health":
		w.Start(204, 0)
	case "GET /rung/v1/measure":
		s.measure.answer(w, r)
	case "GET /files", "HEAD /files":
		s.download(w, r)
	case "POST /files":
		s.upload(w, r)
	case "GET /envs":
		s.envs(w)
	case "GET /metrics":
		s.metrics(w)
	case "POST /files/compose":
		fileError(w, 501, "composing files is not supported")
	default:
		fileError(w, 404, "no such route")
	}
}

// unary answers one call: it decodes the request, calls do, and encodes what that returns.
func unary[Req any](w *http1.Response, r *http1.Request, do func(context.Context, *Req) (any, error)) {
	req := new(Req)
	err := decodeUnary(r, req)
	var answer any
	if err == nil {
		ctx, cancel := deadline(r)
		defer cancel()
		answer, err = do(ctx, req)
	}
	if err != nil {
		failUnary(w, err)
		return
	}
	w.JSON(200, wire.Marshal(answer))
}

func failUnary(w *http1.Response, err error) {
	e := wireError(err)
	status := e.Code.HTTPStatus()
	if errors.Is(err, errMedia) {
		status = 415
	}
	w.JSON(status, wire.Marshal(e))
}

// errMedia is Connect's answer to a codec that the server does not speak: 415 outside the codes.
var errMedia error = &wire.Error{Code: wire.InvalidArgument, Message: "only Connect calls in JSON are served"}

// deadline is the client's; a unary call is never without one.
func deadline(r *http1.Request) (context.Context, context.CancelFunc) {
	d := timeout(r)
	if d <= 0 || d > time.Hour {
		d = time.Hour
	}
	return context.WithTimeout(r.Context, d)
}

// timeout reads Connect-Timeout-Ms; 0 is none.
func timeout(r *http1.Request) time.Duration {
	ms, err := strconv.ParseUint(r.Header.Get(wire.HeaderTimeout), 10, 40)
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func decodeUnary(r *http1.Request, req any) error {
	if err := callable(r, "application/json"); err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxMessage+1))
	if err != nil {
		return errorf(wire.InvalidArgument, "read request: %v", err)
	}
	return decode(body, req)
}

// callable refuses what is no Connect call in JSON.
func callable(r *http1.Request, media string) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case r.Method != "POST":
		return errorf(wire.Unimplemented, "calls are POST requests")
	case !strings.EqualFold(strings.TrimSpace(kind), media):
		return errMedia
	}
	if e := r.Header.Get("Content-Encoding") + r.Header.Get("Connect-Content-Encoding"); e != "" && e != "identity" {
		return errorf(wire.Unimplemented, "compression is not supported")
	}
	return nil
}

// decode reads a message. Unknown fields are ignored, an empty body is the empty message.
func decode(body []byte, req any) error {
	if len(body) > wire.MaxMessage {
		return errorf(wire.ResourceExhausted, "request is larger than %d bytes", wire.MaxMessage)
	}
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, req); err != nil {
		return errorf(wire.InvalidArgument, "decode request: %v", err)
	}
	return nil
}

// wireError gives every error its code.
func wireError(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*proc.StartError](err); ok {
		return &wire.Error{Code: startCode(e), Message: "start: " + e.Error()}
	}
	var code wire.Code
	switch {
	case errors.Is(err, proc.ErrNotFound):
		code = wire.NotFound
	case errors.Is(err, proc.ErrNoInput):
		code = wire.FailedPrecondition
	case errors.Is(err, ident.ErrUnknown):
		code = wire.Unauthenticated
	case errors.Is(err, context.DeadlineExceeded):
		code = wire.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = wire.Canceled
	case errors.Is(err, fsys.ErrInvalid):
		code = wire.InvalidArgument
	default:
		code = errnoCode(err)
	}
	return &wire.Error{Code: code, Message: err.Error()}
}

func startCode(e *proc.StartError) wire.Code {
	code := errnoCode(e.Err)
	if e.Op == "cwd" || code == wire.Internal {
		return wire.InvalidArgument
	}
	return code
}

func errnoCode(err error) wire.Code {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return wire.Internal
	}
	switch errno {
	case syscall.ENOENT:
		return wire.NotFound
	case syscall.EEXIST:
		return wire.AlreadyExists
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return wire.PermissionDenied
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EFBIG:
		return wire.ResourceExhausted
	case syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.EXDEV, syscall.ENOTEMPTY, syscall.E2BIG, syscall.ENOEXEC:
		return wire.InvalidArgument
	default:
		return wire.Internal
	}
}

// user is who the call acts for: the name of its Basic authorization, or the default. The channel is the authentication;
// the name only chooses.
func (s *server) user(r *http1.Request, name string) (ident.User, error) {
	if name == "" {
		raw, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic ")
		if ok {
			plain, err := base64.StdEncoding.DecodeString(raw)
			if err != nil {
				return ident.User{}, errorf(wire.Unauthenticated, "malformed authorization")
			}
			name, _, _ = strings.Cut(string(plain), ":")
		}
	}
	if name == "" || name == s.cfg.User.Name {
		return s.cfg.User, nil
	}
	u, err := ident.Lookup("/etc/passwd", name)
	if err != nil {
		return u, errorf(wire.Unauthenticated, "unknown user %q", name)
	}
	if !s.allowed(u) {
		return u, errorf(wire.Unauthenticated, "user %q is not available here", name)
	}
	return u, nil
}

// allowed refuses two users to everybody where the guest is not root itself: the guest's own, whose processes could reach
// into it, and root, who owns the files of the template.
func (s *server) allowed(u ident.User) bool {
	if !s.cfg.DropCaps {
		return true
	}
	return !u.Self() && u.UID != 0
}
