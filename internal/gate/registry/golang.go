package registry

import (
	"regexp"
	"slices"
	"strings"
)

const notGo = "that is no read of a Go module: @v/list, @v/VERSION.info, .mod, .zip, @latest and the checksum database are"

// parseGo knows the module proxy protocol (go.dev/ref/mod#goproxy-protocol) and the checksum database (golang.org/design/
// 25530-sumdb), on a host of its own or below /sumdb/NAME of a proxy.
func (j *Judge) parseGo(segments []string) (read, string) {
	rest, ok := under(j.prefix, segments)
	if !ok || len(rest) == 0 || !noSlash(rest) {
		return read{}, notGo
	}
	r, ok := goDatabase(rest)
	if !ok {
		if r, ok = goModule(rest); !ok {
			return read{}, notGo
		}
	}
	r.path = join(append(j.start(), rest...), false)
	return r, ""
}

func goModule(rest []string) (read, bool) {
	at := slices.IndexFunc(rest, func(s string) bool { return strings.HasPrefix(s, "@") })
	if at < 1 {
		return read{}, false
	}
	name, ok := goUnescape(strings.Join(rest[:at], "/"))
	if !ok || !goPath(name) {
		return read{}, false
	}
	r := read{name: name, metadata: true}
	tail := rest[at:]
	switch {
	case len(tail) == 1 && tail[0] == "@latest", len(tail) == 2 && tail[0] == "@v" && tail[1] == "list":
		return r, true
	case len(tail) != 2 || tail[0] != "@v":
		return read{}, false
	}
	dot := strings.LastIndexByte(tail[1], '.')
	if dot < 1 || !slices.Contains([]string{".info", ".mod", ".zip"}, tail[1][dot:]) {
		return read{}, false
	}
	if r.version, ok = goUnescape(tail[1][:dot]); !ok || !goVersion(r.version) {
		return read{}, false
	}
	if tail[1][dot:] == ".zip" {
		r.file, r.metadata = true, false
	}
	return r, true
}

func goVersion(s string) bool { return s != "" && len(s) <= 128 && only(s, "._+~-") }

// goUnescape undoes the proxy protocol's spelling of capitals, !x for X. A bare capital is no spelling of anything.
func goUnescape(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'A' <= c && c <= 'Z':
			return "", false
		case c == '!':
			i++
			if i == len(s) || s[i] < 'a' || s[i] > 'z' {
				return "", false
			}
			c = s[i] - 'a' + 'A'
		}
		b = append(b, c)
	}
	return string(b), true
}

// goEscape is the way back.
func goEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			b.WriteByte('!')
			b.WriteByte(c - 'A' + 'a')
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

var tilePath = regexp.MustCompile(`^tile/[0-9]{1,2}/([0-9]{1,2}|data)/(x[0-9]{3}/){0,6}[0-9]{3}(\.p/[0-9]{1,3})?$`)

// goDatabase knows /supported, /latest, /lookup/MODULE@VERSION and /tile/HEIGHT/LEVEL/NUMBER.
func goDatabase(rest []string) (read, bool) {
	below := false
	if len(rest) > 2 && rest[0] == "sumdb" && only(rest[1], ".-") && strings.Contains(rest[1], ".") {
		rest, below = rest[2:], true
	}
	path := strings.Join(rest, "/")
	switch {
	case path == "latest", below && path == "supported", tilePath.MatchString(path):
		return read{}, true
	case rest[0] != "lookup":
		return read{}, false
	}
	module, version, found := strings.Cut(strings.TrimPrefix(path, "lookup/"), "@")
	name, ok := goUnescape(module)
	if !found || !ok || !goPath(name) {
		return read{}, false
	}
	version, ok = goUnescape(version)
	return read{name: name, version: version, metadata: true}, ok && goVersion(version)
}
