// Package framing reads the head and the chunked body of an HTTP/1.x request the strict way (RFC 9112), before anything
// else looks at it. It exists because lenient readers disagree about where a request ends, and whoever disagrees with
// the server behind him can be made to judge one request and pass on two (request smuggling).
//
// The package only ever refuses. What it lets through is judged afterwards, and what goes upstream is written anew from
// the parsed form, never copied. Everything that two readers could take differently is refused, although RFC 9112 lets a
// recipient repair some of it:
//
//   - a line that does not end in CR LF, a lone CR, NUL and other control bytes, anything but ASCII
//   - whitespace before a colon, before the first field, at the start of a line (obs-fold) or inside the target
//   - Content-Length that is repeated, a list, signed, or has leading zeros; Content-Length with Transfer-Encoding
//   - Transfer-Encoding other than exactly "chunked", or in HTTP/1.0
//   - Host that is repeated, missing, or holds more than a host and a port; an absolute target that names another
//   - a field whose name is another's, or one of those above, but for an underscore (CGI and WSGI make them equal)
//   - CONNECT, authority-form, upgrades other than to websocket (h2c above all), Expect other than 100-continue
//   - an empty line before the request, HTTP/0.9, and versions other than 1.0 and 1.1
//   - chunk extensions, chunk sizes with anything but one to eight hexadecimal digits
//
// Trailer fields are read as strictly and then dropped: RFC 9110 6.5.1 lets a recipient discard them, and nobody judged
// them. HTTP/1.0 is served with Host only, one request per connection.
package framing

import (
	"bufio"
	"strings"

	"github.com/rung-dev/rung"
)

const (
	// MaxHead caps the request line and the fields, together and in bytes.
	MaxHead = 64 << 10
	// MaxFields caps the number of fields.
	MaxFields = 100
	// maxMethod is longer than any registered method (IANA, HTTP Method Registry).
	maxMethod = 32
	// maxLengthDigits keeps Content-Length within 63 bits.
	maxLengthDigits = 18
)

// Field is one header field as it was sent, without the whitespace around its value.
type Field struct{ Name, Value string }

// Head is a request's head.
type Head struct {
	Method     string
	Scheme     string // "http" or "https" of an absolute target, else ""
	Path       string // begins with "/", or is "*"
	Query      string // without "?"
	ForceQuery bool   // the target had a "?"
	Minor      int    // of HTTP/1.x
	Host       string // as sent; "" in HTTP/1.0 without one
	Fields     []Field
	Length     int64 // Content-Length; -1 without one
	Chunked    bool
	Close      bool // no further request follows on this connection
	WebSocket  bool // an upgrade to websocket is asked for
	Continue   bool // the client waits for 100 (Continue)
}

// ReadHead reads up to and with the empty line that ends a head, and nothing behind it but what r buffers. The error is
// of KindInvalid when the bytes are no head; otherwise it is r's.
func ReadHead(r *bufio.Reader) ([]byte, error) {
	var head []byte
	start := 0 // of the current line
	for {
		part, err := r.ReadSlice('\n')
		if len(head)+len(part) > MaxHead {
			return nil, invalid("its head has more than %d bytes", MaxHead)
		}
		head = append(head, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return head, err
		}
		line := head[start:]
		if len(line) < 2 || line[len(line)-2] != '\r' {
			return nil, invalid("a line ends in a bare LF")
		}
		if len(line) == 2 {
			return head, nil
		}
		start = len(head)
	}
}

// Parse reads a whole head as ReadHead returns it.
func Parse(head []byte) (Head, error) {
	text, ok := strings.CutSuffix(string(head), "\r\n\r\n")
	if !ok || len(head) > MaxHead {
		return Head{}, invalid("its head is not complete")
	}
	request, rest, more := strings.Cut(text, "\r\n")
	h := Head{Length: -1}
	if err := h.requestLine(request); err != nil {
		return Head{}, err
	}
	for more {
		var line string
		line, rest, more = strings.Cut(rest, "\r\n")
		f, err := field(line)
		if err != nil {
			return Head{}, err
		}
		if len(h.Fields) == MaxFields {
			return Head{}, invalid("it has more than %d fields", MaxFields)
		}
		h.Fields = append(h.Fields, f)
	}
	if err := h.check(); err != nil {
		return Head{}, err
	}
	return h, nil
}

