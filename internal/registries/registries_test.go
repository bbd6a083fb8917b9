package registries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

// fake makes a host of files and an environment; what pages and programs answer is in pages.
func fake(t *testing.T, files, env, pages map[string]string) host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.Contains(name, "/bin/") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return host{
		root: root,
		env:  func(name string) string { return env[name] },
		run: func(_ context.Context, name string, args ...string) ([]byte, error) {
			if text, ok := pages[filepath.Base(name)+" "+strings.Join(args, " ")]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("exit status 1")
		},
		page: func(_ context.Context, url string) ([]byte, error) {
			if text, ok := pages[url]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("404 Not Found")
		},
	}
}

// where spells a rule shortly: scheme, host, port, prefix.
func where(rules []rung.EgressRule) []string {
	var all []string
	for _, r := range rules {
		e := endpoint{host: r.Host, port: r.Ports[0], path: r.Registry.Prefix, tls: r.RequireTLS}
		all = append(all, e.url())
	}
	return all
}

type story struct {
	files, env, pages map[string]string
	rules             []string
	want              map[string]string // of Env, those named
	inside            map[string]string // of Files, as parts of their text
	note              string
	err               string
}

func run(t *testing.T, kind string, stories map[string]story) {
	t.Helper()
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			found, err := discover(context.Background(), kind, fake(t, s.files, s.env, s.pages))
			if s.err != "" || err != nil {
				if s.err == "" || err == nil || !strings.Contains(err.Error(), s.err) || strings.Contains(err.Error(), "hunter2") {
					t.Fatalf("error %v, want %q", err, s.err)
				}
				return
			}
			if d := cmp.Diff(s.rules, where(found.Rules)); d != "" {
				t.Error(d)
			}
			for key, value := range s.want {
				if found.Env[key] != value {
					t.Errorf("%s is %q, not %q", key, found.Env[key], value)
				}
			}
			for file, part := range s.inside {
				if text := string(found.Files[file]); !strings.Contains(text, part) || text == "" {
					t.Errorf("%s lacks %q:\n%s", file, part, text)
				}
			}
			if notes := strings.Join(found.Notes, "\n"); !strings.Contains(notes, s.note) || s.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, s.note)
			}
			noSecret(t, found)
		})
	}
}

func noSecret(t *testing.T, found Found) {
	t.Helper()
	for _, text := range found.Env {
		if strings.Contains(text, "hunter2") {
			t.Errorf("the environment has a password: %s", text)
		}
	}
	for _, text := range found.Files {
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("a file has a password: %s", text)
		}
	}
	if strings.Contains(strings.Join(found.Notes, "\n"), "hunter2") {
		t.Errorf("a note has a password: %v", found.Notes)
	}
}

