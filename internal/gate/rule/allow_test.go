package rule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

func TestParseAllow(t *testing.T) {
	for in, want := range map[string]rung.EgressRule{
		"index.test":                {Host: "index.test"},
		"Index.test.":               {Host: "index.test"},
		"index.test:443":            {Host: "index.test", Ports: []int{443}},
		"*.example.com":             {Host: "*.example.com"},
		"*.Example.COM.:8443":       {Host: "*.example.com", Ports: []int{8443}},
		"*.github.io":               {Host: "*.github.io"},
		"db.example.com:5432/tcp":   {Host: "db.example.com", Ports: []int{5432}, Protocol: "tcp"},
		"index.test:443/http":       {Host: "index.test", Ports: []int{443}},
		"intranet:8080":             {Host: "intranet", Ports: []int{8080}},
		"bücher.example":            {Host: "xn--bcher-kva.example"},
		"*.bücher.example":          {Host: "*.xn--bcher-kva.example"},
		"10.0.0.0/8":                {CIDR: "10.0.0.0/8"},
		"10.0.0.0/8:443":            {CIDR: "10.0.0.0/8", Ports: []int{443}},
		"10.0.0.5/32:5432/tcp":      {CIDR: "10.0.0.5/32", Ports: []int{5432}, Protocol: "tcp"},
		"2001:db8::/32":             {CIDR: "2001:db8::/32"},
		"2001:DB8:0::/32:443":       {CIDR: "2001:db8::/32", Ports: []int{443}},
		"[2001:db8::]/32:22/tcp":    {CIDR: "2001:db8::/32", Ports: []int{22}, Protocol: "tcp"},
		"0.0.0.0/0:443":             {CIDR: "0.0.0.0/0", Ports: []int{443}},
		"169.254.169.254/32:80/tcp": {CIDR: "169.254.169.254/32", Ports: []int{80}, Protocol: "tcp"},
		"a.b:65535":                 {Host: "a.b", Ports: []int{65535}},
	} {
		got, err := ParseAllow(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", in, d)
		}
	}
}

func TestParseAllowRefuses(t *testing.T) {
	for in, want := range map[string]string{ // text, and after a bar the hint
		"":                         "empty|--allow example.com",
		"*":                        "only for whole labels|--egress open",
		"*.com":                    "public suffix|*.example.com",
		"*.co.uk":                  "public suffix|",
		"*.foo.ck":                 "public suffix|",
		"*.internalzone":           "public suffix|",
		"*example.com":             "whole labels|",
		"a.*.com":                  "whole labels|",
		"*.*.com":                  "wildcard|",
		"*.":                       "empty|",
		"index.test:0":             `"0" is no port|`,
		"index.test:65536":         "1 to 65535|",
		"index.test:":              "no port|",
		"index.test:+443":          "no port|",
		"index.test:0443":          "no port|",
		"index.test:https":         "no port|",
		"index.test:443:443":       "no port|",
		"https://index.test":       "URL|--allow example.com",
		"index.test/simple":        "no network|paths in a policy file",
		"index.test,a.org":         "more than one|once",
		"user@index.test":          "user information|",
		"db.example.com/tcp":       "names its ports|",
		"dns.example:53/udp":       "UDP|",
		"10.0.0.5":                 "named as a network|--allow 10.0.0.5/32",
		"10.0.0.5:5432":            "named as a network|--allow 10.0.0.5/32:5432/tcp",
		"[::1]:443":                "named as a network|--allow ::1/128:443",
		"::1":                      "named as a network|::1/128",
		"10.0.0.5/8":               "beyond its length|10.0.0.0/8",
		"::ffff:10.0.0.0/104":      "v4-mapped|",
		"10.0.0.0/33":              "no network|",
		"10.0.0.0/08":              "no network|",
		"010.0.0.0/8":              "no network|",
		"fe80::%eth0/64":           "no network|",
		"[10.0.0.0]/8":             "brackets|",
		"[2001:db8::/32":           "brackets|",
		"0x7f000001:80":            "read as an address|",
		"2130706433":               "read as an address|",
		"127.1":                    "read as an address|",
		"localhost:8080":           "own machine|127.0.0.1/32",
		"*.localhost":              "|", // a public suffix of one label
		"metadata.google.internal": "metadata|",
		"a\x00.example":            "control|",
	} {
		text, hint, _ := strings.Cut(want, "|")
		r, err := ParseAllow(in)
		if err == nil || rung.KindOf(err) != rung.KindInvalid || !strings.Contains(err.Error(), text) || !strings.Contains(rung.HintOf(err), hint) {
			t.Errorf("%q: %+v, %v (hint %q), want %q", in, r, err, rung.HintOf(err), want)
		}
	}
}

// What the printer writes after the word allow is what ParseAllow reads.
func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"index.test:443", "*.example.com", "10.0.0.0/8:22/tcp", "[2001:db8::]/32:443", "Bücher.example", "a:65535/tcp", "::/0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseAllow(s)
		if err != nil {
			if strings.ContainsFunc(err.Error(), func(c rune) bool { return c < ' ' }) {
				t.Fatalf("control characters in %q", err)
			}
			return
		}
		text, _ := strings.CutPrefix(Text(r), "allow ")
		again, err := ParseAllow(text)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", s, text, err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Fatalf("%q, %q: %s", s, text, d)
		}
		p, err := Compile(rung.Egress{Rules: []rung.EgressRule{r}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Host, "*") && r.Host != "" && !p.Connect(r.Host, portsOf(r)[0]).Allow {
			t.Fatalf("%q does not allow what it names", s)
		}
	})
}
