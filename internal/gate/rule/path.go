package rule

import (
	"strings"
	"unicode/utf8"

	"github.com/rung-dev/rung"
)

// MaxPath is the longest request path that is judged.
const MaxPath = 16 << 10

const hexDigits = "0123456789ABCDEF"

// NormalPath returns the normal form of a request path (RFC 3986 section 6.2.2): unreserved characters decoded, all other
// percent encodings in upper case, dot segments resolved, no query. Empty segments and ;parameters stay as they are. It
// refuses what servers are known to read in two ways: encoded slashes and backslashes, raw backslashes, control characters,
// dot segments that are encoded, dressed with parameters or spaces, double encoding, and bytes that are not UTF-8 (overlong
// forms among them). Upstream must be sent this form and no other.
func NormalPath(raw string) (string, error) { return normalPath(raw, false) }

// normalPath with scoped lets one encoded slash stay in a segment that begins with @: it is how npm's client spells
// @scope/name.
func normalPath(raw string, scoped bool) (string, error) {
	if len(raw) > MaxPath {
		return "", badPath(raw, "it is longer than 16 KiB")
	}
	raw, _, _ = strings.Cut(raw, "?")
	if raw == "" || raw[0] != '/' {
		return "", badPath(raw, "it does not begin with a slash")
	}
	if isPlainPath(raw) {
		return raw, nil
	}
	var out []string
	segments := strings.Split(raw[1:], "/")
	for i, s := range segments {
		n, why := normalSegment(s, scoped)
		if why != "" {
			return "", badPath(raw, why)
		}
		last := i == len(segments)-1
		switch n {
		case "..": // RFC 3986 section 5.2.4
			out = out[:max(len(out)-1, 0)]
		case ".":
		default:
			out = append(out, n)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/"), nil
}

// isPlainPath reports whether a path is in normal form at first sight, as nearly all are: nothing encoded, no segment that
// begins with a dot.
func isPlainPath(raw string) bool {
	for i := range len(raw) {
		if c := raw[i]; c != '/' && !isPathByte(c) || c == '.' && raw[i-1] == '/' {
			return false // the first byte is a slash, so that i-1 is there
		}
	}
	return true
}

// normalSegment returns the normal form of what is between two slashes, or what is wrong with it.
func normalSegment(s string, scoped bool) (string, string) {
	if isPlainSegment(s) {
		if s != "." && s != ".." && isDots(s) {
			return "", "it has a dot segment in disguise"
		}
		return s, ""
	}
	var out, decoded strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '%' {
			if why := badPathByte(c); why != "" {
				return "", why
			}
			decoded.WriteByte(c)
			writeByte(&out, c, isPathByte(c))
			continue
		}
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return "", "it has a percent sign without two hexadecimal digits"
		}
		c = unhex(s[i+1])<<4 | unhex(s[i+2])
		i += 2
		if scoped && c == '/' && s[0] == '@' {
			scoped = false // once
			out.WriteString("%2F")
			decoded.WriteByte(' ')
			continue
		}
		if why := badEncodedByte(c); why != "" {
			return "", why
		}
		decoded.WriteByte(c)
		writeByte(&out, c, isUnreserved(c))
	}
	n := out.String()
	switch {
	case !utf8.ValidString(decoded.String()):
		return "", "it is not UTF-8"
	case isDoubleEncoded(n):
		return "", "it is encoded twice"
	case isDots(n):
		return "", "it has a dot segment in disguise"
	}
	return n, scopedFault(n)
}

// scopedFault looks at the parts around an encoded slash, which only @scope%2Fname can have here.
func scopedFault(n string) string {
	before, after, cut := strings.Cut(n, "%2F")
	if cut && (len(before) < 2 || after == "" || isDots(after)) {
		return "it has an encoded slash"
	}
	return ""
}