func TestNPM(t *testing.T) {
	home := map[string]string{"HOME": "/home/me", "PATH": "/usr/bin"}
	run(t, "npm", map[string]story{
		"default": {
			env: home, files: map[string]string{"usr/bin/npm": "x"}, pages: map[string]string{"npm config get registry": "https://npm.example/\n"},
			rules: []string{"https://npm.example"},
			want:  map[string]string{"NPM_CONFIG_REGISTRY": "https://npm.example/", "NPM_CONFIG_AUDIT": "false", "NPM_CONFIG_USERCONFIG": ""},
		},
		"npm fails":   {env: home, files: map[string]string{"usr/bin/npm": "x"}, err: "not known"},
		"npm babbles": {env: home, files: map[string]string{"usr/bin/npm": "x"}, pages: map[string]string{"npm config get registry": "undefined"}, err: "neither http nor https"},
		"no npm":      {env: home, err: "not known"},
		"environment": {
			env:   map[string]string{"npm_config_registry": "http://Mirror.Example.:8081/repository/npm/"},
			rules: []string{"http://mirror.example:8081/repository/npm"},
			want:  map[string]string{"NPM_CONFIG_REGISTRY": "http://mirror.example:8081/repository/npm/"},
		},
		"user over global over builtin": {
			env: home,
			files: map[string]string{
				"home/me/.npmrc":         "; mine\nregistry = \"https://mine.example/\"\n@a:registry=https://a.example/npm/\n@b:registry=${B}\n",
				"usr/etc/npmrc":          "registry=https://global.example/\n@a:registry=https://old.example/\n",
				"usr/bin/node":           "x",
				"work/project/.npmrc":    "registry=https://project.example/\n",
				"usr/lib/npm/bin/npm":    "x",
				"usr/lib/npm/npmrc":      "registry=https://builtin.example/",
				"home/me/work/x/.npmrc":  "registry=https://project.example/\n",
				"home/me/.npmrc.ignored": "registry=https://ignored.example/\n",
			},
			err: "neither http nor https",
		},
		"scopes": {
			env: map[string]string{"HOME": "/home/me", "PATH": "/usr/lib/npm/bin:/usr/bin", "B": "https://b.example"},
			files: map[string]string{
				"home/me/.npmrc":      "@b:registry=${B}/x\n@a:registry=https://a.example/npm/\n",
				"usr/etc/npmrc":       "@a:registry=https://old.example/\n",
				"usr/bin/node":        "x",
				"usr/lib/npm/bin/npm": "x",
				"usr/lib/npm/npmrc":   "registry=https://builtin.example/",
			},
			rules:  []string{"https://builtin.example", "https://a.example/npm", "https://b.example/x"},
			want:   map[string]string{"NPM_CONFIG_USERCONFIG": npmrcInside, "NPM_CONFIG_REGISTRY": "https://builtin.example/"},
			inside: map[string]string{npmrcInside: "@a:registry=https://a.example/npm/\n@b:registry=https://b.example/x/\n"},
		},
		"token": {
			env:   home,
			files: map[string]string{"home/me/.npmrc": "registry=https://mine.example/\n//mine.example/:_authToken=hunter2\n"},
			rules: []string{"https://mine.example"}, note: "--secret",
		},
		"password in the URL": {
			env:   map[string]string{"NPM_CONFIG_REGISTRY": "https://me:hunter2@mine.example/"},
			rules: []string{"https://mine.example"}, note: "--secret NAME@mine.example",
		},
		"address":     {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://192.0.2.1/"}, err: "DNS name"},
		"octal":       {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://0x7f.1/"}, err: "DNS name"},
		"six":         {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://[2001:db8::1]/"}, err: "DNS name"},
		"not ASCII":   {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://exämple.org/"}, err: "DNS name"},
		"port":        {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://mine.example:70000/"}, err: "port"},
		"query":       {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://mine.example/?a=hunter2"}, err: "query"},
		"no URL":      {env: map[string]string{"NPM_CONFIG_REGISTRY": "https://me:hunter2@%zz/"}, err: "cannot be read"},
		"file scheme": {env: map[string]string{"NPM_CONFIG_REGISTRY": "file:///x"}, err: "neither http nor https"},
	})
}

func TestPip(t *testing.T) {
	const help = "  -i, --index-url <url>       Base URL (default\n                      https://index.example/simple). This\n  --extra-index-url <url> x (default https://no.example)"
	pip := map[string]string{"usr/bin/pip3": "x"}
	path := map[string]string{"PATH": "/usr/bin"}
	asked := map[string]string{"pip3 download --help": help, "https://index.example/simple/pip/": `{"files":[{"url":"https://files.example/packages/a/pip-26.0-py3-none-any.whl"}]}`}
	both := []string{"https://index.example/simple", "https://files.example/packages"}
	run(t, "pypi", map[string]story{
		"default": {env: path, files: pip, pages: asked, rules: both, want: map[string]string{"PIP_INDEX_URL": both[0], "PIP_NO_INPUT": "1"}},
		"no pip":  {env: path, err: "not known"},
		"files in order": {
			env: map[string]string{"HOME": "/home/me"},
			files: map[string]string{
				"etc/pip.conf":                 "[global]\nindex_url = https://etc.example/simple\nextra-index-url =\n    https://one.example/simple\n    https://two.example/root/+simple/\n",
				"home/me/.pip/pip.conf":        "[install]\nindex-url: https://legacy.example/simple\n",
				"home/me/.config/pip/pip.conf": "# mine\n[global]\nindex-url=https://mine.example/simple/\n[list]\nindex-url=https://list.example/\n",
			},
			pages: map[string]string{
				"https://mine.example/simple/pip/":      `<a href="../../packages/pip-26.0-py3-none-any.whl#sha256=1">`,
				"https://one.example/simple/pip/":       `{"files":[{"url":"https://files.one.example/p/aa/pip-26.0-py3-none-any.whl"},{"url": "https://files.one.example/p/bb/pip-25.0.tar.gz"}]}`,
				"https://two.example/root/+simple/pip/": `<a href='http://plain.example/p/pip-26.0-py3-none-any.whl'> <a href=//same-scheme.example/pip-1.0.tar.gz><a href="https://me:hunter2@x.example/a/pip-1.tar.gz"><a href="https://192.0.2.1/a/pip-1.tar.gz">`,
			},
			rules: []string{
				"https://mine.example/simple", "https://one.example/simple", "https://files.one.example/p",
				"https://two.example/root/+simple", "https://same-scheme.example",
			},
			want: map[string]string{"PIP_INDEX_URL": "https://mine.example/simple", "PIP_EXTRA_INDEX_URL": "https://one.example/simple https://two.example/root/+simple"},
		},
		"environment": {
			env:   map[string]string{"PIP_INDEX_URL": "https://me:hunter2@mine.example/simple", "PIP_CONFIG_FILE": "/dev/null"},
			files: map[string]string{"etc/pip.conf": "[global]\nextra-index-url=https://etc.example/simple\n"},
			pages: map[string]string{"https://mine.example/simple/pip/": ``},
			rules: []string{"https://mine.example/simple"}, note: "--secret",
		},
		"silent index":  {env: map[string]string{"PIP_INDEX_URL": "https://mine.example/simple"}, rules: []string{"https://mine.example/simple"}, note: "did not say"},
		"no index":      {env: map[string]string{"PIP_NO_INDEX": "1"}, err: "no index"},
		"find-links":    {env: map[string]string{"PATH": "/usr/bin", "PIP_FIND_LINKS": "/x"}, files: pip, pages: asked, rules: both, note: "find-links"},
		"unreadable":    {files: map[string]string{"etc/pip.conf/x": ""}, err: "pip's configuration"},
		"a broken file": {env: path, files: map[string]string{"usr/bin/pip3": "x", "etc/pip.conf": "index-url=https://no.example\n[\n[global\n = \n[global]\nnothing\n"}, pages: asked, rules: both},
	})
}

func TestGo(t *testing.T) {
	run(t, "go", map[string]story{
		"nothing":     {err: "not known"},
		"no database": {env: map[string]string{"GOPROXY": "https://a.example"}, rules: []string{"https://a.example"}, note: "checksum"},
		"user's file and environment": {
			env: map[string]string{"HOME": "/home/me", "GOSUMDB": "sum.example+1234+key https://sums.example/db"},
			files: map[string]string{
				"home/me/.config/go/env": "GOPROXY=https://a.example/go/|b.example,off,https://never.example\nGOPRIVATE=corp.example\nGOSUMDB=off\n",
			},
			rules: []string{"https://a.example/go", "https://b.example", "https://sums.example/db"}, note: "GOPRIVATE",
			want: map[string]string{"GOPROXY": "https://a.example/go|https://b.example", "GONOSUMDB": "corp.example"},
		},
		"direct between": {
			env:   map[string]string{"GOPROXY": "https://a.example,direct|file:///x,https://b.example", "GOSUMDB": "off"},
			rules: []string{"https://a.example", "https://b.example"}, note: "direct",
			want: map[string]string{"GOPROXY": "https://a.example,https://b.example", "GOSUMDB": "off"},
		},
		"off":    {env: map[string]string{"GOPROXY": "off", "GOSUMDB": "off"}, err: "no module proxy"},
		"direct": {env: map[string]string{"GOPROXY": "direct"}, err: "no module proxy"},
		"bad":    {env: map[string]string{"GOPROXY": "ftp://a.example"}, err: "neither"},
	})
}

func TestGoCommand(t *testing.T) {
	h := fake(t, map[string]string{"usr/bin/go": "x"}, map[string]string{"PATH": "/usr/bin", "GOPROXY": "https://ignored.example"}, nil)
	h.run = func(_ context.Context, name string, args ...string) ([]byte, error) {
		if name != "/usr/bin/go" || args[0] != "env" {
			t.Errorf("%s %v", name, args)
		}
		return []byte(`{"GOPROXY":"https://a.example,direct","GOSUMDB":"sums.example"}`), nil
	}
	found, err := discover(context.Background(), "go", h)
	if err != nil || strings.Join(where(found.Rules), " ") != "https://a.example https://sums.example" {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestApt(t *testing.T) {
	const sources, conf = aptInside + "/sources.list.d/host.sources", aptInside + "/apt.conf"
	run(t, "debian", map[string]story{
		"both forms": {
			files: map[string]string{
				"etc/apt/sources.list":                "# x\ndeb [arch=amd64,arm64 signed-by=/usr/share/keyrings/a.gpg] http://one.example/debian bookworm main contrib # y\ndeb-src cdrom:[x]/ bookworm main\ndeb ftp://old.example/debian x main\n",
				"etc/apt/sources.list.d/b.sources":    "Types: deb deb-src\n# http://comment.example\nURIs: https://me:hunter2@two.example/debian/ https://three.example\nSuites: stable\n  stable-updates\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\nEnabled: no\nURIs: https://off.example\n",
				"etc/apt/sources.list.d/flat.list":    "deb [trusted=yes] https://flat.example/repo ./\n",
				"etc/apt/sources.list.d/old.disabled": "deb https://ignored.example x main\n",
				"etc/apt/trusted.gpg.d/archive.gpg":   "KEYS",
				"usr/share/keyrings/a.gpg":            "RING",
			},
			rules: []string{"http://one.example/debian", "https://two.example/debian", "https://three.example", "https://flat.example/repo"},
			want:  map[string]string{"APT_CONFIG": conf},
			note:  "--secret",
			inside: map[string]string{
				sources: "Types: deb\nURIs: http://one.example/debian/\nSuites: bookworm\nComponents: main contrib\nArchitectures: amd64 arm64\nSigned-By: " + aptInside + "/keyrings/a.gpg\n\n" +
					"Types: deb deb-src\nURIs: https://two.example/debian/ https://three.example/\nSuites: stable\n stable-updates\nComponents: main\nSigned-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n" +
					"Types: deb\nURIs: https://flat.example/repo/\nSuites: ./\nTrusted: yes\n\n",
				conf:                                     "trustedparts",
				aptInside + "/keyrings/a.gpg":            "RING",
				aptInside + "/trusted.gpg.d/archive.gpg": "KEYS",
			},
		},
		"other kinds": {
			files: map[string]string{"etc/apt/sources.list": "deb http://one.example/debian x main\ndeb mirror+file:/x x main\n"},
			rules: []string{"http://one.example/debian"}, note: "mirror+file",
		},
		"proxy": {
			files: map[string]string{"etc/apt/sources.list": "deb http://one.example/debian x main\n", "etc/apt/apt.conf.d/p": "Acquire::http::Proxy \"http://me:hunter2@p.example\";\n"},
			rules: []string{"http://one.example/debian"}, note: "goes through a proxy",
		},
		"keyring lost": {
			files: map[string]string{"etc/apt/sources.list": "deb [signed-by=/gone.gpg] http://one.example/debian x main\n"},
			rules: []string{"http://one.example/debian"}, note: "/gone.gpg",
		},
		"none":    {err: "no archive on the network"},
		"address": {files: map[string]string{"etc/apt/sources.list": "deb http://192.0.2.1/debian x main\n"}, err: "DNS name"},
	})
}

func TestParse(t *testing.T) {
	for text, want := range map[string][]string{
		"npm": nil, "npm:": {}, "npm:a, @b/*": {"a", "@b/*"}, "go:example.org/x": {"example.org/x"},
	} {
		_, packages, err := Parse(text)
		if d := cmp.Diff(want, packages); d != "" || err != nil {
			t.Error(text, err, d)
		}
	}
	for _, text := range []string{"", "cargo", "npm:,", "npm:a,,b", "NPM"} {
		if _, _, err := Parse(text); rung.KindOf(err) != rung.KindInvalid {
			t.Error(text, err)
		}
	}
}

func TestAgeEnv(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	if got := AgeEnv("npm", 7*24*time.Hour, now)["NPM_CONFIG_BEFORE"]; got != "2026-11-23T00:00:00Z" {
		t.Error(got)
	}
	if AgeEnv("npm", 0, now) != nil || AgeEnv("go", time.Hour, now) != nil {
		t.Error("a variable nobody asked for")
	}
}

// FuzzFiles: no configuration file makes a parser fail otherwise than by an error.
func FuzzFiles(f *testing.F) {
	f.Add("deb [a=b signed-by=/x] http://one.example/debian x main\nURIs: https://two.example\n\n[global]\nindex-url =\n https://x\n")
	f.Fuzz(func(_ *testing.T, text string) {
		parseOneLine(text)
		parseStanzas(text)
		parseINI(text)
		b := &builder{host: host{env: func(string) string { return "x" }}}
		_, _ = b.endpoint("npm", text)
		_, _ = b.goProxies(text)
		b.expand(text)
	})
}
