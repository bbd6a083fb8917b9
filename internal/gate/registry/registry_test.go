package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func judge(t testing.TB, kind, prefix string, packages []string, age time.Duration) *Judge {
	t.Helper()
	j, err := New(rung.EgressRule{
		Host: "registry.example", RequireTLS: true,
		Registry: &rung.Registry{Kind: kind, Prefix: prefix, Packages: packages, MinAge: age},
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// reads are requests as the real clients send them (taken from npm 11, pip 23, go 1.26 and apt 2.6 at work), and what is
// understood: the package that is fetched, or "metadata", or "" for what belongs to no package.
var reads = []struct{ kind, prefix, path, upstream, want string }{
	{NPM, "", "/is-odd", "/is-odd", "metadata"},
	{NPM, "", "/npm", "/npm", "metadata"},
	{NPM, "", "/JSONStream", "/JSONStream", "metadata"},
	{NPM, "", "/@types%2fms", "/@types%2fms", "metadata"},
	{NPM, "", "/@types%2Fms", "/@types%2fms", "metadata"},
	{NPM, "", "/@types/ms", "/@types%2fms", "metadata"},
	{NPM, "", "/%40types%2fms", "/@types%2fms", "metadata"},
	{NPM, "", "/is-odd/3.0.1", "/is-odd/3.0.1", "metadata"},
	{NPM, "", "/is-odd/latest", "/is-odd/latest", "metadata"},
	{NPM, "", "/@types/ms/2.1.0", "/@types%2fms/2.1.0", "metadata"},
	{NPM, "", "/is-odd/-/is-odd-3.0.1.tgz", "/is-odd/-/is-odd-3.0.1.tgz", "is-odd@3.0.1"},
	{NPM, "", "/a/-/a-1.0.0-rc.1+build.5.tgz", "/a/-/a-1.0.0-rc.1%2Bbuild.5.tgz", "a@1.0.0-rc.1+build.5"},
	{NPM, "", "/@types/ms/-/ms-2.1.0.tgz", "/@types/ms/-/ms-2.1.0.tgz", "@types/ms@2.1.0"},
	{NPM, "", "/@types%2fms/-/ms-2.1.0.tgz", "/@types/ms/-/ms-2.1.0.tgz", "@types/ms@2.1.0"},
	{NPM, "", "/@types/ms/-/@types/ms-2.1.0.tgz", "/@types/ms/-/@types/ms-2.1.0.tgz", "@types/ms@2.1.0"},
	{NPM, "", "/-/package/is-odd/dist-tags", "/-/package/is-odd/dist-tags", "metadata"},
	{NPM, "", "/-/package/@types%2fms/dist-tags", "/-/package/@types%2fms/dist-tags", "metadata"},
	{NPM, "", "/-/ping", "/-/ping", ""},
	{NPM, "", "/-/npm/v1/keys", "/-/npm/v1/keys", ""},
	{NPM, "", "/-/npm/v1/attestations/@types%2fms@2.1.0", "/-/npm/v1/attestations/@types%2fms@2.1.0", "metadata"},
	{NPM, "/api/npm/all", "/api/npm/all/is-odd", "/api/npm/all/is-odd", "metadata"},
	{NPM, "/api/npm/all", "/api/npm/all/is-odd/-/is-odd-3.0.1.tgz", "/api/npm/all/is-odd/-/is-odd-3.0.1.tgz", "is-odd@3.0.1"},

	{PyPI, "", "/simple/", "/simple/", "metadata"},
	{PyPI, "", "/simple/idna/", "/simple/idna/", "metadata"},
	{PyPI, "", "/simple/Flask_Login", "/simple/Flask_Login", "metadata"},
	{PyPI, "", "/pypi/idna/json", "/pypi/idna/json", "metadata"},
	{PyPI, "", "/pypi/idna/3.9/json", "/pypi/idna/3.9/json", "metadata"},
	{PyPI, "/simple", "/pypi/idna/json", "/pypi/idna/json", "metadata"},
	{PyPI, "/packages", "/packages/58/a2/bb/idna-3.20-py3-none-any.whl", "/packages/58/a2/bb/idna-3.20-py3-none-any.whl", "idna@3.20"},
	{PyPI, "/packages", "/packages/58/a2/bb/idna-3.20-py3-none-any.whl.metadata", "/packages/58/a2/bb/idna-3.20-py3-none-any.whl.metadata", "metadata"},
	{PyPI, "/packages", "/packages/x/python-dateutil-2.8.2.tar.gz", "/packages/x/python-dateutil-2.8.2.tar.gz", "python-dateutil@2.8.2"},
	{PyPI, "/packages", "/packages/x/Zope.Interface-5.0.zip", "/packages/x/Zope.Interface-5.0.zip", "zope-interface@5.0"},
	{PyPI, "/packages", "/packages/x/charset_normalizer-3.5.3-cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64.whl", "/packages/x/charset_normalizer-3.5.3-cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64.whl", "charset-normalizer@3.5.3"},
	{PyPI, "/packages", "/packages/x/torch-2.0.1+cu118-1-cp311-cp311-linux_x86_64.whl", "/packages/x/torch-2.0.1%2Bcu118-1-cp311-cp311-linux_x86_64.whl", "torch@2.0.1+cu118"},
	{PyPI, "/packages", "/packages/x/torch-2.0.1%2Bcu118-cp311-cp311-linux_x86_64.whl", "/packages/x/torch-2.0.1%2Bcu118-cp311-cp311-linux_x86_64.whl", "torch@2.0.1+cu118"},
	{PyPI, "/repo/all/simple", "/repo/all/simple/idna/", "/repo/all/simple/idna/", "metadata"},
	{PyPI, "/repo/all/simple", "/repo/all/packages/idna/3.9/idna-3.9.tar.gz", "/repo/all/packages/idna/3.9/idna-3.9.tar.gz", "idna@3.9"},
	{PyPI, "/root/pypi/+simple", "/root/pypi/+simple/idna/", "/root/pypi/%2Bsimple/idna/", "metadata"},
	{PyPI, "/root/pypi/+simple", "/root/pypi/%2Bf/58/a2/idna-3.9.tar.gz", "/root/pypi/%2Bf/58/a2/idna-3.9.tar.gz", "idna@3.9"},
	{PyPI, "/whl/cpu", "/whl/cpu/torch/", "/whl/cpu/torch/", "metadata"},
	{PyPI, "/whl/cpu", "/whl/cpu/torch-2.0.1-cp311-cp311-linux_x86_64.whl", "/whl/cpu/torch-2.0.1-cp311-cp311-linux_x86_64.whl", "torch@2.0.1"},

	{Go, "", "/github.com/%21burnt%21sushi/toml/@v/v1.4.0.zip", "/github.com/%21burnt%21sushi/toml/@v/v1.4.0.zip", "github.com/BurntSushi/toml@v1.4.0"},
	{Go, "", "/github.com/!burnt!sushi/toml/@v/v1.4.0.mod", "/github.com/%21burnt%21sushi/toml/@v/v1.4.0.mod", "metadata"},
	{Go, "", "/github.com/x/y/@v/v1.4.0.info", "/github.com/x/y/@v/v1.4.0.info", "metadata"},
	{Go, "", "/github.com/x/y/v2/@v/list", "/github.com/x/y/v2/@v/list", "metadata"},
	{Go, "", "/rsc.io/@v/list", "/rsc.io/@v/list", "metadata"},
	{Go, "", "/golang.org/x/net/@latest", "/golang.org/x/net/@latest", "metadata"},
	{Go, "", "/github.com/docker/cli/@v/v29.7.2+incompatible.zip", "/github.com/docker/cli/@v/v29.7.2%2Bincompatible.zip", "github.com/docker/cli@v29.7.2+incompatible"},
	{Go, "", "/golang.org/toolchain/@v/v0.0.1-go1.26.1.linux-amd64.zip", "/golang.org/toolchain/@v/v0.0.1-go1.26.1.linux-amd64.zip", "golang.org/toolchain@v0.0.1-go1.26.1.linux-amd64"},
	{Go, "/go", "/go/sumdb/sum.example.org/supported", "/go/sumdb/sum.example.org/supported", ""},
	{Go, "", "/sumdb/sum.example.org/tile/8/1/x001/100.p/31", "/sumdb/sum.example.org/tile/8/1/x001/100.p/31", ""},
	{Go, "", "/sumdb/sum.example.org/tile/8/2/003", "/sumdb/sum.example.org/tile/8/2/003", ""},
	{Go, "", "/sumdb/sum.example.org/lookup/github.com/!burnt!sushi/toml@v1.4.0", "/sumdb/sum.example.org/lookup/github.com/%21burnt%21sushi/toml@v1.4.0", "metadata"},
	{Go, "", "/lookup/rsc.io/quote@v1.5.2", "/lookup/rsc.io/quote@v1.5.2", "metadata"},
	{Go, "", "/latest", "/latest", ""},
	{Go, "", "/tile/8/data/x001/000", "/tile/8/data/x001/000", ""},

	{Debian, "/debian", "/debian/dists/bookworm/InRelease", "/debian/dists/bookworm/InRelease", "metadata"},
	{Debian, "/debian", "/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/9e0b5aabb2465b3d2e7a7fe27f9913846277833f7a2826e7767acccff5b588c5", "/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/9e0b5aabb2465b3d2e7a7fe27f9913846277833f7a2826e7767acccff5b588c5", "metadata"},
	{Debian, "/debian", "/debian/dists/bookworm/main/binary-amd64/Packages.xz", "/debian/dists/bookworm/main/binary-amd64/Packages.xz", "metadata"},
	{Debian, "/debian", "/debian/dists/bookworm/main/i18n/Translation-en.bz2", "/debian/dists/bookworm/main/i18n/Translation-en.bz2", "metadata"},
	{Debian, "/debian", "/debian/dists/stable/updates/main/dep11/Components-amd64.yml.gz", "/debian/dists/stable/updates/main/dep11/Components-amd64.yml.gz", "metadata"},
	{Debian, "/debian", "/debian/pool/main/h/hello/hello_2.10-3_amd64.deb", "/debian/pool/main/h/hello/hello_2.10-3_amd64.deb", "hello@2.10-3"},
	{Debian, "/debian", "/debian/pool/main/g/gcc-12/libstdc%2b%2b6_12.2.0-14%2bdeb12u1_amd64.deb", "/debian/pool/main/g/gcc-12/libstdc%2B%2B6_12.2.0-14%2Bdeb12u1_amd64.deb", "libstdc++6@12.2.0-14+deb12u1"},
	{Debian, "/debian", "/debian/pool/main/h/hello/hello_2.10.orig.tar.gz", "/debian/pool/main/h/hello/hello_2.10.orig.tar.gz", "hello@2.10"},
	{Debian, "/debian", "/debian/pool/main/h/hello/hello_2.10.orig.tar.gz.asc", "/debian/pool/main/h/hello/hello_2.10.orig.tar.gz.asc", "hello@2.10"},
	{Debian, "/debian", "/debian/pool/main/h/hello/hello_2.10-3.debian.tar.xz", "/debian/pool/main/h/hello/hello_2.10-3.debian.tar.xz", "hello@2.10-3"},
	{Debian, "/debian", "/debian/pool/main/h/hello/hello_2.10-3.dsc", "/debian/pool/main/h/hello/hello_2.10-3.dsc", "hello@2.10-3"},
	{Debian, "", "/InRelease", "/InRelease", "metadata"},
	{Debian, "/flat", "/flat/Packages.gz", "/flat/Packages.gz", "metadata"},
	{Debian, "/flat", "/flat/amd64/tool_1.0_amd64.deb", "/flat/amd64/tool_1.0_amd64.deb", "tool@1.0"},
}

func TestReads(t *testing.T) {
	for _, tt := range reads {
		for _, method := range []string{"GET", "HEAD"} {
			v := judge(t, tt.kind, tt.prefix, nil, 0).Request(method, tt.path, "")
			got := v.Package.Name + "@" + v.Package.Version
			if got == "@" {
				got = map[bool]string{true: "metadata"}[v.Metadata]
			}
			want := tt.want
			if method == "HEAD" && strings.Contains(want, "@") {
				want = "" // nothing is fetched
			}
			if !v.Allow || v.Path != tt.upstream || got != want {
				t.Errorf("%s %s%s: allow %v (%s), upstream %q, is %q; want %q, %q", method, tt.kind, tt.path, v.Allow, v.Reason, v.Path, got, tt.upstream, want)
			}
		}
	}
}

// noReads are what a package client never asks for, and what looks like what it asks for.
var noReads = []struct{ kind, prefix, method, path, query string }{
	{NPM, "", "PUT", "/is-odd", ""},
	{NPM, "", "POST", "/-/npm/v1/security/advisories/bulk", ""},
	{NPM, "", "DELETE", "/is-odd/-rev/1", ""},
	{NPM, "", "get", "/is-odd", ""},
	{NPM, "", "", "/is-odd", ""},
	{NPM, "", "GET", "/-/v1/search", "text=x"},
	{NPM, "", "GET", "/-/v1/search", ""},
	{NPM, "", "GET", "/-/v1/login", ""},
	{NPM, "", "GET", "/-/user/org.couchdb.user:me", ""},
	{NPM, "", "GET", "/-/npm/v1/user", ""},
	{NPM, "", "GET", "/-/npm/v1/tokens", ""},
	{NPM, "", "GET", "/-/whoami", ""},
	{NPM, "", "GET", "/-/all", ""},
	{NPM, "", "GET", "/-/package/is-odd/access", ""},
	{NPM, "", "GET", "/is-odd", "write=true"},
	{NPM, "", "GET", "/", ""},
	{NPM, "", "GET", "", ""},
	{NPM, "", "GET", "is-odd", ""},
	{NPM, "", "GET", "/@types", ""},
	{NPM, "", "GET", "/@types%2f", ""},
	{NPM, "", "GET", "/@%2fms", ""},
	{NPM, "", "GET", "/a%2fb", ""},
	{NPM, "", "GET", "/@a%2fb%2fc", ""},
	{NPM, "", "GET", "/@a%252fb", ""},
	{NPM, "", "GET", "/is-odd/-/is-even-1.0.0.tgz", ""},
	{NPM, "", "GET", "/@types/ms/-/@other/ms-2.1.0.tgz", ""},
	{NPM, "", "GET", "/is-odd/-/is-odd-1.0.0.exe", ""},
	{NPM, "", "GET", "/is-odd/-/is-odd-.tgz", ""},
	{NPM, "", "GET", "/is-odd/-rev", ""},
	{NPM, "", "GET", "/is-odd/../is-even", ""},
	{NPM, "", "GET", "/is-odd/%2e%2e/is-even", ""},
	{NPM, "", "GET", "//is-odd", ""},
	{NPM, "", "GET", "/is-odd%00", ""},
	{NPM, "", "GET", "/is%20odd", ""},
	{NPM, "", "GET", "/is-odd%ff", ""},
	{NPM, "", "GET", "/is-odd%", ""},
	{NPM, "", "GET", "/ıs-odd", ""},
	{NPM, "", "GET", "/" + strings.Repeat("a", 300), ""},
	{NPM, "/api/npm", "GET", "/is-odd", ""},
	{NPM, "/api/npm", "GET", "/api/npmx/is-odd", ""},
	{NPM, "/api/npm", "GET", "/api", ""},

	{PyPI, "", "POST", "/legacy/", ""},
	{PyPI, "", "POST", "/pypi", ""},
	{PyPI, "", "GET", "/simple/idna/", "format=json"},
	{PyPI, "/simple", "GET", "/account/login/", ""},
	{PyPI, "/simple", "GET", "/search/", ""},
	{PyPI, "/simple", "GET", "/simple/idna/more/", ""},
	{PyPI, "/simple", "GET", "/simple/-idna/", ""},
	{PyPI, "/packages", "GET", "/packages/x/idna.whl", ""},
	{PyPI, "/packages", "GET", "/packages/x/idna-3.9.exe", ""},
	{PyPI, "/packages", "GET", "/packages/x/idna-3.9.tar.gz/", ""},
	{PyPI, "/packages", "GET", "/other/idna-3.9.tar.gz", ""},
	{PyPI, "/simple", "GET", "/@a%2fb/idna-3.9.tar.gz", ""},

	{Go, "", "GET", "/github.com/BurntSushi/toml/@v/list", ""},
	{Go, "", "GET", "/github.com/!Burnt/toml/@v/list", ""},
	{Go, "", "GET", "/github.com/x!/@v/list", ""},
	{Go, "", "GET", "/@v/list", ""},
	{Go, "", "GET", "/github.com/x/y", "go-get=1"},
	{Go, "", "GET", "/github.com/x/y", ""},
	{Go, "", "GET", "/github.com/x/y/@v/v1.0.0.exe", ""},
	{Go, "", "GET", "/github.com/x/y/@v/v1.0.0.zip/more", ""},
	{Go, "", "GET", "/github.com/x/y/@v/.zip", ""},
	{Go, "", "GET", "/sumdb/sum.example.org/tile/8/1/abc", ""},
	{Go, "", "GET", "/sumdb/sum.example.org/lookup/x", ""},
	{Go, "", "GET", "/sumdb/sum.example.org", ""},
	{Go, "", "POST", "/latest", ""},

	{Debian, "/debian", "GET", "/debian/", ""},
	{Debian, "/debian", "GET", "/debian/pool/main/h/hello/", ""},
	{Debian, "/debian", "GET", "/debian/pool/main/h/hello/secret", ""},
	{Debian, "/debian", "GET", "/debian/dists/bookworm/main/by-hash/SHA256/xyz", ""},
	{Debian, "/debian", "GET", "/debian/dists/bookworm/anything", ""},
	{Debian, "/debian", "GET", "/other/dists/bookworm/InRelease", ""},
	{Debian, "/debian", "GET", "/debian/pool/main/h/Hello_1_amd64.deb", ""},
	{Debian, "/debian", "PUT", "/debian/pool/main/h/hello_1_amd64.deb", ""},
}

func TestNoReads(t *testing.T) {
	for _, tt := range noReads {
		v := judge(t, tt.kind, tt.prefix, nil, 0).Request(tt.method, tt.path, tt.query)
		if v.Allow || v.Pending || v.Reason == "" || v.Path != "" {
			t.Errorf("%s %s %q?%s: %+v", tt.kind, tt.method, tt.path, tt.query, v)
		}
	}
}

func TestPackages(t *testing.T) {
	for _, tt := range []struct {
		kind     string
		packages []string
		path     string
		allow    bool
		notFound bool
	}{
		{NPM, nil, "/is-odd", true, false},
		{NPM, []string{}, "/is-odd", false, false},
		{NPM, []string{"is-odd"}, "/is-odd", true, false},
		{NPM, []string{"is-odd"}, "/is-even", false, false},
		{NPM, []string{"is-odd"}, "/Is-Odd", false, false},
		{NPM, []string{"is-odd"}, "/is-odd/-/is-odd-3.0.1.tgz", true, false},
		{NPM, []string{"is-odd"}, "/-/package/is-even/dist-tags", false, false},
		{NPM, []string{"is-odd"}, "/-/npm/v1/attestations/is-even@1.0.0", false, false},
		{NPM, []string{"@types/*"}, "/@types/ms", true, false},
		{NPM, []string{"@types/*"}, "/@types%2fms/-/ms-1.0.0.tgz", true, false},
		{NPM, []string{"@types/*"}, "/@typesx/ms", false, false},
		{NPM, []string{"@types/ms"}, "/ms", false, false},
		{PyPI, []string{"Flask_Login"}, "/simple/flask.login/", true, false},
		{PyPI, []string{"flask"}, "/simple/flask-login/", false, false},
		{PyPI, []string{"flask"}, "/packages/flask-login-1.0.tar.gz", false, false},
		{PyPI, []string{"flask"}, "/packages/x/flask-2-1.0.tar.gz", false, false},
		{PyPI, []string{"flask-login"}, "/packages/x/Flask_Login-1.0-py3-none-any.whl", true, false},
		{PyPI, []string{"flask"}, "/packages/x/evil-1.0-py3-none-any.whl.metadata", false, false},
		{PyPI, []string{"flask"}, "/pypi/evil/json", false, false},
		{Go, []string{"github.com/BurntSushi/toml"}, "/github.com/!burnt!sushi/toml/@v/list", true, false},
		{Go, []string{"github.com/BurntSushi/toml"}, "/github.com/burntsushi/toml/@v/list", false, false},
		{Go, []string{"github.com/BurntSushi/toml"}, "/github.com/!burnt!sushi/@v/list", false, true},
		{Go, []string{"github.com/BurntSushi/toml"}, "/github.com/!burnt!sushi/toml/internal/@v/list", false, true},
		{Go, []string{"github.com/BurntSushi/toml"}, "/lookup/github.com/x/y@v1.0.0", false, false},
		{Go, []string{"golang.org/x/*"}, "/golang.org/x/net/@v/v0.1.0.zip", true, false},
		{Go, []string{"golang.org/x/*"}, "/golang.org/@v/list", false, true},
		{Go, []string{"golang.org/x/*"}, "/golang.org/xy/@v/list", false, false},
		{Go, []string{}, "/latest", true, false},
		{Debian, []string{"hello"}, "/pool/main/h/hello/hello_2.10-3_amd64.deb", true, false},
		{Debian, []string{"hello"}, "/pool/main/h/hello/evil_2.10-3_amd64.deb", false, false},
		{Debian, []string{"hello"}, "/dists/bookworm/InRelease", true, false},
	} {
		v := judge(t, tt.kind, "", tt.packages, 0).Request("GET", tt.path, "")
		if v.Allow != tt.allow || v.NotFound != tt.notFound || !v.Allow && (v.Reason == "" || v.Hint == "") {
			t.Errorf("%s %v %s: %+v", tt.kind, tt.packages, tt.path, v)
		}
	}
}

func TestBadRules(t *testing.T) {
	for name, rule := range map[string]rung.EgressRule{
		"no registry": {Host: "a.example"},
		"wildcard":    {Host: "*.example", Registry: &rung.Registry{Kind: NPM}},
		"cidr":        {CIDR: "192.0.2.0/24", Registry: &rung.Registry{Kind: NPM}},
		"kind":        {Host: "a.example", Registry: &rung.Registry{Kind: "cargo"}},
		"name":        {Host: "a.example", Registry: &rung.Registry{Kind: NPM, Packages: []string{"a b"}}},
		"empty name":  {Host: "a.example", Registry: &rung.Registry{Kind: PyPI, Packages: []string{""}}},
		"star":        {Host: "a.example", Registry: &rung.Registry{Kind: NPM, Packages: []string{"*"}}},
		"scope":       {Host: "a.example", Registry: &rung.Registry{Kind: NPM, Packages: []string{"types/*"}}},
		"pypi star":   {Host: "a.example", Registry: &rung.Registry{Kind: PyPI, Packages: []string{"a/*"}}},
		"prefix":      {Host: "a.example", Registry: &rung.Registry{Kind: NPM, Prefix: "/a/../b"}},
		"relative":    {Host: "a.example", Registry: &rung.Registry{Kind: NPM, Prefix: "a"}},
		"debian age":  {Host: "a.example", Registry: &rung.Registry{Kind: Debian, MinAge: time.Hour}},
		"negative":    {Host: "a.example", Registry: &rung.Registry{Kind: NPM, MinAge: -time.Hour}},
	} {
		if _, err := New(rule); err == nil {
			t.Errorf("%s: accepted", name)
		} else if rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRequest holds what must be true of every path: what is allowed is spelled plainly, is stable under a second judgement,
// and stays below the prefix.
func FuzzRequest(f *testing.F) {
	for _, r := range reads {
		f.Add(r.kind, r.path)
	}
	judges := map[string]*Judge{}
	for _, kind := range Kinds() {
		judges[kind] = judge(f, kind, "/p", nil, 0)
	}
	f.Fuzz(func(t *testing.T, kind, path string) {
		j := judges[kind]
		if j == nil {
			t.Skip()
		}
		v := j.Request("GET", path, "")
		if !v.Allow {
			if v.Reason == "" || v.Path != "" {
				t.Fatalf("%+v", v)
			}
			return
		}
		if !only(v.Path, "/._~@%:=-") || strings.Contains(v.Path, "//") || strings.Contains(v.Path, "..") && strings.Contains(v.Path, "/../") {
			t.Fatalf("%q is spelled %q", path, v.Path)
		}
		if !strings.HasPrefix(v.Path+"/", "/p/") {
			t.Fatalf("%q leaves the prefix: %q", path, v.Path)
		}
		if again := j.Request("GET", v.Path, ""); again.Path != v.Path || again.Package != v.Package || !again.Allow {
			t.Fatalf("%q: %+v, then %+v", path, v, again)
		}
	})
}