// isPlainSegment reports whether nothing in a segment needs a change.
func isPlainSegment(s string) bool {
	for i := range len(s) {
		if !isPathByte(s[i]) {
			return false
		}
	}
	return true
}

// isDots reports whether a server that drops ;parameters or spaces would see a dot segment.
func isDots(s string) bool {
	s, _, _ = strings.Cut(s, ";")
	s, _, _ = strings.Cut(s, "%3B")
	for {
		t := strings.TrimSuffix(strings.TrimPrefix(s, "%20"), "%20")
		if t == s {
			return s == "." || s == ".."
		}
		s = t
	}
}

// isDoubleEncoded reports whether decoding once more would find another encoding.
func isDoubleEncoded(n string) bool {
	for {
		_, rest, found := strings.Cut(n, "%25")
		if !found {
			return false
		}
		if len(rest) >= 2 && isHex(rest[0]) && isHex(rest[1]) {
			return true
		}
		n = rest
	}
}

func badPathByte(c byte) string {
	switch {
	case c < 0x20 || c == 0x7f || c == ' ':
		return "it has a space or a control character"
	case c == '\\':
		return "it has a backslash"
	case c == '#':
		return "it has a fragment"
	case c >= utf8.RuneSelf:
		return "it has a byte that must be percent-encoded"
	}
	return ""
}

func badEncodedByte(c byte) string {
	switch {
	case c == '/':
		return "it has an encoded slash"
	case c == '\\':
		return "it has an encoded backslash"
	case c < 0x20 || c == 0x7f:
		return "it has an encoded control character"
	}
	return ""
}

func writeByte(b *strings.Builder, c byte, literal bool) {
	if literal {
		b.WriteByte(c)
		return
	}
	b.WriteByte('%')
	b.WriteByte(hexDigits[c>>4])
	b.WriteByte(hexDigits[c&15])
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// isPathByte is pchar of RFC 3986 section 3.3 without percent encodings.
func isPathByte(c byte) bool {
	if isUnreserved(c) {
		return true
	}
	switch c {
	case '!', '$', '&', '\'', '(', ')', '*', '+', ',', ';', '=', ':', '@':
		return true
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	default:
		return c - 'a' + 10
	}
}

func badPath(raw, why string) error {
	return rung.Errorf(rung.KindInvalid, "the path %s has no single meaning: %s", quote(raw), why)
}

// pattern is a path pattern in parts: literal ones, * for one segment that is not empty, ** in the last place for any rest.
type pattern []string

// parsePattern takes a pattern only in normal form, so that what is written is what is matched.
func parsePattern(text string) (pattern, error) {
	if strings.ContainsRune(text, '?') {
		return nil, rung.Errorf(rung.KindInvalid, "path pattern %s has a query: queries are not matched", quote(text))
	}
	n, err := NormalPath(text)
	if err != nil {
		return nil, err
	}
	if n != text {
		return nil, rung.Errorf(rung.KindInvalid, "path pattern %s is not in normal form", quote(text)).WithHint("write " + n)
	}
	parts := pattern(strings.Split(text[1:], "/"))
	for i, part := range parts {
		switch {
		case !strings.Contains(part, "*"), part == "*", part == "**" && i == len(parts)-1:
		case part == "**":
			return nil, rung.Errorf(rung.KindInvalid, "path pattern %s: ** can only be its last part", quote(text))
		default:
			return nil, rung.Errorf(rung.KindInvalid, "path pattern %s: * stands only for a whole part between slashes", quote(text))
		}
	}
	return parts, nil
}

// match reports whether a path in normal form is what the pattern names.
func (p pattern) match(path string) bool {
	rest := strings.TrimPrefix(path, "/")
	for i, part := range p {
		if part == "**" {
			return true
		}
		segment, tail, more := strings.Cut(rest, "/")
		if part != segment && (part != "*" || segment == "") {
			return false
		}
		if i == len(p)-1 {
			return !more
		}
		if !more {
			return false
		}
		rest = tail
	}
	return false
}
