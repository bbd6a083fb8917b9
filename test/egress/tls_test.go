//go:build linux

package egress

import "github.com/rung-dev/rung/test/egress/order"

// tlsCases are about who a connection says it is for.
func tlsCases() []hostile {
	get := func(name, host string, tls order.TLS, send, want string) hostile {
		if send == "" {
			send = "GET /{t} HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		}
		return hostile{Case: order.Case{Name: name, Op: "stream", Host: host, Port: 443, TLS: &tls, Send: []byte(send)}, want: want}
	}
	hello := func(name string, tls order.TLS, want string) hostile {
		tls.Raw = true
		return get(name, "ok.test", tls, "", want)
	}
	return []hostile{
		get("NET-16 TLS without a name", "ok.test", order.TLS{SNI: "-"}, "", "tls: names no server"),
		get("pain-18 name of a host that nothing names", "ok.test", order.TLS{SNI: "denied.test"}, "", "tls: the connection names"),
		get("pain-10 name of another allowed host", "ok.test", order.TLS{SNI: "alt.test"}, "", "tls: the connection names"),
		get("pain-34 another tenant of an allowed address", "cdn.test", order.TLS{SNI: "shared.test"}, "", "tls: the connection names"),
		hello("pain-33 encrypted ClientHello", order.TLS{SNI: "ok.test", ECH: true}, "tls: encrypted ClientHello"),
		get("pain-09 fronting: another Host inside TLS", "api.test", order.TLS{}, "GET /v1/{t} HTTP/1.1\r\nHost: denied.test\r\n\r\n", "http: "),
		get("pain-09 fronting: another allowed Host inside TLS", "api.test", order.TLS{}, "GET /v1/{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n", "http: "),
		get("pain-31 absolute form of another host inside TLS", "api.test", order.TLS{}, "GET https://denied.test/v1/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		get("pain-04 path outside the rule, inside TLS", "api.test", order.TLS{}, "GET /v1/../admin/{t} HTTP/1.1\r\nHost: api.test\r\n\r\n", "http: "),
		get("pain-03 HTTP/2 preface without ALPN", "api.test", order.TLS{}, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x10\x04\x00\x00\x00\x00\x00{t}", ""),
		hello("pain-10 two names", order.TLS{SNIs: []string{"ok.test", "denied.test"}}, "tls: "),
		hello("pain-10 a name with a NUL", order.TLS{SNI: "ok.test\x00.denied.test"}, "tls: "),
		hello("pain-10 a name with a dot at its end", order.TLS{SNI: "denied.test."}, "tls: "),
		hello("an address for a name", order.TLS{SNI: "203.0.113.66"}, "tls: "),
		hello("an empty name", order.TLS{SNI: ""}, "tls: "),
		hello("a denied name in many records", order.TLS{SNI: "denied.test", Split: 60}, "tls: the connection names"),
		hello("a denied name in capitals", order.TLS{SNI: "DENIED.test"}, "tls: the connection names"),
		hello("a name in UTF-8", order.TLS{SNI: "\u043ek.test"}, "tls: "),
		get("an SSLv2 hello", "ok.test", order.TLS{SNI: "ok.test"}, "", "").bytes("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10{t}\r\n\r\n", "http: "),
		get("TLS 1.0 alert first", "ok.test", order.TLS{SNI: "ok.test"}, "", "").bytes("\x15\x03\x01\x00\x20{t}\r\n\r\n", "http: "),
		get("a record too long", "ok.test", order.TLS{SNI: "ok.test"}, "", "").bytes("\x16\x03\x01\xff\xff{t}", "tls: "),
		get("SSH to port 443", "ok.test", order.TLS{SNI: "ok.test"}, "", "").bytes("SSH-2.0-{t}\r\n\r\n", "http: "),
		get("in the clear where a rule wants TLS", "tls.test", order.TLS{}, "", "").bytes("GET /{t} HTTP/1.1\r\nHost: tls.test\r\n\r\n", "http: "),
	}
}

// bytes makes a case send bytes as they are instead of TLS.
func (c hostile) bytes(send, want string) hostile {
	c.TLS, c.Send, c.want = nil, []byte(send), want
	return c
}
