package registry

import (
	"slices"
	"strings"
)

const notDebian = "that is no read of a Debian archive: its indexes (dists/…, InRelease, Packages) and its package files are"

// parseDebian knows a Debian archive (wiki.debian.org/DebianRepository/Format): dists/ and what is named by it, package files
// wherever the archive keeps them, and the indexes of a flat archive.
func (j *Judge) parseDebian(segments []string) (read, string) {
	rest, ok := under(j.prefix, segments)
	if !ok || len(rest) == 0 || !noSlash(rest) {
		return read{}, notDebian
	}
	path := join(segments, false)
	last := rest[len(rest)-1]
	if name, version, ok := debianFile(last); ok {
		return read{path: path, name: name, version: version, file: true}, ""
	}
	if rest[0] == "dists" && len(rest) > 2 && debianDist(rest[2:]) || rest[0] != "pool" && debianIndex(last) {
		return read{path: path, metadata: true}, ""
	}
	return read{}, notDebian
}

// debianFile reads NAME_VERSION_ARCH.deb and the files of a source package: NAME_VERSION.dsc, .orig.tar.xz, .debian.tar.xz.
func debianFile(file string) (name, version string, ok bool) {
	name, rest, found := strings.Cut(file, "_")
	if !found || !debianName(name) {
		return "", "", false
	}
	for _, ending := range []string{".deb", ".udeb", ".ddeb"} {
		if stem, ok := strings.CutSuffix(rest, ending); ok {
			version, arch, found := strings.Cut(stem, "_")
			return name, version, found && debianVersion(version) && arch != "" && only(arch, "-")
		}
	}
	if stem, ok := strings.CutSuffix(rest, ".dsc"); ok {
		return name, stem, debianVersion(stem)
	}
	rest = strings.TrimSuffix(rest, ".asc") // a detached signature of an upstream tarball
	dot := strings.LastIndexByte(rest, '.')
	if dot < 1 || !slices.Contains([]string{".gz", ".xz", ".bz2", ".lzma", ".zst"}, rest[dot:]) {
		return "", "", false
	}
	stem, isTar := strings.CutSuffix(rest[:dot], ".tar")
	if !isTar {
		stem, isTar = strings.CutSuffix(rest[:dot], ".diff")
	}
	if at := strings.Index(stem, ".orig"); at > 0 {
		stem = stem[:at]
	}
	stem = strings.TrimSuffix(stem, ".debian")
	return name, stem, isTar && debianVersion(stem)
}

func debianVersion(s string) bool { return s != "" && len(s) <= 128 && only(s, ".+~:-") }

// debianDist holds for what is below dists/SUITE/: indexes by name or by hash, in any depth.
func debianDist(rest []string) bool {
	if n := len(rest); n > 2 && rest[n-3] == "by-hash" {
		return hexDigest(rest[n-1])
	}
	last := rest[len(rest)-1]
	if debianIndex(last) {
		return true
	}
	for _, start := range []string{"Translation-", "Contents-", "Components-", "icons-", "Commands-"} {
		if strings.HasPrefix(last, start) {
			return true
		}
	}
	return false
}

// debianIndex holds for the names of indexes, compressed or not.
func debianIndex(last string) bool {
	for _, ending := range []string{".gz", ".xz", ".bz2", ".lzma", ".lz4", ".zst"} {
		if stem, ok := strings.CutSuffix(last, ending); ok {
			last = stem
			break
		}
	}
	return slices.Contains([]string{"InRelease", "Release", "Release.gpg", "Packages", "Sources", "Index"}, last)
}

// hexDigest holds for the hexadecimal digests of by-hash: MD5 to SHA-512.
func hexDigest(s string) bool {
	if len(s) < 32 || len(s) > 128 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}
