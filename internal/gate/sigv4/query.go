package sigv4

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/rung-dev/rung"
)

// isSignature reports whether one name=value of a query is part of a presigned URL's signature, however its name is
// encoded. A name that cannot be decoded is refused: somebody else might decode it.
func isSignature(pair string) (bool, error) {
	name, _, _ := strings.Cut(pair, "=")
	plain, err := url.QueryUnescape(name)
	if err == nil {
		_, err = url.QueryUnescape(pair)
	}
	if err != nil {
		return false, rung.Errorf(rung.KindRefused, "the query cannot be decoded: %w", err)
	}
	for _, s := range signature {
		if strings.EqualFold(plain, s) {
			return true, nil
		}
	}
	return false, nil
}

// clone is the URL to sign: the library takes the path from Opaque or EscapedPath, and the query from the parsed form.
func clone(req *http.Request) *url.URL {
	u := *req.URL
	u.User = nil
	if u.Host == "" {
		u.Host = req.Host
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return &u
}
