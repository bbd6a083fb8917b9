//go:build linux

package egress

import (
	"strings"

	"github.com/rung-dev/rung/test/egress/order"
)

// policy names what most cases start from: good names, and names that lead where nothing may go.
func policy() string {
	var b strings.Builder
	b.WriteString(`egress:
  mode: deny
  rules:
    - {host: api.test, methods: [GET, POST], paths: ["/v1/**"]}
    - {host: ws.test, websocket: true}
    - {host: tls.test, require_tls: true}
    - {host: raw.test, ports: [5432], protocol: tcp}
    - {cidr: 198.51.100.64/28, ports: [8443], protocol: tcp}
    - {cidr: 198.51.100.255/32, ports: [5432], protocol: tcp}
    - {cidr: 10.77.0.5/32, ports: [5432], protocol: tcp}
    - {cidr: "2001:db8:77::/64", ports: [5432], protocol: tcp}
    - {host: "*.wild.test"}
`)
	for _, name := range append(misled(), "ok.test", "okv6.test", "alt.test", "cdn.test", "mixed.test", "unpinned.test", "cname.test", "rebind.test") {
		b.WriteString("    - {host: " + name + "}\n")
	}
	return b.String()
}

// misled are allowed names whose answers lead to what must not be reached, or to nothing.
func misled() []string {
	return []string{
		"private.test", "private172.test", "private192.test", "cgnat.test", "meta.test", "azure.test", "alibaba.test", "ecs.test", "metav6.test",
		"loop.test", "loopv6.test", "zero.test", "zerov6.test", "mapped.test", "nat64.test", "sixtofour.test", "teredo.test", "compat.test",
		"ula.test", "linklocal.test", "linklocalv6.test", "multicast.test", "broadcast.test", "reserved.test", "gateway.test", "peer.test",
		"cname-private.test", "cname-loop.test", "lie.test", "huge.test", "slow.test", "garbage.test", "hosts-private.test",
	}
}

// tcp makes keys of allowed first packets.
func tcp(list ...string) (keys []string) {
	for _, a := range list {
		keys = append(keys, "tcp "+a)
	}
	return keys
}

func allowed() []string {
	var list []string
	for _, a := range []string{
		"203.0.113.10", "203.0.113.11", "203.0.113.12", "203.0.113.13", "203.0.113.20", "203.0.113.30", "203.0.113.31", "203.0.113.32",
		"203.0.113.50", "203.0.113.67", "[2001:db8::10]", "[2001:db8::16]",
	} {
		list = append(list, tcp(a+":80", a+":443")...)
	}
	return append(list, tcp("203.0.113.40:5432", "198.51.100.70:8443", "198.51.100.255:5432", "10.77.0.5:5432", "[2001:db8:77::9]:5432")...)
}

func dial(name, host string, port int, want string) hostile {
	return hostile{Case: order.Case{Name: name, Op: "dial", Host: host, Port: port}, want: want}
}

// metadata is every address of NET-01 of our catalogue of escapes, with further ones of clouds.
var metadata = map[string]string{
	"aws": "169.254.169.254", "aws-v6": "fd00:ec2::254", "ecs": "169.254.170.2", "eks": "169.254.170.23", "eks-v6": "fd00:ec2::23",
	"alibaba": "100.100.100.200", "azure-wire": "168.63.129.16", "tencent": "169.254.0.23", "100.96": "100.96.0.96", "100.80": "100.80.80.80",
	"oracle-old": "192.0.0.192", "google-v6": "fd20:ce::254", "link-local-v6": "fe80::a9fe:a9fe",
	"nat64": "64:ff9b::a9fe:a9fe", "sixtofour": "2002:a9fe:a9fe::1", "teredo": "2001:0:a9fe:a9fe:0:0:f7f7:f7f7", "compatible": "::a9fe:a9fe",
	"nat64-local": "64:ff9b:1::a9fe:a9fe", "isatap": "2001:db8::5efe:a9fe:a9fe",
}

