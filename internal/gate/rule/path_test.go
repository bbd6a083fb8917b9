package rule

import (
	"strings"
	"testing"
)

func TestNormalPath(t *testing.T) {
	for in, want := range map[string]string{ // "" is refused
		"/": "/", "/a/b": "/a/b", "/a/": "/a/", "/a/./b": "/a/b", "/a/../b": "/b", "/../../b": "/b", "/a/..": "/", "/a/b/..": "/a/",
		"/a/.": "/a/", "/..": "/", "/a/b/../../../c": "/c", "//a": "//a", "/a//b": "/a//b", "/a//../b": "/a/b", "/...": "/...",
		"/%61%7e%2D": "/a~-", "/caf%c3%a9": "/caf%C3%A9", "/a%2bb": "/a%2Bb", "/a;v=1/b": "/a;v=1/b", "/a?x=../..": "/a", "/?": "/",
		"/a%3fb": "/a%3Fb", "/file%2etxt": "/file.txt", "/100%25": "/100%25", "/100%25zz": "/100%25zz", "/a|b": "/a%7Cb", "/[x]": "/%5Bx%5D",
		"/a%20b": "/a%20b", "/a:b@c": "/a:b@c", "/%2A": "/%2A", "/*": "/*", "/a/.b/..c": "/a/.b/..c",

		"": "", "a": "", "*": "", "http://x/": "", "?x": "", "/a%2fb": "", "/a%2Fb": "", "/a%5cb": "", "/a\\b": "", "/a%00": "", "/a%0d%0a": "",
		"/a%7f": "", "/a b": "", "/a\x00": "", "/a\r": "", "/é": "", "/%": "", "/%2": "", "/%zz": "", "/%u002e": "", "/a#b": "",
		"/%2e%2e/a": "", "/.%2e/a": "", "/%2e/a": "", "/a/%2E%2e": "", "/%252e%252e/a": "", "/%252f": "", "/%25%32%65": "", "/%2525": "",
		"/a/..;/b": "", "/a/..;x=1/b": "", "/a/.;/b": "", "/a/..%3b/b": "", "/a/..%20/b": "", "/a/%20../b": "",
		"/%c0%ae%c0%ae/a": "", "/%c0%af": "", "/%e0%80%af": "", "/%ff": "", "/%ed%a0%80": "", "/@s%2fx": "",
		"/" + strings.Repeat("a", MaxPath): "",
	} {
		got, err := NormalPath(in)
		if (err != nil) != (want == "") || got != want {
			t.Errorf("NormalPath(%.40q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"/@s%2fx": "/@s%2Fx", "/@s%2Fx/-/x-1.tgz": "/@s%2Fx/-/x-1.tgz", "/@s/x": "/@s/x", "/p/@s%2fx": "/p/@s%2Fx",
		"/s%2fx": "", "/@s%2f": "", "/@%2fx": "", "/@s%2f..": "", "/@s%2f%2e%2e": "", "/@s%2fx%2fy": "", "/@s%2f.;": "", "/@s%2f..%20": "", "/@s%5cx": "", "/@s%252fx": "",
	} {
		got, err := normalPath(in, true)
		if (err != nil) != (want == "") || got != want {
			t.Errorf("normalPath(%q, scoped) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string // space-separated
	}{
		{"/", "/", "/a //"},
		{"/a", "/a", "/a/ /b /a/b / /A"},
		{"/a/", "/a/", "/a /a//"},
		{"/a/*", "/a/b /a/* /a/.b", "/a/ /a /a/b/c /a/b/"},
		{"/*/b", "/a/b", "//b /b /a/c/b"},
		{"/a/**", "/a/ /a/b /a/b/c /a//", "/a /ab /b/a/"},
		{"/**", "/ /a /a/b //", ""},
		{"/a/*/**", "/a/b/ /a/b/c/d", "/a/b /a//c"},
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for s := range strings.FieldsSeq(c.yes) {
			if !p.match(s) {
				t.Errorf("%s does not match %s", c.pattern, s)
			}
		}
		for s := range strings.FieldsSeq(c.no) {
			if p.match(s) {
				t.Errorf("%s matches %s", c.pattern, s)
			}
		}
	}
	for _, bad := range []string{"", "a", "/a*", "/**/b", "/a/../b", "/a?x", "/%61", "/a/***", "/caf%c3%a9", "/a%2fb", "/a/./b"} {
		if p, err := parsePattern(bad); err == nil {
			t.Errorf("pattern %q is %q", bad, p)
		}
	}
}

func FuzzNormalPath(f *testing.F) {
	for _, s := range []string{"/a/../b", "/%2e%2e/", "/a;b/..;/", "/%25%32%65", "/@a%2fb", "//..//.", "/a|b?c", "/%c3%a9/..%20", "/..%3B%2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, scoped := range []bool{false, true} {
			n, err := normalPath(raw, scoped)
			if err != nil {
				continue
			}
			if again, err := normalPath(n, scoped); err != nil || again != n {
				t.Fatalf("%q becomes %q, then %q, %v", raw, n, again, err)
			}
			low := strings.ToLower(n + "/")
			for _, bad := range []string{"/../", "/./", "%2e", "%5c", "%00", "%0a", "\\", "?", "#", " ", "/..;", "/.;"} {
				if strings.Contains(low, bad) {
					t.Fatalf("%q becomes %q with %q", raw, n, bad)
				}
			}
			if n[0] != '/' || !scoped && strings.Contains(low, "%2f") {
				t.Fatalf("%q becomes %q", raw, n)
			}
		}
	})
}
