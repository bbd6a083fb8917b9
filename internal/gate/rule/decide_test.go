package rule

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

func compile(t testing.TB, mode rung.EgressMode, rules ...rung.EgressRule) *Policy {
	t.Helper()
	p, err := Compile(rung.Egress{Mode: mode, Rules: rules})
	if err != nil {
		t.Fatalf("%v (%s)", err, rung.HintOf(err))
	}
	return p
}

// show writes a decision as one line.
func show(d Decision) string {
	if d.Allow {
		return "yes: " + d.RuleName
	}
	return strings.TrimSpace("no: " + d.Reason + " | " + d.RuleName + " | " + d.Hint)
}

func sample(t testing.TB, mode rung.EgressMode) *Policy {
	return compile(t, mode,
		rung.EgressRule{Host: "Index.test", Ports: []int{443}},
		rung.EgressRule{Host: "*.example.com"},
		rung.EgressRule{Host: "db.example.com", Ports: []int{5432}, Protocol: "tcp"},
		rung.EgressRule{Host: "api.test", Methods: []string{"GET"}, Paths: []string{"/v1/**"}, RequireTLS: true},
		rung.EgressRule{Name: "mine", Host: "api.test", Paths: []string{"/v2/*"}, Secrets: []string{"TOKEN"}},
		rung.EgressRule{Host: "npm.test", Registry: &rung.Registry{Kind: "npm", Prefix: "/npm"}},
		rung.EgressRule{Host: "ws.test", WebSocket: true},
		rung.EgressRule{Host: "nothing.test", Methods: []string{}},
		rung.EgressRule{Host: "intranet"},
		rung.EgressRule{CIDR: "10.0.0.0/8", Ports: []int{5432, 8080}, Protocol: "tcp"},
		rung.EgressRule{CIDR: "0.0.0.0/0", Ports: []int{8443}},
		rung.EgressRule{CIDR: "fd00::/8"},
	)
}

