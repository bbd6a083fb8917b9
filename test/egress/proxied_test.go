//go:build linux

package egress

import (
	"encoding/binary"
	"fmt"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/test/egress/order"
)

// proxied is the batch of what a proxy can be made to believe (P-51): rung process only. The control is a proxy that takes
// hosts as careless parsers do.
func proxied() *batch {
	b := &batch{name: "proxied", policy: policy(), allowed: allowed()}
	for _, to := range connects {
		b.cases = append(b.cases, viaProxy("CONNECT "+to, "CONNECT "+to+" HTTP/1.1\r\nHost: x\r\n\r\n{pause}GET /{t} HTTP/1.0\r\n\r\n"))
	}
	for _, to := range urls {
		b.cases = append(b.cases, viaProxy("GET "+to, "GET "+to+"{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n"))
	}
	for _, host := range []string{
		"denied.test", "denied.test\x00.ok.test", "ok.test\x00@denied.test", "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
		"::ffff:169.254.169.254", "ok.test@denied.test", "[::1]", "127.1", "api.test.denied.test", "denied.test.",
	} {
		b.cases = append(b.cases, viaProxy("SOCKS5 "+host, socks(3, append([]byte{byte(len(host))}, host...), 80)))
	}
	mapped := []byte{10: 0xff, 11: 0xff, 12: 169, 13: 254, 14: 169, 15: 254}
	b.cases = append(b.cases,
		viaProxy("SOCKS5 by IPv4", socks(1, []byte{169, 254, 169, 254}, 80)),
		viaProxy("SOCKS5 by IPv4, a host nothing names", socks(1, []byte{203, 0, 113, 66}, 80)),
		viaProxy("SOCKS5 by IPv4, loopback", socks(1, []byte{127, 0, 0, 1}, 8099)),
		viaProxy("SOCKS5 by mapped IPv6", socks(4, mapped, 80)),
		viaProxy("SOCKS5 by IPv6, loopback", socks(4, []byte{15: 1}, 8099)),
		viaProxy("SOCKS5 another port of an allowed name", socks(3, append([]byte{7}, "ok.test"...), 8080)),
		viaProxy("SOCKS4", "\x04\x01\x00\x50\xa9\xfe\xa9\xfe\x00{pause}GET /{t} HTTP/1.0\r\n\r\n"),
	)
	for i := range b.cases {
		b.cases[i].only, b.cases[i].why = []rung.Rung{rung.Process}, "there is no proxy on this rung: the link takes any connection, and all of them are judged"
	}
	b.cases = append(b.cases, hostile{
		Case: order.Case{Name: "pain-32 NO_PROXY names no host", Op: "env", Host: "NO_PROXY"}, noControl: "reads a variable",
		check: onlyOpen("localhost,127.0.0.1,::1"), only: []rung.Rung{rung.Process}, why: "there is no proxy",
	}, hostile{
		Case: order.Case{Name: "pain-31 the proxy through itself", Op: "proxy", Send: []byte("CONNECT 127.0.0.1:3128 HTTP/1.1\r\nHost: x\r\n\r\n{pause}CONNECT denied.test:80 HTTP/1.1\r\nHost: x\r\n\r\n{pause}GET /{t} HTTP/1.0\r\n\r\n")},
		want: "tcp: loopback", only: []rung.Rung{rung.Process}, why: "there is no proxy",
	}, hostile{
		Case:      order.Case{Name: "SOCKS5 UDP ASSOCIATE", Op: "proxy", Send: []byte("\x05\x01\x00{pause}\x05\x03\x00\x01\x00\x00\x00\x00\x00\x35")},
		noControl: "the control's proxy does not do it either", check: refusesSocks, only: []rung.Rung{rung.Process}, why: "there is no proxy",
	}, hostile{
		Case:      order.Case{Name: "SOCKS5 BIND", Op: "proxy", Send: []byte("\x05\x01\x00{pause}\x05\x02\x00\x01\x00\x00\x00\x00\x00\x35")},
		noControl: "the control's proxy does not do it either", check: refusesSocks, only: []rung.Rung{rung.Process}, why: "there is no proxy",
	})
	return b
}

func refusesSocks(_ hostile, r order.Result) string {
	if len(r.Got) > 1 && r.Got[1] == 0 {
		return fmt.Sprintf("answered %q", r.Got)
	}
	return ""
}

func viaProxy(name, send string) hostile {
	return hostile{Case: order.Case{Name: fmt.Sprintf("%q", name), Op: "proxy", Send: []byte(send)}}
}

// socks is a SOCKS 5 request (RFC 1928) and what is said through it.
func socks(kind byte, addr []byte, port int) string {
	return "\x05\x01\x00{pause}\x05\x01\x00" + string([]byte{kind}) + string(addr) + string(binary.BigEndian.AppendUint16(nil, uint16(port))) +
		"{pause}GET /{t} HTTP/1.0\r\n\r\n"
}

var connects = []string{
	"denied.test:80", "169.254.169.254:80", "2852039166:80", "0xa9fea9fe:80", "0251.0376.0251.0376:80", "169.16689662:80", "127.1:8099",
	"[::ffff:169.254.169.254]:80", "[::1]:8099", "[fd00:ec2::254]:80", "[64:ff9b::a9fe:a9fe]:80", "0.0.0.0:8099", "10.1.2.3:80", "203.0.113.66:80",
	"ok.test@denied.test:80", "ok.test:80@denied.test:80", "denied.test\x00.ok.test:80", "ok.test\x00:80", "denied.test.:80", "DENIED.TEST:80",
	"api.test.denied.test:80", "ok.test:8080", "ok.test:65616", "ok.test:080", "ok.test:+80", "meta.test:80", "private.test:80", "loop.test:8099",
	"cname-private.test:80", "\u043ek.test:80",
}

var urls = []string{
	"http://denied.test/", "http://169.254.169.254/", "http://2852039166/", "http://0xa9fea9fe/", "http://[::ffff:169.254.169.254]/",
	"http://ok.test@denied.test/", "http://ok.test:80@denied.test/", "http://denied.test./", "http://127.1:8099/", "http://private.test/",
	"http://ok.test:8080/", "ftp://ok.test/", "https://denied.test:80/", "http://alt.test/",
}
