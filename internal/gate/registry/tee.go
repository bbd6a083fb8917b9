package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"

	"github.com/rung-dev/rung"
)

// Tee returns the body of the answer to a judged request, unchanged, and calls report once with the package: with its digest
// when the whole file has passed, without one when a part has (a range, a cut or abandoned body) or when the bytes are in a
// content encoding and so not the file's. A part is reported too: who leaves the last byte out has fetched the package.
// The body must be closed.
func (j *Judge) Tee(v Verdict, status int, header http.Header, body io.ReadCloser, report func(rung.Package)) io.ReadCloser {
	if v.Package == (rung.Package{}) || status != http.StatusOK && status != http.StatusPartialContent {
		return body
	}
	t := &tee{ReadCloser: body, pkg: v.Package, report: report}
	encoding := header.Get("Content-Encoding")
	if status == http.StatusOK && header.Get("Content-Range") == "" && (encoding == "" || encoding == "identity") {
		t.sum = sha256.New()
	}
	return t
}

type tee struct {
	io.ReadCloser
	pkg    rung.Package
	sum    hash.Hash // nil where there is nothing to digest
	some   bool      // bytes have passed
	report func(rung.Package)
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.some = t.some || n > 0
	if t.sum != nil {
		t.sum.Write(p[:n])
	}
	if err == io.EOF {
		if t.sum != nil {
			t.pkg.Digest = "sha256:" + hex.EncodeToString(t.sum.Sum(nil))
		}
		t.tell()
	}
	return n, err
}

func (t *tee) Close() error {
	if t.some {
		t.tell()
	}
	return t.ReadCloser.Close()
}

func (t *tee) tell() {
	if t.report != nil {
		t.report(t.pkg)
		t.report = nil
	}
}