// requestLine reads method SP target SP version: RFC 9112 3.
func (h *Head) requestLine(line string) error {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 {
		return invalid("its request line is not method, target and version")
	}
	switch version {
	case "HTTP/1.1":
		h.Minor = 1
	case "HTTP/1.0":
	default:
		return invalid("its version is %.16q, not HTTP/1.1 or HTTP/1.0", version)
	}
	if !validMethod(method) {
		return invalid("its method %.32q is not upper-case letters", method)
	}
	if method == "CONNECT" {
		return invalid("CONNECT asks for a tunnel, which nothing could judge")
	}
	h.Method = method
	return h.target(target)
}

// validMethod is narrower than a token (RFC 9110 9.1): methods are case-sensitive, and a server that does not know it
// would take "get" for GET after a rule has not.
func validMethod(m string) bool {
	if m == "" || len(m) > maxMethod {
		return false
	}
	for i := range len(m) {
		if (m[i] < 'A' || m[i] > 'Z') && (m[i] != '-' || i == 0) {
			return false
		}
	}
	return true
}

func (h *Head) target(t string) error {
	for i := range len(t) {
		if t[i] <= ' ' || t[i] >= 0x7f || t[i] == '#' {
			return invalid("its target holds the byte %#02x", t[i])
		}
	}
	for _, scheme := range []string{"http", "https"} {
		if rest, ok := cutPrefixFold(t, scheme+"://"); ok {
			return h.absolute(scheme, rest)
		}
	}
	if t == "*" && h.Method == "OPTIONS" {
		h.Path = t
		return nil
	}
	if !strings.HasPrefix(t, "/") {
		return invalid("its target is neither a path nor a URL")
	}
	h.Path, h.Query, h.ForceQuery = strings.Cut(t, "?")
	return nil
}

// absolute reads the rest of an absolute target. Its authority waits in Host for check to compare.
func (h *Head) absolute(scheme, rest string) error {
	h.Scheme = scheme
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	h.Host = rest[:end]
	h.Path, h.Query, h.ForceQuery = strings.Cut(rest[end:], "?")
	if h.Path == "" { // RFC 9112 3.2.2: an empty path is "/"
		h.Path = "/"
	}
	return nil
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}

// field reads name ":" OWS value OWS: RFC 9112 5.
func field(line string) (Field, error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !token(name) {
		return Field{}, invalid("the field name %.64q is not a token followed by a colon", name)
	}
	value = strings.Trim(value, " \t")
	if !ValidValue(value) {
		return Field{}, invalid("the value of %.64s holds control bytes or bytes beyond ASCII", name)
	}
	return Field{name, value}, nil
}

// ValidValue says whether s is visible ASCII, spaces and tabs. RFC 9110 5.5 allows bytes beyond ASCII as a relic; readers
// disagree about their encoding.
func ValidValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// token is RFC 9110 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func invalid(format string, args ...any) *rung.Error {
	return rung.Errorf(rung.KindInvalid, "not an acceptable HTTP request: "+format, args...)
}

// Target reads a request target in origin or asterisk form, as HTTP/2 has them in :path (RFC 9113 8.3.1), and the method
// beside it, by the same rules as Parse.
func Target(method, target string) (path, query string, force bool, err error) {
	h := Head{Method: method}
	if !validMethod(method) || method == "CONNECT" {
		return "", "", false, invalid("its method %.32q", method)
	}
	if !strings.HasPrefix(target, "/") && target != "*" {
		return "", "", false, invalid("its :path is not a path")
	}
	if err := h.target(target); err != nil {
		return "", "", false, err
	}
	return h.Path, h.Query, h.ForceQuery, nil
}

// Fields judges fields that came without HTTP/1.x framing, by the rules that protect an upstream which speaks HTTP/1.x.
func Fields(header map[string][]string) error {
	s := special{has: make(map[string]bool, len(header))}
	n, underscored := 0, false
	for name, values := range header {
		if n += len(values); n > MaxFields {
			return invalid("it has more than %d fields", MaxFields)
		}
		lower := strings.ToLower(name)
		if !token(name) || once(lower) && len(values) > 1 {
			return invalid("the field %.64q is no token, or is there twice", name)
		}
		for _, v := range values {
			if !ValidValue(v) {
				return invalid("the value of %.64s holds control bytes or bytes beyond ASCII", name)
			}
		}
		s.has[lower] = true
		underscored = underscored || strings.Contains(lower, "_")
	}
	if underscored {
		return s.twins()
	}
	return nil
}