func TestLookup(t *testing.T) {
	p := sample(t, rung.EgressDeny)
	for name, want := range map[string]string{
		"index.test":               "yes: allow index.test:443",
		"Index.TEST.":              "yes: allow index.test:443",
		"www.example.com":          "yes: allow *.example.com",
		"a.b.c.example.com":        "yes: allow *.example.com",
		"api.test":                 "yes: allow api.test:443 methods GET paths /v1/** require_tls",
		"nothing.test":             "yes: allow nothing.test methods none",
		"intranet":                 "yes: allow intranet",
		"example.com":              "no: no rule names example.com: *.example.com names only what is below it | allow *.example.com | --allow example.com",
		"www.index.test":           "no: no rule names www.index.test: the rule for index.test does not name what is below it | allow index.test:443 | --allow www.index.test",
		"evil.org":                 "no: no rule names evil.org |  | --allow evil.org",
		"notexample.com":           "no: no rule names notexample.com |  | --allow notexample.com",
		"other":                    "no: no rule names other: a name without a dot needs a rule for itself |  | --allow other",
		"dns.google":               "no: no rule names dns.google: it resolves names around the gate, so that only a rule for itself would do |  | --allow dns.google",
		"metadata.google.internal": "no: metadata.google.internal is never resolved: it leads to the host or to its cloud's metadata |  |",
		"localhost":                "no: localhost is never resolved: it leads to the host or to its cloud's metadata |  |",
		"10.0.0.5":                 `no: "10.0.0.5" is not a host name: it can be read as an address |  |`,
		"index.test\x00.evil.org":  `no: "index.test\x00.evil.org" is not a host name: it has a space or a control character |  |`,
		"index.test:443":           `no: "index.test:443" is not a host name: it has a port, or is an IPv6 address |  |`,
		"user@index.test":          `no: "user@index.test" is not a host name: it has user information |  |`,
		"":                         `no: "" is not a host name: it is empty |  |`,
	} {
		if got := show(p.Lookup(name)); got != want {
			t.Errorf("Lookup(%q)\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestConnect(t *testing.T) {
	p := sample(t, rung.EgressDeny)
	for _, c := range []struct {
		name string
		port int
		want string
	}{
		{"index.test", 443, "yes: allow index.test:443"},
		{"index.test", 80, "no: port 80 of index.test is not allowed: the nearest rule names port 443 | allow index.test:443 | --allow index.test:80"},
		{"index.test", 22, "no: port 22 of index.test is not allowed: the nearest rule names port 443 | allow index.test:443 | --allow index.test:22/tcp"},
		{"www.example.com", 80, "yes: allow *.example.com"},
		{"www.example.com", 8443, "no: port 8443 of www.example.com is not allowed: the nearest rule names ports 80 and 443 | allow *.example.com | --allow www.example.com:8443"},
		{"db.example.com", 5432, "yes: allow db.example.com:5432/tcp"},
		{"db.example.com", 443, "yes: allow *.example.com"},
		{"evil.org", 443, "no: no rule names evil.org |  | --allow evil.org:443"},
		{"index.test", 0, "no: port 0 of index.test is not allowed: the nearest rule names port 443 | allow index.test:443 | --allow index.test"},
		{"index.test", 65536, "no: 65536 is no port |  |"},
		{"169.254.169.254", 80, `no: "169.254.169.254" is not a host name: it can be read as an address |  |`},
	} {
		if got := show(p.Connect(c.name, c.port)); got != c.want {
			t.Errorf("Connect(%q, %d)\n got %s\nwant %s", c.name, c.port, got, c.want)
		}
	}
}

func TestDirectAndAddress(t *testing.T) {
	p, open := sample(t, rung.EgressDeny), sample(t, rung.EgressOpen)
	const unresolved = "the sandbox resolved no allowed name to "
	for _, c := range []struct {
		addr       string
		port       int
		deny, open string
	}{
		{"10.0.0.5", 5432, "yes: allow 10.0.0.0/8:5432,8080/tcp", ""},
		{"::ffff:10.0.0.5", 5432, "yes: allow 10.0.0.0/8:5432,8080/tcp", ""},
		{"10.0.0.5", 443, "no: port 443 of 10.0.0.5 is not allowed: the nearest rule names ports 5432 and 8080 | allow 10.0.0.0/8:5432,8080/tcp | --allow 10.0.0.5/32:443", ""},
		{"10.0.0.5", 8443, "no: port 8443 of 10.0.0.5 is not allowed: the nearest rule names ports 5432 and 8080 | allow 10.0.0.0/8:5432,8080/tcp | --allow 10.0.0.5/32:8443/tcp", ""},
		{"192.168.1.1", 5432, "no: 192.168.1.1 is a private address (RFC 1918) |  | --allow 192.168.1.1/32:5432/tcp", ""},
		{"169.254.169.254", 80, "no: 169.254.169.254 is a cloud's metadata address |  |", ""},
		{"168.63.129.16", 8443, "no: 168.63.129.16 is a cloud's metadata address |  |", ""},
		{"127.0.0.1", 8443, "no: 127.0.0.1 is a loopback address (RFC 1122) |  |", ""},
		{"64:ff9b::a00:5", 5432, "no: 64:ff9b::a00:5 is a NAT64 address (RFC 6052) with 10.0.0.5 in it, a private address (RFC 1918) |  | --allow 64:ff9b::a00:5/128:5432/tcp", ""},
		{"fd00::1", 443, "yes: allow fd00::/8", ""},
		{"fd00:ec2::254", 80, "no: fd00:ec2::254 is a cloud's metadata address |  |", ""},
		{"fe80::1%eth0", 80, "no: fe80::1%eth0 is an address with a zone id (RFC 4007) |  |", ""},
		{"8.8.8.8", 8443, "yes: allow 0.0.0.0/0:8443", ""},
		{"8.8.8.8", 22, "no: port 22 of 8.8.8.8 is not allowed: the nearest rule names port 8443 | allow 0.0.0.0/0:8443 | --allow 8.8.8.8/32:22/tcp", "yes: open"},
		{"8.8.8.8", 853, "no: port 853 of 8.8.8.8 is not allowed: the nearest rule names port 8443 | allow 0.0.0.0/0:8443 | --allow 8.8.8.8/32:853/tcp", ""},
		{"2606:4700::1", 443, "no: " + unresolved + "2606:4700::1, and no rule names that address |  | --allow 2606:4700::1/128:443", "yes: open"},
		{"2001:db8::1", 80, "no: " + unresolved + "2001:db8::1, and no rule names that address |  | --allow 2001:db8::1/128:80", "yes: open"},
	} {
		a := netip.MustParseAddr(c.addr)
		if got := show(p.Direct(a, c.port)); got != c.deny {
			t.Errorf("Direct(%s, %d)\n got %s\nwant %s", c.addr, c.port, got, c.deny)
		}
		if c.open == "" {
			c.open = c.deny
		}
		if got := show(open.Direct(a, c.port)); got != c.open {
			t.Errorf("open: Direct(%s, %d)\n got %s\nwant %s", c.addr, c.port, got, c.open)
		}
	}
	if d := p.Direct(netip.Addr{}, 443); d.Allow || d.Reason == "" {
		t.Errorf("no address: %+v", d)
	}
	for _, c := range []struct {
		name, addr string
		port       int
		want       string
	}{
		{"index.test", "8.8.8.8", 443, "yes: allow index.test:443"},
		{"index.test", "192.0.2.1", 443, "yes: allow index.test:443"},
		{"index.test", "10.0.0.5", 443, "no: port 443 of 10.0.0.5 is not allowed: the nearest rule names ports 5432 and 8080 | allow 10.0.0.0/8:5432,8080/tcp | --allow 10.0.0.5/32:443"},
		{"index.test", "127.0.0.1", 443, "no: what index.test resolves to is refused: 127.0.0.1 is a loopback address (RFC 1122) |  |"},
		{"index.test", "64:ff9b::7f00:1", 443, "no: what index.test resolves to is refused: 64:ff9b::7f00:1 is a NAT64 address (RFC 6052) with 127.0.0.1 in it, a loopback address (RFC 1122) |  |"},
		{"db.example.com", "10.0.0.5", 5432, "yes: allow db.example.com:5432/tcp"},
		{"evil.org", "10.0.0.5", 5432, "no: no rule names evil.org |  | --allow evil.org:5432/tcp"},
	} {
		if got := show(p.Address(c.name, netip.MustParseAddr(c.addr), c.port)); got != c.want {
			t.Errorf("Address(%s, %s, %d)\n got %s\nwant %s", c.name, c.addr, c.port, got, c.want)
		}
	}
}

func TestRequest(t *testing.T) {
	p := sample(t, rung.EgressDeny)
	for _, c := range []struct {
		text string // SCHEME METHOD HOST[:PORT] PATH, ws for a WebSocket
		path string
		want string
	}{
		{"https GET index.test /simple/", "/simple/", "yes: allow index.test:443"},
		{"https POST Index.test. /a/../b?x=1", "/b", "yes: allow index.test:443"},
		{"https GET index.test /a%2fb", "", `no: the path "/a%2fb" has no single meaning: it has an encoded slash |  |`},
		{"https PROPFIND index.test /", "/", `no: the method PROPFIND is not allowed on index.test: the nearest rule lets GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS through | allow index.test:443 | - {host: index.test, methods: [PROPFIND], paths: ["/"]}`},
		{"https CONNECT index.test /", "", `no: the method "CONNECT" is never let through |  |`},
		{"https TRACE index.test /", "", `no: the method "TRACE" is never let through |  |`},
		{"https get index.test /", "", `no: the method "get" is never let through |  |`},
		{"http GET index.test /", "/", "no: port 80 of index.test is not allowed: the nearest rule names port 443 | allow index.test:443 | --allow index.test:80"},
		{"https GET evil.org /", "/", "no: no rule names evil.org |  | --allow evil.org:443"},
		{"https GET api.test /v1/x", "/v1/x", "yes: allow api.test:443 methods GET paths /v1/** require_tls"},
		{"https GET api.test /v1/../v2/x", "/v2/x", "yes: mine"},
		{"https POST api.test /v2/x", "/v2/x", "yes: mine"},
		{"https POST api.test /v1/x", "/v1/x", `no: POST /v1/x on api.test is not allowed: no path of the nearest rule matches | mine | - {host: api.test, methods: [POST], paths: ["/v1/x"]}`},
		{"https GET api.test:8443 /v1/x", "/v1/x", "no: port 8443 of api.test is not allowed: the nearest rule names port 443 | allow api.test:443 methods GET paths /v1/** require_tls | --allow api.test:8443"},
		{"http GET api.test:443 /v1/x", "/v1/x", "no: GET /v1/x on api.test is allowed over TLS only: use https | allow api.test:443 methods GET paths /v1/** require_tls |"},
		{"https GET npm.test /npm/@types%2fnode", "/npm/@types%2Fnode", "yes: allow npm.test registry npm"},
		{"https GET npm.test /npm/a%2fb", "", `no: the path "/npm/a%2fb" has no single meaning: it has an encoded slash |  |`},
		{"https GET npm.test /other", "/other", `no: GET /other on npm.test is outside the registry, which is below /npm | allow npm.test registry npm | - {host: npm.test, methods: [GET], paths: ["/other"]}`},
		{"https GET npm.test /npmx", "/npmx", `no: GET /npmx on npm.test is outside the registry, which is below /npm | allow npm.test registry npm | - {host: npm.test, methods: [GET], paths: ["/npmx"]}`},
		{"https PUT npm.test /npm/x", "/npm/x", "no: the registry npm.test is read-only: PUT is not allowed | allow npm.test registry npm |"},
		{"ws GET ws.test /s", "/s", "yes: allow ws.test websocket"},
		{"ws POST ws.test /s", "/s", "no: a WebSocket is asked for with GET, not POST | allow ws.test websocket |"},
		{"ws GET index.test /s", "/s", `no: GET /s on index.test asks for a WebSocket, which the nearest rule does not allow | allow index.test:443 | - {host: index.test, methods: [GET], paths: ["/s"], websocket: true}`},
		{"https GET nothing.test /", "/", `no: the method GET is not allowed on nothing.test: the nearest rule lets none through | allow nothing.test methods none | - {host: nothing.test, methods: [GET], paths: ["/"]}`},
		{"https GET db.example.com:5432 /", "/", "yes: allow db.example.com:5432/tcp"},
		{"http GET 10.0.0.5:8080 /", "/", "yes: allow 10.0.0.0/8:5432,8080/tcp"},
		{"http GET [fd00::1] /", "/", "yes: allow fd00::/8"},
		{"http GET 8.8.8.8 /", "/", "no: port 80 of 8.8.8.8 is not allowed: the nearest rule names port 8443 | allow 0.0.0.0/0:8443 | --allow 8.8.8.8/32:80"},
		{"http GET 169.254.169.254 /latest", "/latest", "no: 169.254.169.254 is a cloud's metadata address |  |"},
		{"http GET 0x7f.1 /", "", `no: "0x7f.1" is not a host name: it can be read as an address |  |`},
		{"http GET [fe80::1%25eth0] /", "", `no: "[fe80::1%25eth0]" is not a host name: it has a port, or is an IPv6 address |  |`},
	} {
		path, d := p.Request(request(c.text))
		if got := show(d); got != c.want || path != c.path {
			t.Errorf("%s\n got %q %s\nwant %q %s", c.text, path, got, c.path, c.want)
		}
	}
}

func request(text string) Request {
	f := strings.Fields(text)
	r := Request{TLS: f[0] != "http", WebSocket: f[0] == "ws", Method: f[1], Host: f[2], Path: f[3], Port: 443}
	if !r.TLS {
		r.Port = 80
	}
	if i := strings.LastIndexByte(r.Host, ':'); i > 0 && !strings.HasSuffix(r.Host, "]") {
		if n, err := parsePort(r.Host[i+1:]); err == nil {
			r.Host, r.Port = r.Host[:i], n
		}
	}
	return r
}

func TestModes(t *testing.T) {
	none, open := compile(t, rung.EgressNone), sample(t, rung.EgressOpen)
	for _, d := range []Decision{none.Lookup("index.test"), none.Connect("index.test", 443), none.Direct(netip.MustParseAddr("8.8.8.8"), 443)} {
		if got := show(d); got != "no: this sandbox has no network (egress mode none) |  |" {
			t.Error(got)
		}
	}
	if _, d := none.Request(request("https GET index.test /")); d.Allow {
		t.Error("mode none lets a request pass")
	}
	for text, want := range map[string]bool{
		"https GET evil.org /": true, "https PROPFIND evil.org:9000 /": true, "ws GET evil.org /": true, "https TRACE evil.org /": false,
		"https GET evil.org /%2e%2e/": false, "https GET other /": false, "https GET dns.google /dns-query": false,
		"https GET metadata.google.internal /": false, "https GET evil.org:853 /": false, "http GET 8.8.8.8:9000 /": true, "http GET 127.0.0.1 /": false,
		// What rules are about is theirs to judge, also here.
		"https POST api.test /v1/x": false, "https GET api.test /v1/x": true, "https GET api.test:9000 /x": true, "http GET api.test:443 /v1/x": false,
	} {
		r := request(text)
		if _, d := open.Request(r); d.Allow != want {
			t.Errorf("%s: %s", text, show(d))
		}
	}
	if d := open.Address("evil.org", netip.MustParseAddr("192.168.0.1"), 443); d.Allow {
		t.Error("mode open reaches a private address by name")
	}
	if got := compile(t, "").Mode(); got != rung.EgressDeny {
		t.Errorf("no mode is %q", got)
	}
	if _, err := Compile(rung.Egress{Mode: "Open"}); rung.KindOf(err) != rung.KindInvalid {
		t.Error(err)
	}
	if _, err := Compile(rung.Egress{Mode: rung.EgressNone, Rules: []rung.EgressRule{{Host: "a.b"}}}); rung.KindOf(err) != rung.KindInvalid {
		t.Error(err)
	}
	var names []string
	for _, r := range compile(t, "", rung.EgressRule{Host: "a.b"}, rung.EgressRule{Host: "a.b"}, rung.EgressRule{Host: "a.b"}).Rules() {
		names = append(names, r.Name)
	}
	if d := cmp.Diff([]string{"allow a.b", "allow a.b #2", "allow a.b #3"}, names); d != "" {
		t.Error(d)
	}
	if _, err := Compile(rung.Egress{Rules: []rung.EgressRule{{Name: "x", Host: "a.b"}, {Name: "x", Host: "c.d"}}}); err == nil {
		t.Error("two rules of one name")
	}
}

func TestInspectAndRaw(t *testing.T) {
	for mode, table := range map[rung.EgressMode]map[string]string{
		rung.EgressDeny: {
			"index.test:443": "", "api.test:443": "inspect", "API.test.:443": "inspect", "api.test:8443": "", "npm.test:443": "inspect",
			"ws.test:443": "inspect", "nothing.test:443": "inspect", "db.example.com:5432": "raw", "db.example.com:443": "", "evil.org:443": "",
			"10.0.0.5:5432": "raw", "10.0.0.5:443": "", "8.8.8.8:8443": "", "bad name:443": "inspect",
		},
		rung.EgressOpen: {
			"evil.org:443": "raw", "api.test:443": "inspect", "api.test:9000": "raw", "index.test:443": "", "evil.org:853": "",
			"8.8.8.8:22": "raw", "8.8.8.8:8443": "", "192.168.0.1:22": "", "10.0.0.5:5432": "raw",
		},
	} {
		p := sample(t, mode)
		for dest, want := range table {
			i := strings.LastIndexByte(dest, ':')
			port, err := parsePort(dest[i+1:])
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if p.Inspect(dest[:i], port) {
				got = "inspect"
			}
			if p.Raw(dest[:i], port) {
				got += "raw"
			}
			if got != want {
				t.Errorf("%s %s: %q, want %q", mode, dest, got, want)
			}
		}
	}
	p := compile(t, rung.EgressDeny, rung.EgressRule{Host: "a.b", Limits: &rung.NetBudget{Requests: 1}}, rung.EgressRule{Host: "c.d", Limits: &rung.NetBudget{BytesIn: 1}})
	if !p.Inspect("a.b", 443) || p.Inspect("c.d", 443) {
		t.Error("a cap on requests needs them to be seen, one on bytes does not")
	}
}

// The first rule of the policy that matches gives its secrets and limits, wherever the maps have it.
func TestFirstRuleWins(t *testing.T) {
	rules := []rung.EgressRule{{Name: "wide", Host: "*.test"}, {Name: "deep", Host: "*.b.test"}, {Name: "exact", Host: "a.b.test"}}
	rules[0].Host = "*.example.test"
	rules[1].Host = "*.b.example.test"
	rules[2].Host = "a.b.example.test"
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		p := compile(t, rung.EgressDeny, rules[order[0]], rules[order[1]], rules[order[2]])
		_, d := p.Request(request("https GET a.b.example.test /"))
		if want := rules[order[0]].Name; d.RuleName != want || p.Connect("a.b.example.test", 443).RuleName != want {
			t.Errorf("order %v: %s", order, d.RuleName)
		}
	}
}

func TestNotes(t *testing.T) {
	p := compile(t, rung.EgressDeny,
		rung.EgressRule{Host: "*.github.io"}, rung.EgressRule{Host: "octocat.github.io"}, rung.EgressRule{Host: "*.amazonaws.com"},
		rung.EgressRule{Host: "storage.googleapis.com"}, rung.EgressRule{Host: "*.example.com"}, rung.EgressRule{Host: "bücher.example"},
		rung.EgressRule{Host: "a.b", Methods: []string{}}, rung.EgressRule{Host: "a.b", Ports: []int{443}, Protocol: "tcp"},
	)
	want := []string{
		`rule "allow *.github.io": *.github.io names the hosts of many tenants: anybody can have one; name exact hosts`,
		`rule "allow *.amazonaws.com": *.amazonaws.com names the hosts of many tenants: anybody can have one; name exact hosts`,
		`rule "allow storage.googleapis.com": storage.googleapis.com serves many tenants: anybody can send and receive there; name paths too`,
		`rule "allow xn--bcher-kva.example" names an internationalised host: check that it is the one you mean`,
		`rule "allow a.b methods none" has an empty list of methods or paths, so that no request matches it`,
		`rule "allow a.b:443/tcp" lets any bytes to port 443 of a.b, so that the conditions of "allow a.b methods none" do not hold there`,
	}
	if d := cmp.Diff(want, p.Notes()); d != "" {
		t.Error(d)
	}
}

// Every hint that is a flag or a line makes the very thing pass that was refused.
func TestHintsWork(t *testing.T) {
	for _, text := range []string{
		"https GET evil.org /", "https GET evil.org:8443 /", "https POST api.test /v1/x", "ws GET index.test /s", "http GET index.test /",
		"https PROPFIND index.test /x", "https GET nothing.test:8443 /a%22b", "http GET 192.168.1.1 /", "http GET 192.168.1.1:22 /", "https GET dns.google /dns-query",
		"https GET npm.test /other", "http GET [2001:db8::1] /",
	} {
		r := request(text)
		_, d := sample(t, rung.EgressDeny).Request(r)
		var extra rung.EgressRule
		var err error
		if flag, is := strings.CutPrefix(d.Hint, "--allow "); is {
			extra, err = ParseAllow(flag)
		} else {
			var f File
			if f, err = ParsePolicy([]byte("egress:\n  rules:\n    " + d.Hint + "\n")); err == nil {
				extra = f.Egress.Rules[0]
			}
		}
		if err != nil || d.Allow {
			t.Errorf("%s: %s: %v", text, show(d), err)
			continue
		}
		rules := append(sample(t, rung.EgressDeny).Rules(), extra)
		for i := range rules {
			rules[i].Name = ""
		}
		if _, d := compile(t, rung.EgressDeny, rules...).Request(r); !d.Allow {
			t.Errorf("%s: with its hint still %s", text, show(d))
		}
	}
}

func manyRules(n int) []rung.EgressRule {
	var rules []rung.EgressRule
	for i := range n {
		switch i % 4 {
		case 0:
			rules = append(rules, rung.EgressRule{Host: fmt.Sprintf("host%d.example.com", i), Ports: []int{443}})
		case 1:
			rules = append(rules, rung.EgressRule{Host: fmt.Sprintf("*.zone%d.example.com", i)})
		case 2:
			rules = append(rules, rung.EgressRule{Host: fmt.Sprintf("api%d.example.com", i), Methods: []string{"GET"}, Paths: []string{"/v1/**"}})
		default:
			rules = append(rules, rung.EgressRule{CIDR: fmt.Sprintf("10.%d.%d.0/24", i>>8&255, i&255), Ports: []int{443}})
		}
	}
	return rules
}

// BenchmarkPolicy: an answer costs the same with 10 rules and with 10,000.
func BenchmarkPolicy(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		p := compile(b, rung.EgressDeny, manyRules(n)...)
		last := n - 1
		for last%4 != 2 {
			last--
		}
		api, zone := fmt.Sprintf("api%d.example.com", last), fmt.Sprintf("a.b.zone%d.example.com", last-1)
		addr := netip.MustParseAddr(fmt.Sprintf("10.%d.%d.7", (last-3)>>8&255, (last-3)&255))
		r := Request{Host: api, Port: 443, TLS: true, Method: "GET", Path: "/v1/x/y"}
		for _, q := range []struct {
			name string
			ask  func() bool
			want bool
		}{
			{"Lookup", func() bool { return p.Lookup(zone).Allow }, true},
			{"Connect", func() bool { return p.Connect(api, 443).Allow }, true},
			{"Request", func() bool { _, d := p.Request(r); return d.Allow }, true},
			{"Direct", func() bool { return p.Direct(addr, 443).Allow }, true},
			{"denied", func() bool { return p.Lookup("a.b.c.evil.org").Allow }, false},
		} {
			b.Run(fmt.Sprintf("%s/%d", q.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if q.ask() != q.want {
						b.Fatal("wrong answer")
					}
				}
			})
		}
	}
}
