package image

import (
	"os"
	"path/filepath"
)

// CAInside is where every template has the bundle of certificate authorities; the other usual places are links to it.
const CAInside = "/etc/ssl/certs/ca-certificates.crt"

// caPlaces are where distributions keep the bundle: Debian, Fedora and its kin (two), SUSE, Alpine.
func caPlaces() []string {
	return []string{
		CAInside,
		"/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/ssl/ca-bundle.pem",
		"/etc/ssl/cert.pem",
	}
}

// HostCABundle finds the host's bundle of certificate authorities, links resolved. It includes what an administrator added,
// such as the authority of a proxy that inspects TLS, which is why sandboxes see it and not one of their own.
func HostCABundle() (path string, ok bool) { return caBundle("/") }

// caBundle is HostCABundle below another root.
func caBundle(root string) (string, bool) {
	for _, place := range caPlaces() {
		path, err := filepath.EvalSymlinks(filepath.Join(root, place))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			return path, true
		}
	}
	return "", false
}
