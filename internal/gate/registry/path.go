package registry

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

const (
	maxPath     = 2048
	maxSegments = 32
	maxSegment  = 255
)

var (
	errPath    = errors.New("the path is not one of a registry's: it must be absolute, short and without dot segments")
	errEscapes = errors.New("the path has bytes or escapes that no package's name has")
)

// split takes a path apart into decoded segments and tells whether it ended in a slash. Every name, version and file that a
// registry serves is made of few plain characters, so decoding once is unambiguous and anything else is refused. An escaped
// slash stays inside its segment: npm spells a scoped name /@scope%2fname.
func split(path string) (segments []string, slash bool, err error) {
	if len(path) > maxPath || !strings.HasPrefix(path, "/") {
		return nil, false, errPath
	}
	path = path[1:]
	if path == "" {
		return nil, true, nil
	}
	if path, slash = strings.CutSuffix(path, "/"); path == "" {
		return nil, false, errPath
	}
	if strings.Count(path, "/") >= maxSegments {
		return nil, false, errPath
	}
	for raw := range strings.SplitSeq(path, "/") {
		segment, err := url.PathUnescape(raw)
		if err != nil || !plain(segment) {
			return nil, false, errEscapes
		}
		if segment == "" || segment == "." || segment == ".." || len(segment) > maxSegment {
			return nil, false, errPath
		}
		segments = append(segments, segment)
	}
	return segments, slash, nil
}

// plain holds for what a decoded segment may consist of.
func plain(s string) bool {
	at := strings.IndexByte(s, '/')
	if at >= 0 && (s[0] != '@' || at == 1 || at == len(s)-1 || strings.IndexByte(s[at+1:], '/') >= 0) {
		return false
	}
	return only(s, "._~+!@=:,^-/")
}

// only holds when s has ASCII letters, digits and the extra characters, nothing else.
func only(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(extra, c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// join spells segments as a path for upstream. A plus is escaped, because hosts on object stores take a bare one for a space
// (apt escapes it for the same reason); a slash within a segment becomes npm's %2f, in the spelling npm sends.
func join(segments []string, slash bool) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		for i := range len(s) {
			switch c := s[i]; c {
			case '/':
				b.WriteString("%2f")
			case '+', '!', '^', ',':
				const hex = "0123456789ABCDEF"
				b.WriteByte('%')
				b.WriteByte(hex[c>>4])
				b.WriteByte(hex[c&15])
			default:
				b.WriteByte(c)
			}
		}
	}
	if slash || len(segments) == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

// under returns what follows the prefix.
func under(prefix, segments []string) ([]string, bool) {
	if len(segments) < len(prefix) || !slices.Equal(prefix, segments[:len(prefix)]) {
		return nil, false
	}
	return segments[len(prefix):], true
}

// noSlash holds when no segment has one inside: it is npm's alone.
func noSlash(segments []string) bool {
	return !slices.ContainsFunc(segments, func(s string) bool { return strings.Contains(s, "/") })
}
