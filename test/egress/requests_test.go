//go:build linux

package egress

import (
	"strings"

	"github.com/rung-dev/rung/test/egress/order"
)

// requests is the batch of what can be hidden in HTTP.
func requests() *batch {
	b := &batch{
		name: "requests", policy: policy(), allowed: allowed(),
		// Variables of the sandbox are none of the gate's.
		args: []string{"--env", "RUNG_GATE_RESOLV_CONF=/dev/null", "--env", "SSL_CERT_FILE=/dev/null", "--env", "GODEBUG=netdns=cgo", "--env", "http_proxy=http://203.0.113.99:3128"},
	}
	b.cases = append(b.cases, hostile{
		pass: true, Case: order.Case{Name: "passes: pain-26 whatever variables say", Op: "stream", Host: "api.test", Port: 443, TLS: &order.TLS{}, Send: []byte("GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n")},
	})
	for name, text := range smuggled {
		b.cases = append(b.cases, request("smuggling: "+name, text, "http: "))
	}
	for _, path := range paths {
		b.cases = append(b.cases, request("pain-04 path "+strings.ReplaceAll(path, "{t}", "X"), "GET "+path+" HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "))
	}
	b.cases = append(b.cases, requestCases()...)
	return b
}

// request sends bytes to an allowed host whose rule has conditions. {t} stands where nothing may arrive.
func request(name, text, want string) hostile {
	return hostile{Case: order.Case{Name: name, Op: "stream", Host: "api.test", Port: 80, Send: []byte(text)}, want: want}
}

const hidden = "GET /v1/{t} HTTP/1.1\r\nHost: denied.test\r\n\r\n"

// smuggled are requests in which some server finds a second one.
var smuggled = map[string]string{
	"CL and TE":               "POST /v1/a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE and CL":               "POST /v1/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 100\r\n\r\n0\r\n\r\n" + hidden,
	"pain-05 two CL":          "POST /v1/a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\nContent-Length: 75\r\n\r\n" + hidden,
	"two equal CL":            "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
	"CL in a list":            "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0, 75\r\n\r\n" + hidden,
	"CL with a plus":          "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nContent-Length: +0\r\n\r\n" + hidden,
	"CL negative":             "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nContent-Length: -1\r\n\r\n" + hidden,
	"CL hexadecimal":          "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0x0\r\n\r\n" + hidden,
	"CL overflowing":          "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nContent-Length: 18446744073709551616\r\n\r\n" + hidden,
	"TE of no kind":           "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE identity":             "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n" + hidden,
	"TE twice":                "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	"TE with a tab":           "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE folded":               "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE in HTTP/1.0":          "POST /v1/{t} HTTP/1.0\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE with a space first":   "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE name with a space":    "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
	"chunk size overflowing":  "POST /v1/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + hidden,
	"chunk size with 0x":      "POST /v1/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + hidden,
	"chunk with a bare LF":    "POST /v1/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0\n\n" + hidden,
	"obs-fold":                "GET /v1/a HTTP/1.1\r\nHost: api.test\r\nX-A: b\r\n {t}\r\n\r\n",
	"bare LF":                 "GET /v1/{t} HTTP/1.1\nHost: api.test\n\n",
	"bare LF in a field":      "GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\nX-A: b\nX-B: c\r\n\r\n",
	"bare CR in a field":      "GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\nX-A: b\rX-B: c\r\n\r\n",
	"NUL in a field":          "GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\nX-A: b\x00c\r\n\r\n",
	"NUL in the target":       "GET /v1/{t}\x00 HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"pain-31 absolute form":   "GET http://denied.test/v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"absolute form, both":     "GET http://denied.test/v1/{t} HTTP/1.1\r\nHost: denied.test\r\n\r\n",
	"absolute form, userinfo": "GET http://api.test@denied.test/v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"absolute form, https":    "GET https://api.test/v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"absolute form, metadata": "GET http://169.254.169.254/v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"two Hosts":               "GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\nHost: denied.test\r\n\r\n",
	"pain-19 no Host":         "GET /v1/{t} HTTP/1.1\r\nX-A: b\r\n\r\n",
	"no Host in HTTP/1.0":     "GET /v1/{t} HTTP/1.0\r\n\r\n",
	"Host folded":             "GET /v1/{t} HTTP/1.1\r\nHost:\r\n api.test\r\n\r\n",
	"Host name with a space":  "GET /v1/{t} HTTP/1.1\r\nHost : api.test\r\n\r\n",
	"HTTP/0.9":                "GET /v1/{t}\r\n\r\n",
	"HTTP/1.2":                "GET /v1/{t} HTTP/1.2\r\nHost: api.test\r\n\r\n",
	"HTTP/2 in words":         "GET /v1/{t} HTTP/2.0\r\nHost: api.test\r\n\r\n",
	"tab in the request line": "GET\t/v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"pain-25 CONNECT inside":  "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test\r\nX: {t}\r\n\r\n",
	"CONNECT to itself":       "CONNECT api.test:80 HTTP/1.1\r\nHost: api.test:80\r\nX: {t}\r\n\r\n",
	"pain-03 h2c preface":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{t}\r\n\r\n",
	"a second request":        "GET /v1/a HTTP/1.1\r\nHost: api.test\r\n\r\nGET /admin/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n",
	"a second Host":           "GET /v1/a HTTP/1.1\r\nHost: api.test\r\n\r\n" + hidden,
}

