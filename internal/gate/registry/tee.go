package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"

	"github.com/rung-dev/rung"
)

// Tee returns the body of the answer to a judged request, unchanged, and calls report with the package and its digest once
// the whole of it has passed. A part (an answer other than 200, or one with a range) and a cut body report nothing. Bytes
// in a content encoding are not the file's: such a package is reported without a digest.
func (j *Judge) Tee(v Verdict, status int, header http.Header, body io.ReadCloser, report func(rung.Package)) io.ReadCloser {
	if v.Package == (rung.Package{}) || status != http.StatusOK || header.Get("Content-Range") != "" {
		return body
	}
	t := &tee{ReadCloser: body, pkg: v.Package, report: report}
	if encoding := header.Get("Content-Encoding"); encoding == "" || encoding == "identity" {
		t.sum = sha256.New()
	}
	return t
}

type tee struct {
	io.ReadCloser
	pkg    rung.Package
	sum    hash.Hash // nil where there is nothing to digest
	report func(rung.Package)
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if t.sum != nil {
		t.sum.Write(p[:n])
	}
	if err == io.EOF && t.report != nil {
		if t.sum != nil {
			t.pkg.Digest = "sha256:" + hex.EncodeToString(t.sum.Sum(nil))
		}
		t.report(t.pkg)
		t.report = nil
	}
	return n, err
}