// addressCases go straight to an address that nobody resolved.
func addressCases() []hostile {
	var list []hostile
	for name, a := range metadata {
		c := dial("NET-01 metadata "+name, a, 80, "tcp: metadata address")
		if strings.HasPrefix(a, "fe80:") { // needs an interface to mean anything
			c.noControl, c.want = "a link-local address has no scope without an interface's name", ""
		}
		list = append(list, c)
	}
	list = append(list, dial("NET-01 metadata mapped", "::ffff:169.254.169.254", 80, "tcp: metadata address"))
	for name, a := range map[string]string{
		"private 10": "10.1.2.3", "private 172": "172.16.9.9", "private 192": "192.168.9.9", "CGNAT": "100.64.1.1", "link-local": "169.254.7.7",
		"ULA": "fd00::5", "reserved": "240.0.0.1", "benchmark": "198.18.0.5", "NAT64 private": "64:ff9b::a01:203", "6to4 private": "2002:a01:203::1",
	} {
		list = append(list, dial("NET-07 "+name, a, 80, "tcp: is "))
	}
	return append(list,
		dial("pain-40 public address that nothing names", "203.0.113.66", 443, "tcp: no rule names that address"),
		dial("pain-19 public v6 address that nothing names", "2001:db8::66", 443, "tcp: no rule names that address"),
		dial("pain-21 address beside a CIDR rule", "198.51.100.80", 8443, "tcp: no rule names that address"),
		dial("pain-21 CIDR rule, another port", "198.51.100.70", 80, "tcp: the nearest rule names"),
		dial("private address beside a named one", "10.77.0.6", 5432, "tcp: a private address"),
		dial("pain-08 address of an allowed name that nobody resolved", "203.0.113.89", 443, "tcp: no rule names that address"),
		hostile{Case: order.Case{Name: "pain-06 unspecified v4", Op: "dial", Host: "0.0.0.0", Port: 8099}, byProxy: "tcp: 0.0.0.0", reaches: []string{"tcp 127.0.0.1:8099", "tcp 0.0.0.0:8099"}},
		hostile{Case: order.Case{Name: "pain-06 unspecified v6", Op: "dial", Host: "::", Port: 8099}, byProxy: "tcp: :: is", reaches: []string{"tcp [::1]:8099", "tcp [::]:8099"}},
		hostile{Case: order.Case{Name: "pain-06 loopback v4 (P-15)", Op: "dial", Host: "127.0.0.1", Port: 8099}, byProxy: "tcp: loopback"},
		hostile{Case: order.Case{Name: "loopback v6 (P-15)", Op: "dial", Host: "::1", Port: 8099}, byProxy: "tcp: loopback"},
		hostile{Case: order.Case{Name: "loopback mapped", Op: "dial", Host: "::ffff:127.0.0.1", Port: 8099}, byProxy: "tcp: loopback"},
		hostile{Case: order.Case{Name: "multicast TCP", Op: "dial", Host: "224.0.0.251", Port: 80}, byProxy: "tcp: multicast", noControl: "no kernel opens TCP to a multicast address"},
		hostile{Case: order.Case{Name: "broadcast TCP", Op: "dial", Host: "255.255.255.255", Port: 80}, byProxy: "tcp: is ", noControl: "no kernel opens TCP to a broadcast address"},
		hostile{Case: order.Case{Name: "pain-24 link-local v6 with a zone", Op: "dial", Host: "fe80::5%eth0", Port: 80}, noControl: "the zone names the sandbox's own interface"},
		dial("NET-08 host loopback by the gateway's address", "192.0.0.1", 8099, "tcp: this is the gate itself").proxy("tcp: is "),
		dial("NET-08 host loopback by the gateway's v6 address", "fd72:756e:6700::1", 8099, "tcp: this is the gate itself").proxy("tcp: is "),
		dial("P-56 docker, kubelet", "192.0.0.1", 10250, "tcp: this is the gate itself").proxy("tcp: is "),
		dial("NET-09 Docker Desktop's API", "192.168.65.7", 2375, "tcp: a private address"),
		hostile{
			Case: order.Case{Name: "pain-16 a denied address, twenty times", Op: "repeat", Host: "203.0.113.69", Port: 443, Count: 20},
			want: "tcp: no rule names that address",
		},
		hostile{
			Case: order.Case{Name: "pain-15 a relay inside", Op: "relay", Host: "203.0.113.70", Port: 443},
			want: "tcp: no rule names that address",
		},
	)
}

