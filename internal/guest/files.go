//go:build linux

package guest

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/fsys"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/ident"
)

// copyBuffer is what one transfer holds of a file.
const copyBuffer = 128 << 10

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func fileError(w *http1.Response, status int, message string) {
	w.JSON(status, wire.Marshal(wire.FileError{Code: status, Message: message}))
}

// failFile answers with the status that the error stands for outside the Connect services.
func failFile(w *http1.Response, err error) {
	e := wireError(err)
	status := e.Code.HTTPStatus()
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		status = 507
	case errors.Is(err, errTooLarge) || errors.Is(err, syscall.EFBIG):
		status = 413
	}
	fileError(w, status, e.Message)
}

var errTooLarge = errors.New("the upload is larger than allowed")

// download serves GET /files.
func (s *server) download(w *http1.Response, r *http1.Request) {
	f, info, err := s.openFile(r)
	if err != nil {
		failFile(w, err)
		return
	}
	defer f.Close()
	if e := r.Header.Get("Accept-Encoding"); strings.Contains(strings.ReplaceAll(e, " ", ""), "identity;q=0") {
		fileError(w, 406, "only the identity encoding is available")
		return
	}
	w.Set("Content-Type", "application/octet-stream")
	w.Set("Accept-Ranges", "bytes")
	w.Set("Last-Modified", info.Change.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	from, n, ok := byteRange(r.Header.Get("Range"), info.Size)
	switch {
	case !ok:
		w.Set("Content-Range", "bytes */"+itoa(info.Size))
		w.Start(416, 0)
	case info.Size == 0: // empty, or a file whose size the kernel does not know before it is read
		sendUnsized(w, f)
	default:
		status := 200
		if n != info.Size {
			status = 206
			w.Set("Content-Range", "bytes "+itoa(from)+"-"+itoa(from+n-1)+"/"+itoa(info.Size))
		}
		w.Start(status, n)
		io.CopyBuffer(plainWriter{w}, io.NewSectionReader(f, from, n), make([]byte, min(copyBuffer, n))) // a short body ends the connection
	}
}

// plainWriter hides everything but Write, so that copying uses the buffer it was given.
type plainWriter struct{ w io.Writer }

func (p plainWriter) Write(b []byte) (int, error) { return p.w.Write(b) }

func sendUnsized(w *http1.Response, f *os.File) {
	buf := make([]byte, copyBuffer)
	n, err := io.ReadFull(f, buf)
	if err != nil { // io.EOF or io.ErrUnexpectedEOF: that was all
		w.Send(200, buf[:n])
		return
	}
	w.Start(200, -1)
	w.Write(buf)
	io.CopyBuffer(plainWriter{w}, f, buf)
}

func (s *server) openFile(r *http1.Request) (*os.File, fsys.Info, error) {
	u, name, err := s.fileTarget(r)
	if err != nil {
		return nil, fsys.Info{}, err
	}
	var f *os.File
	var info fsys.Info
	err = u.As(func() (err error) {
		f, info, err = s.files.Open(name, r.Header.Get(wire.HeaderNofollow) == "1")
		return err
	})
	return f, info, err
}

func (s *server) fileTarget(r *http1.Request) (ident.User, string, error) {
	u, err := s.user(r, r.Query.Get("username"))
	if err != nil {
		return u, "", err
	}
	name := r.Query.Get("path")
	if name == "" {
		return u, "", errorf(wire.InvalidArgument, "path is missing")
	}
	return u, homePath(u, name), nil
}

// byteRange reads a Range header of one range; what it does not understand is the whole file, as HTTP says.
func byteRange(h string, size int64) (from, n int64, ok bool) {
	spec, found := strings.CutPrefix(h, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	if !found || !dash || strings.Contains(spec, ",") {
		return 0, size, true
	}
	a, errA := strconv.ParseUint(first, 10, 63)
	b, errB := strconv.ParseUint(last, 10, 63)
	switch {
	case first == "" && errB == nil: // the last b bytes
		n = min(int64(b), size)
		return size - n, n, n > 0
	case errA != nil || last != "" && errB != nil || errB == nil && b < a:
		return 0, size, true
	case int64(a) >= size:
		return 0, 0, false
	case last == "":
		return int64(a), size - int64(a), true
	default:
		return int64(a), min(int64(b), size-1) - int64(a) + 1, true
	}
}

// upload serves POST /files: one raw body, or a form with a file per part.
func (s *server) upload(w *http1.Response, r *http1.Request) {
	written, err := s.uploadAll(r)
	if err != nil {
		failFile(w, err)
		return
	}
	w.JSON(200, wire.Marshal(written))
}

func (s *server) uploadAll(r *http1.Request) ([]wire.Written, error) {
	for _, f := range r.Header {
		if len(f.Name) > 11 && strings.EqualFold(f.Name[:11], "X-Metadata-") {
			return nil, errorf(wire.Unimplemented, "file metadata is not supported")
		}
	}
	u, err := s.user(r, r.Query.Get("username"))
	if err != nil {
		return nil, err
	}
	up := &uploading{s: s, user: u, left: s.cfg.MaxUpload}
	if up.left == 0 {
		up.left = 1 << 62
	}
	if err := up.setMode(r.Header.Get(wire.HeaderMode)); err != nil {
		return nil, err
	}
	body, err := encoded(r)
	if err != nil {
		return nil, err
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "multipart/form-data":
		err = up.form(body, params["boundary"], r.Query.Get("path"))
	case err == nil && kind == "application/octet-stream":
		var name string
		if _, name, err = s.fileTarget(r); err == nil {
			err = up.file(name, body)
		}
	default:
		err = errorf(wire.InvalidArgument, "content type must be multipart/form-data or application/octet-stream")
	}
	return up.written, err
}

func encoded(r *http1.Request) (io.Reader, error) {
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, errorf(wire.InvalidArgument, "gzip: %v", err)
		}
		return z, nil
	default:
		return nil, errorf(wire.InvalidArgument, "content encoding is not supported")
	}
}

