package rule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

func TestParsePolicy(t *testing.T) {
	const text = `# what the build may reach
version: 1
egress:
  mode: deny
  rules:
    - host: Index.test.
    - {host: "example.com:8443", methods: [GET], paths: ["/x", "/y/**"]}
    - name: api
      host: "*.example.com"
      ports: [443, 8443]
      require_tls: true
      methods: []
      websocket: true
      approve: true
      secrets: [API_TOKEN]
      identity: https://api.example.com
      limits: {connections: 4, connections_per_second: 2.5, bytes_out: 10MiB, bytes_in: 1GB, requests: 100, lookups: 7}
    - cidr: 10.0.0.5/32
      ports: [5432]
      protocol: tcp
    - {host: registry.example, registry: npm}
    - host: index.example
      registry: {kind: pypi, prefix: /root/pypi, packages: [requests, "left-pad"], min_age: 7d}
    - {host: proxy.example, registry: {kind: go, packages: []}}
  budget:
    connections: 16
    bytes_out: 4096
`
	want := rung.Egress{
		Mode: rung.EgressDeny,
		Rules: []rung.EgressRule{
			{Host: "index.test"},
			{Host: "example.com", Ports: []int{8443}, Methods: []string{"GET"}, Paths: []string{"/x", "/y/**"}},
			{
				Name: "api", Host: "*.example.com", Ports: []int{443, 8443}, RequireTLS: true, Methods: []string{}, WebSocket: true,
				Approve: true, Secrets: []string{"API_TOKEN"}, Identity: "https://api.example.com",
				Limits: &rung.NetBudget{Connections: 4, Rate: 2.5, BytesOut: 10 << 20, BytesIn: 1e9, Requests: 100, Lookups: 7},
			},
			{CIDR: "10.0.0.5/32", Ports: []int{5432}, Protocol: "tcp"},
			{Host: "registry.example", Registry: &rung.Registry{Kind: "npm"}},
			{Host: "index.example", Registry: &rung.Registry{Kind: "pypi", Prefix: "/root/pypi", Packages: []string{"requests", "left-pad"}, MinAge: 7 * 24 * time.Hour}},
			{Host: "proxy.example", Registry: &rung.Registry{Kind: "go", Packages: []string{}}},
		},
		Budget: rung.NetBudget{Connections: 16, BytesOut: 4096},
	}
	f, err := ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, f.Egress); d != "" {
		t.Error(d)
	}
	if _, err := Compile(*f.Egress); err != nil {
		t.Error(err)
	}
}