// paths lie outside /v1/ for some server.
var paths = []string{
	"/admin/{t}", "/v1/../admin/{t}", "/v1/./../admin/{t}", "/v1/%2e%2e/admin/{t}", "/v1/.%2e/admin/{t}", "/v1/%2E%2E/admin/{t}",
	"/v1/..%2fadmin/{t}", "/v1/..%5cadmin/{t}", "/v1/..\\admin/{t}", "/v1/%252e%252e/admin/{t}", "/v1/%c0%ae%c0%ae/admin/{t}",
	"/v1/..;/admin/{t}", "/v1/..;x=y/admin/{t}", "/v1/%2e%2e;/admin/{t}", "//admin/{t}", "/V1/{t}", "/v1;x/{t}",
	"/v1%00/../admin/{t}", "/v1%2f{t}", "/v1/%2f{t}", "/admin/{t}?/v1/", "/admin/{t}#/v1/x", "/v1#/../admin/{t}", "*/{t}", "v1/{t}",
	"/%76%31/../admin/{t}", "/v1/..%00/admin/{t}", "/v1/...../../../admin/{t}", "/v1/x/../../admin/{t}", "/v1/%u002e%u002e/admin/{t}",
}

func requestCases() []hostile {
	upgradeTo := func(what string) string {
		return "GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + what + "\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
	}
	list := []hostile{
		request("method outside the rule", "DELETE /v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		request("method in small letters", "delete /v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		request("method TRACE", "TRACE /v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		request("method PROPFIND", "PROPFIND /v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		request("WebSocket without a rule for it", string(upgrade("api.test")), "http: "),
		request("pain-04 path /v1//../admin/X is sent as it was judged", "GET /v1//../admin/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", ""),
		request("X-HTTP-Method-Override", "POST /v1/{t} HTTP/1.1\r\nHost: api.test\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n", ""),
		request("X-Original-URL", "GET /v1/a HTTP/1.1\r\nHost: api.test\r\nX-Original-URL: /admin/{t}\r\n\r\n", ""),
		request("X-Forwarded-Host", "GET /v1/{t} HTTP/1.1\r\nHost: api.test\r\nX-Forwarded-Host: denied.test\r\n\r\n", ""),
		request("pain-03 h2c upgrade", upgradeTo("h2c"), ""),
		request("upgrade to something else", upgradeTo("raw"), ""),
		request("pain-25 redirect to a metadata service", "GET /v1/redirect/169.254.169.254/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "tcp: metadata address"),
		request("pain-25 redirect to a host that nothing names", "GET /v1/redirect/denied.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "dns: denied.test").proxy("tcp: denied.test"),
		request("NET-15 another port of an allowed name", "GET /v1/{t} HTTP/1.1\r\nHost: api.test:8080\r\n\r\n", "tcp: 8080"),
		request("pain-17 a denial says so", "GET /admin/plain HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		request("pain-35 a denial does not hang", "GET /v1/{t} HTTP/1.1\r\nHost: nowhere.denied.test\r\n\r\n", "http: "),
	}
	for i := range list {
		c := &list[i]
		switch {
		case strings.Contains(c.Name, "redirect"):
			c.Op = "follow"
		case strings.Contains(c.Name, "another port"):
			c.Port, c.want = 8080, "tcp: api.test"
		case strings.Contains(c.Name, "h2c upgrade"):
			c.forbid = "upgrade: h2c"
		case strings.Contains(c.Name, "something else"):
			c.forbid = "upgrade: raw"
		case strings.Contains(c.Name, "as it was judged"):
			c.forbid = "//"
		case strings.Contains(c.Name, "Method-Override"):
			c.forbid = "x-http-method-override"
		case strings.Contains(c.Name, "Forwarded-Host"):
			c.forbid = "x-forwarded-host"
		case strings.Contains(c.Name, "says so"):
			c.noControl = "looks at the answer of a denial"
			c.check = answerHas("X-Rung-Denied: ", "what would allow it", "Retrying will not help")
		case strings.Contains(c.Name, "not hang"):
			c.check = answerHas("X-Rung-Denied: ")
		}
	}
	return list
}

// answerHas is for denials: an agent must be able to read them.
func answerHas(parts ...string) func(hostile, order.Result) string {
	return func(_ hostile, r order.Result) string {
		for _, p := range parts {
			if !strings.Contains(r.Got, p) {
				return "the answer does not have " + p
			}
		}
		return ""
	}
}
