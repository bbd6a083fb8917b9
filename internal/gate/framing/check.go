package framing

import (
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// special are the fields that decide where a request ends or who gets it. Each may be there once, and no field may be
// one of them but for an underscore.
type special struct {
	host, length, encoding, upgrade, expect string
	has                                     map[string]bool
}

func once(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding", "upgrade", "expect", "http2-settings", "trailer", "te":
		return true
	}
	return false
}

// check judges the fields together.
func (h *Head) check() error {
	s := special{has: make(map[string]bool, len(h.Fields))}
	underscored := false
	for _, f := range h.Fields {
		name := strings.ToLower(f.Name)
		if once(name) && s.has[name] {
			return invalid("%s is there twice", f.Name)
		}
		s.has[name] = true
		underscored = underscored || strings.Contains(name, "_")
		s.keep(name, f.Value)
	}
	if underscored {
		if err := s.twins(); err != nil {
			return err
		}
	}
	for _, judge := range []func(special) error{h.checkHost, h.checkBody, h.checkConnection, h.checkExpect} {
		if err := judge(s); err != nil {
			return err
		}
	}
	return nil
}

func (s *special) keep(name, value string) {
	switch name {
	case "host":
		s.host = value
	case "content-length":
		s.length = value
	case "transfer-encoding":
		s.encoding = value
	case "upgrade":
		s.upgrade = value
	case "expect":
		s.expect = value
	}
}

// twins refuses names that CGI's rule (RFC 3875 4.1.18) makes equal to another's or to a special one.
func (s *special) twins() error {
	for name := range s.has {
		if !strings.Contains(name, "_") {
			continue
		}
		twin := strings.ReplaceAll(name, "_", "-")
		if once(twin) || twin == "connection" || s.has[twin] {
			return invalid("the field %.64s is %.64s to some servers", name, twin)
		}
	}
	return nil
}

// checkHost: RFC 9112 3.2.
func (h *Head) checkHost(s special) error {
	if !s.has["host"] {
		if h.Minor == 1 {
			return invalid("it has no Host")
		}
		if h.Scheme == "" {
			return invalid("it is HTTP/1.0 without a Host")
		}
		return h.validHost()
	}
	if h.Scheme != "" && withPort(h.Scheme, h.Host) != withPort(h.Scheme, s.host) {
		return invalid("its target names %.64q and its Host %.64q", h.Host, s.host)
	}
	h.Host = s.host
	return h.validHost()
}

func (h *Head) validHost() error {
	host, port := h.Host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host, port = host[:i], host[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return invalid("the port in its Host %.64q", h.Host)
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok || strings.Trim(inner, "0123456789abcdefABCDEF:.") != "" || inner == "" {
			return invalid("its Host %.64q", h.Host)
		}
		return nil
	}
	for i := range len(host) {
		c := host[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return invalid("its Host %.64q is not one host name", h.Host)
		}
	}
	if host == "" || len(host) > 254 {
		return invalid("its Host is empty or too long")
	}
	return nil
}

// withPort spells the authority so that two of them can be compared.
func withPort(scheme, authority string) string {
	authority = strings.ToLower(authority)
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		return authority
	}
	if scheme == "https" {
		return authority + ":443"
	}
	return authority + ":80"
}

// checkBody: RFC 9112 6.
func (h *Head) checkBody(s special) error {
	if s.has["transfer-encoding"] {
		switch {
		case s.has["content-length"]:
			return invalid("it has both Content-Length and Transfer-Encoding")
		case h.Minor == 0:
			return invalid("it is HTTP/1.0 with a Transfer-Encoding")
		case !strings.EqualFold(s.encoding, "chunked"):
			return invalid("its Transfer-Encoding is %.64q, not chunked", s.encoding)
		}
		h.Chunked = true
	}
	if !s.has["content-length"] {
		return nil
	}
	v := s.length
	if v == "" || len(v) > maxLengthDigits || strings.Trim(v, "0123456789") != "" || len(v) > 1 && v[0] == '0' {
		return invalid("its Content-Length is %.64q", v)
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return invalid("its Content-Length is %.64q", v)
	}
	h.Length = n
	return nil
}

// checkConnection: RFC 9110 7.6.1 and 7.8.
func (h *Head) checkConnection(s special) error {
	h.Close = h.Minor == 0
	upgrade := false
	for _, f := range h.Fields {
		if !strings.EqualFold(f.Name, "Connection") {
			continue
		}
		for option := range strings.SplitSeq(f.Value, ",") {
			switch option = strings.ToLower(strings.Trim(option, " \t")); {
			case option == "close":
				h.Close = true
			case option == "upgrade":
				upgrade = true
			case option == "keep-alive" || option == "te" || option == "":
			case once(option) || option == "connection" || !token(option):
				return invalid("its Connection field names %.64q", option)
			}
		}
	}
	if s.has["http2-settings"] {
		return invalid("it asks for h2c, which would be a tunnel that nothing judges")
	}
	if !s.has["upgrade"] {
		return nil
	}
	if !strings.EqualFold(s.upgrade, "websocket") {
		return invalid("it asks for an upgrade to %.64q; only websocket can be judged", s.upgrade).
			WithHint("switch the upgrade off in the client (curl: --http1.1)")
	}
	if !upgrade || h.Method != "GET" || h.Minor == 0 || h.Chunked || h.Length > 0 { // RFC 6455 4.1
		return invalid("its upgrade to websocket is not a GET with Connection: Upgrade and no body")
	}
	h.WebSocket = true
	return nil
}

// checkExpect: RFC 9110 10.1.1.
func (h *Head) checkExpect(s special) error {
	if !s.has["expect"] {
		return nil
	}
	if !strings.EqualFold(s.expect, "100-continue") {
		return invalid("it expects %.64q", s.expect)
	}
	h.Continue = h.Minor == 1 && (h.Chunked || h.Length > 0)
	return nil
}

// IsMalformed says whether err is this package's word on the bytes, not the connection's on itself.
func IsMalformed(err error) bool { return rung.KindOf(err) == rung.KindInvalid }