// uploading is one POST /files.
type uploading struct {
	s       *server
	user    ident.User
	left    int64 // bytes that may still be written
	mode    fs.FileMode
	written []wire.Written
}

func (up *uploading) setMode(octal string) error {
	if octal == "" {
		return nil
	}
	mode, err := strconv.ParseUint(octal, 8, 16)
	if err != nil || mode == 0 || mode > 0o777 {
		return errorf(wire.InvalidArgument, "%s must be permission bits in octal", wire.HeaderMode)
	}
	up.mode = fs.FileMode(mode)
	return nil
}

// maxParts caps the files of one form.
const maxParts = 10_000

func (up *uploading) form(body io.Reader, boundary, to string) error {
	if boundary == "" {
		return errorf(wire.InvalidArgument, "the form has no boundary")
	}
	seen := map[string]bool{}
	for form := multipart.NewReader(body, boundary); ; {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errorf(wire.InvalidArgument, "form: %v", err)
		}
		field, file := disposition(part.Header.Get("Content-Disposition"))
		if field != "file" {
			continue
		}
		name := to
		if name == "" {
			name = file
		}
		if name == "" {
			return errorf(wire.InvalidArgument, "a file of the form has no name")
		}
		name = homePath(up.user, name)
		if seen[name] || len(seen) == maxParts {
			return errorf(wire.InvalidArgument, "%s: twice in the form, or too many files", name)
		}
		seen[name] = true
		if err := up.file(name, part); err != nil {
			return err
		}
	}
	if len(seen) == 0 {
		return errorf(wire.InvalidArgument, "the form has no file")
	}
	return nil
}

// disposition reads a part's field name and file name. Slashes in the file name are kept: it is a path.
func disposition(h string) (field, file string) {
	kind, params, err := mime.ParseMediaType(h)
	if err != nil || kind != "form-data" {
		return "", ""
	}
	return params["name"], params["filename"]
}

// file writes one file. What was written before an error stays, as it would with any writer.
func (up *uploading) file(name string, body io.Reader) error {
	var f *os.File
	err := up.user.As(func() (err error) {
		f, _, err = up.s.files.Create(name, up.mode)
		return err
	})
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(plainWriter{f}, io.LimitReader(sourceReader{body}, up.left+1), make([]byte, copyBuffer))
	if up.left -= n; err == nil && up.left < 0 {
		err = errTooLarge
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if source, ok := errors.AsType[*sourceError](err); ok {
		return errorf(wire.InvalidArgument, "read body: %v", source.err)
	}
	if err != nil {
		return err
	}
	up.written = append(up.written, wire.Written{Name: path.Base(name), Path: name, Type: "file"})
	return nil
}

// sourceReader marks errors of the reading side, which are the client's, apart from those of the disk.
type sourceReader struct{ r io.Reader }

type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

func (s sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		err = &sourceError{err}
	}
	return n, err
}