// Unset and empty are kept apart where they differ (pain 14: an empty list allowed everything).
func TestPain14EmptyIsNothing(t *testing.T) {
	for text, want := range map[string]*rung.Egress{
		"":                               nil,
		"# nothing\n":                    nil,
		"---\nversion: 1\n":              nil,
		"version: 1":                     nil,
		"egress: {}":                     {},
		"egress: {rules: []}":            {Rules: []rung.EgressRule{}},
		"egress: {mode: none}":           {Mode: rung.EgressNone},
		"egress: {rules: [{host: a.b}]}": {Rules: []rung.EgressRule{{Host: "a.b"}}},
		"egress: {rules: [{host: a.b, paths: []}]}": {Rules: []rung.EgressRule{{Host: "a.b", Paths: []string{}}}},
	} {
		f, err := ParsePolicy([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if d := cmp.Diff(want, f.Egress); d != "" {
			t.Errorf("%q: %s", text, d)
		}
		if f.Egress == nil {
			continue
		}
		p, err := Compile(*f.Egress)
		if err != nil {
			t.Fatal(err)
		}
		_, d := p.Request(Request{Host: "a.b", Port: 443, TLS: true, Method: "GET", Path: "/"})
		if named := strings.HasSuffix(text, "a.b}]}"); d.Allow != named || p.Connect("other.example", 443).Allow {
			t.Errorf("%q: %+v", text, d)
		}
	}
}

func inRule(s string) string { return "egress:\n  rules:\n    - " + s + "\n" }

// refused are policies and part of what is said about them.
var refused = map[string]string{
	"egres: {}":                                "line 1, column 1: a policy has no key \"egres\"",
	"threat: generated":                        "no key \"threat\"",
	"version: 2":                               "line 1, column 10: this rung reads policies of version 1",
	"version: \"1\"":                           "version 1",
	"egress:\n  mode: deny\n  mode: open\n":    "line 3, column 3",
	"egress: {mode: deny, mode: open}":         "line 1, column 22",
	"egress: {}\nversion: 1\n\"egress\": {}\n": "line 3, column 1",
	"egress:":                                  "egress has no value",
	"egress: []":                               "egress is a mapping, not a list",
	"[]":                                       "a policy is a mapping",
	"word":                                     "a policy is a mapping",
	"egress: {mode: Deny}":                     "unknown egress mode",
	"egress: {mode: true}":                     "text is expected",
	"egress:\n  rules:\n":                      "line 2, column 3: rules has no value",
	"egress: {rules: {}}":                      "a list is expected",
	"egress: {rules: [~]}":                     "an entry without a value",
	"egress: {rules: [a.b]}":                   "a rule is a mapping, not string",
	"egress: {mode: none, rules: [{host: a.b}]}":                     "could never hold",
	inRule("hots: a.b"):                                              "line 3, column 7: a rule has no key \"hots\"",
	inRule("host: a.b\n      methods:"):                              "line 4, column 7: methods has no value",
	inRule("host: a.b\n      ports: [0]"):                            "line 4, column 14: ports: 0 is no port",
	inRule("{host: a.b, ports: [65536]}"):                            "65536 is no port",
	inRule("{host: a.b, ports: [0x1bb]}"):                            "no whole number in decimal",
	inRule("{host: a.b, ports: [443.0]}"):                            "whole number is expected",
	inRule("{host: a.b, ports: [\"443\"]}"):                          "whole number is expected",
	inRule("{host: a.b, ports: 443}"):                                "a list is expected",
	inRule("{host: a.b, ports: []}"):                                 "an empty list would match nothing",
	inRule("{host: \"a.b:1\", ports: [2]}"):                          "port of its own",
	inRule("{host: \"a.b:0\"}"):                                      "no port",
	inRule("{host: 10.0.0.5}"):                                       "read as an address",
	inRule("{host: \"10.0.0.5:80\"}"):                                "named as a network",
	inRule("{host: \"*.com\"}"):                                      "public suffix",
	inRule("{host: a.b, cidr: 10.0.0.0/8}"):                          "not both",
	inRule("{name: x}"):                                              "neither a host nor a cidr",
	inRule("{name: open, host: a.b}"):                                "a mode's name",
	inRule("{host: a.b, protocol: udp}"):                             "no protocol",
	inRule("{host: a.b, protocol: tcp}"):                             "names its ports",
	inRule("{host: a.b, ports: [1], protocol: tcp, methods: [GET]}"): "conditions on requests cannot hold",
	inRule("{cidr: 10.0.0.0/8, paths: [/x]}"):                        "need a host",
	inRule("{host: a.b, methods: [get]}"):                            "case-sensitive",
	inRule("{host: a.b, methods: [CONNECT]}"):                        "never let through",
	inRule("{host: a.b, methods: [TRACE]}"):                          "never let through",
	inRule("{host: a.b, methods: [\"*\"]}"):                          "no method",
	inRule("{host: a.b, methods: GET}"):                              "a list is expected",
	inRule("{host: a.b, methods: [1]}"):                              "text is expected",
	inRule("{host: a.b, paths: [x]}"):                                "does not begin with a slash",
	inRule("{host: a.b, paths: [\"/a*\"]}"):                          "whole part",
	inRule("{host: a.b, websocket: yes}"):                            "true or false",
	inRule("{host: a.b, secrets: [\"a b\"]}"):                        "no name of a secret",
	inRule("{host: a.b, identity: \"a b\"}"):                         "no audience",
	inRule("{host: a.b, limits: {bytes_out: 10M}}"):                  "no size",
	inRule("{host: a.b, limits: {bytes_out: -1}}"):                   "negative",
	inRule("{host: a.b, limits: {connections: 5000000000}}"):         "too large",
	inRule("{host: a.b, limits: {connections_per_second: .nan}}"):    "number is expected",
	inRule("{host: a.b, registry: cargo}"):                           "no registry",
	inRule("{host: a.b, registry: {}}"):                              "no registry",
	inRule("{host: a.b, registry: {kind: npm, min_age: 7}}"):         "text is expected",
	inRule("{host: a.b, registry: {kind: npm, min_age: 7y}}"):        "no age",
	inRule("{host: a.b, registry: {kind: npm, min_age: \"\"}}"):      "no age",
	inRule("{host: a.b, registry: {kind: npm, prefix: /x/}}"):        "no path in normal form",
	inRule("{host: a.b, registry: npm, methods: [PUT]}"):             "read-only",
	inRule("{host: a.b, registry: npm, websocket: true}"):            "read-only",
	"a: &x 1\nb: *x\n":                                               "line 1, column 4: anchors",
	"egress: {<<: {}}":                                               "anchors, aliases",
	"egress: !!map {}":                                               "anchors, aliases",
	"%YAML 1.2\n---\nversion: 1\n":                                   "anchors, aliases",
	"? version\n: 1\n":                                               "anchors, aliases",
	"version: 1\n---\nversion: 1\n":                                  "line 2, column 1: a policy file has one document",
	"version: 1\n...\nversion: 1\n":                                  "one document",
	"egress: {rules: [[[[[[[[[[]]]]]]]]]]}":                          "nested deeper",
	"- - - a":                                                        "nested deeper",
	"egress: [":                                                      "line 1",
	"egress: \"":                                                     "line 1",
	"egress:\n\tmode: deny\n":                                        "line",
	"version: 1\n\x00":                                               "line 2, column 1: a character that is not printable",
	"version: 1 # \xff":                                              "not UTF-8",
	"\ufeffversion: 1":                                               "not printable",
	"1: 2":                                                           "a key is a word",
	strings.Repeat("#", MaxFile+1):                                   "larger than 1 MiB",
}

func TestParsePolicyRefuses(t *testing.T) {
	for text, want := range refused {
		f, err := ParsePolicy([]byte(text))
		if err == nil || rung.KindOf(err) != rung.KindInvalid || !strings.Contains(err.Error(), want) || f.Egress != nil {
			t.Errorf("%.80q: %+v, %v; want %q", text, f, err, want)
		}
	}
}

func TestQuantities(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "4096": 4096, "10MiB": 10 << 20, "10 MiB": 10 << 20, "1GB": 1e9, "1kB": 1000, "8EiB": -1, "9223372036854775807": 1<<63 - 1,
		"9223372036854775808": -1, "9007199254740992KiB": -1, "": -1, "MiB": -1, "1M": -1, "1.5GiB": -1, "-1": -1, "1mib": -1,
	} {
		if got, err := parseSize(in); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("parseSize(%q) = %d, %v", in, got, err)
		}
	}
	for in, want := range map[string]time.Duration{
		"7d": 168 * time.Hour, "1w": 168 * time.Hour, "36h": 36 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0, "90m": 90 * time.Minute, "30s": 30 * time.Second,
		"": -1, "7": -1, "d": -1, "7 d": -1, "-7d": -1, "1.5d": -1, "7D": -1, "99999w": -1, "99999999999d": -1, "7dd": -1, "36500d36500d": -1,
	} {
		if got, err := ParseAge(in); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("ParseAge(%q) = %v, %v", in, got, err)
		}
	}
}

