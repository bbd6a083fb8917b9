package web

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// hop are the fields that end at the next hop (RFC 9110 7.6.1) or that the transport writes itself.
func hop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Host",
		"Content-Length", "Expect", "Alt-Used":
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "X-Rung-")
}

// override are fields with which a request asks to be taken for another: frameworks honour them after every judge.
func override(name string) bool {
	switch name {
	case "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url",
		"X-Original-Method", "X-Forwarded-Host", "X-Host", "X-Forwarded-Server", "X-Original-Host", "Forwarded":
		return true
	}
	return false
}

// endToEnd leaves in h what goes upstream. twoWay keeps "TE: trailers", without which gRPC does not answer.
func endToEnd(h http.Header, twoWay bool) error {
	trailers := twoWay && h.Get("Te") == "trailers"
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			delete(h, http.CanonicalHeaderKey(strings.Trim(name, " \t")))
		}
	}
	for name := range h {
		if override(http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			return rung.Errorf(rung.KindRefused, "the field %s makes some servers take this request for another one than was judged", name).
				WithHint("send the request as what it is, without the field")
		}
		if hop(name) {
			delete(h, name)
		}
	}
	if trailers {
		h["Te"] = []string{"trailers"}
	}
	return nil
}

// answerFields copies the fields of an answer that are the client's.
func answerFields(to, from http.Header) {
	listed := map[string]bool{}
	for _, v := range from["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			listed[http.CanonicalHeaderKey(strings.Trim(name, " \t"))] = true
		}
	}
	for name, values := range from {
		if hop(name) || listed[name] || name == "Alt-Svc" {
			continue
		}
		to[name] = values
	}
}

// hostPort is what Host says for a name and port.
func hostPort(name string, port int, tls bool) string {
	if tls && port == 443 || !tls && port == 80 {
		if strings.Contains(name, ":") {
			return "[" + name + "]"
		}
		return name
	}
	return net.JoinHostPort(name, strconv.Itoa(port))
}

// normal is a name in lower case without a trailing dot.
func normal(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// mine says whether Host or :authority names this connection's name and port, and nothing else.
func (s *server) mine(host string) bool {
	name, port := host, 80
	if s.TLS {
		port = 443
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		n, err := strconv.ParseUint(host[i+1:], 10, 16)
		if err != nil {
			return false
		}
		name, port = host[:i], int(n)
	}
	if strings.Contains(s.Name, ":") { // an IPv6 address that a CIDR rule names
		return name == "["+s.Name+"]" && port == s.Port
	}
	return normal(name) == s.Name && port == s.Port
}