// scans is a batch of its own: so many refusals fill the list of the record.
func scans() *batch {
	every := func(name, host string) hostile {
		return hostile{
			Case: order.Case{Name: name, Op: "scan", Host: host, Count: 1024}, want: "tcp: this is the gate itself", check: onlyOpen("open: 53"),
			only: linked(), why: "rung process has no interface: nothing has the gate's address",
			noControl: "every port there is would be answered by some stand-in, or none",
		}
	}
	return &batch{name: "scans", policy: policy(), serial: true, cases: []hostile{
		every("NET-22 every port of the gate", "192.0.0.1"), every("NET-22 every port of the gate, v6", "fd72:756e:6700::1"),
		ask("a denial after a thousand others is still listed", order.DNS{Name: "{t}.denied.test"}, "dns: denied.test").on3(),
	}}
}

// proxy sets what rung process says.
func (c hostile) proxy(want string) hostile {
	c.byProxy = want
	return c
}

func onlyOpen(want string) func(hostile, order.Result) string {
	return func(_ hostile, r order.Result) string {
		if r.Got != want {
			return r.Got
		}
		return ""
	}
}

// passing are what rules do name: without them a gate that lets nothing through would do.
func passing() []hostile {
	get := func(name, host string, port int) hostile {
		c := hostile{pass: true, Case: order.Case{Name: "passes: " + name, Op: "stream", Host: host, Port: port, Send: []byte("GET /v1/{t} HTTP/1.1\r\nHost: " + host + "\r\n\r\n")}}
		if port == 443 {
			c.TLS = &order.TLS{}
		}
		return c
	}
	raw := func(name, host string, port int) hostile {
		c := dial("passes: "+name, host, port, "")
		c.Op, c.pass = "stream", true
		return c
	}
	tlsRaw := raw("CIDR rule", "198.51.100.70", 8443)
	tlsRaw.TLS = &order.TLS{SNI: "any.test"}
	return []hostile{
		get("HTTP", "ok.test", 80), get("TLS, not opened", "ok.test", 443), get("HTTP by a rule with conditions", "api.test", 80),
		get("TLS, opened", "api.test", 443), get("wildcard", "some.wild.test", 443), get("v6", "okv6.test", 80), get("a trailing dot", "ok.test", 443).named("ok.test."),
		get("mixed case", "ok.test", 80).named("oK.TesT"), get("one good address among bad", "mixed.test", 80), get("a CNAME", "cname.test", 80),
		raw("tcp rule", "raw.test", 5432), tlsRaw, raw("the last address of a network (pain-21)", "198.51.100.255", 5432),
		raw("a private address that a rule names", "10.77.0.5", 5432), raw("v6 CIDR rule", "2001:db8:77::9", 5432),
		get("require_tls", "tls.test", 443), get("another name of the same rule set", "alt.test", 443),
		{pass: true, Case: order.Case{Name: "passes: half-close", Op: "half", Host: "ok.test", Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: ok.test\r\n\r\n")}},
		{pass: true, Case: order.Case{Name: "passes: WebSocket where it is allowed", Op: "stream", Host: "ws.test", Port: 80, Send: upgrade("ws.test")}},
	}
}

// named sets the name that is resolved.
func (c hostile) named(host string) hostile {
	c.Host = host
	c.Name += " (" + host + ")"
	return c
}

func upgrade(host string) []byte {
	return []byte("GET /v1/{t} HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
}

// misledCases follow allowed names to where they lead.
func misledCases() []hostile {
	var list []hostile
	never := map[string]string{
		"cname-loop.test": "a name without an address", "lie.test": "the answer is about another name", "slow.test": "nobody answers",
		"garbage.test": "the answer is none", "linklocalv6.test": "a link-local address has no scope without an interface's name",
		"multicast.test": "no kernel opens TCP to a multicast address", "broadcast.test": "no kernel opens TCP to a broadcast address",
		"hosts-private.test": "the probe asks DNS only, not /etc/hosts",
	}
	for _, name := range misled() {
		c := hostile{
			Case:      order.Case{Name: "NET-17 pain-39 allowed name that leads astray: " + name, Op: "stream", Host: name, Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: " + name + "\r\n\r\n")},
			want:      "dns: " + name,
			noControl: never[name],
		}
		switch name {
		case "cname-loop.test", "lie.test", "slow.test", "garbage.test":
			c.want = "" // a failure and no denial, since nobody refused
		}
		list = append(list, c)
	}
	return list
}