// The largest files there can be are read or refused in seconds, whatever they are made of.
func TestParsePolicyIsBounded(t *testing.T) {
	many := "egress:\n  rules:\n" + strings.Repeat("    - {host: a.example, methods: [GET]}\n", 16_000)
	for name, text := range map[string]string{
		"rules": many, "brackets": strings.Repeat("[", MaxFile/4), "dashes": strings.Repeat("- ", MaxFile/16), "keys": strings.Repeat("a:\n", MaxFile/24),
		"flow": "egress: {rules: [" + strings.Repeat("a,", MaxFile/4) + "]}", "quotes": strings.Repeat("'", MaxFile), "spaces": "a:" + strings.Repeat(" ", MaxFile-2),
	} {
		start := time.Now()
		f, err := ParsePolicy([]byte(text))
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		} else {
			t.Log(name, took, err)
		}
		if (err == nil) != (name == "rules" && len(f.Egress.Rules) == 16_000) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The examples of the documentation are policies.
func TestDocumentedPolicies(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "```yaml\n")
	if len(parts) < 2 {
		t.Fatal("no examples")
	}
	for _, part := range parts[1:] {
		example, _, _ := strings.Cut(part, "```")
		f, err := ParsePolicy([]byte(example))
		if err != nil {
			t.Errorf("%v in\n%s", err, example)
			continue
		}
		if _, err := Compile(*f.Egress); err != nil {
			t.Errorf("%v in\n%s", err, example)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, s := range []string{
		"version: 1\negress:\n  mode: deny\n  rules:\n    - {host: \"a.b:1\", methods: [GET], paths: [/x/**]}\n",
		"egress: {rules: [{cidr: 10.0.0.0/8, ports: [1], protocol: tcp}], budget: {bytes_in: 10MiB, connections_per_second: 1.5}}",
		"egress:\n  rules:\n  - host: a.b\n    registry:\n      kind: npm\n      min_age: 7d\n      packages:\n      - x\n",
		"a: &b [*b]\n", "? [a]\n: - b\n", "a: |\n  b\n", "\"a\\u0000\": 'b'", "{a: [b, {c: d}]}", "--- \n...\n", "- - ? : - a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 64<<10 {
			return
		}
		start := time.Now()
		file, err := ParsePolicy(text)
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("took %v", took)
		}
		if err != nil {
			if rung.KindOf(err) != rung.KindInvalid || file.Egress != nil {
				t.Fatalf("%v, %+v", err, file)
			}
			return
		}
		if file.Egress == nil {
			return
		}
		p, err := Compile(*file.Egress)
		if err != nil && !strings.Contains(err.Error(), "are called") {
			t.Fatalf("read, but not compiled: %v", err)
		}
		if err != nil {
			return
		}
		// What a policy compiles to compiles to itself.
		again, err := Compile(rung.Egress{Mode: p.Mode(), Rules: unnamed(p.Rules()), Budget: p.Budget()})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p.Rules(), again.Rules()); d != "" && !strings.Contains(d, "Name") {
			t.Fatal(d)
		}
	})
}

// unnamed drops names, of which two rules can have the same when they are made from equal texts.
func unnamed(rules []rung.EgressRule) []rung.EgressRule {
	for i := range rules {
		rules[i].Name = ""
	}
	return rules
}
