//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

func TestDebianSources(t *testing.T) {
	etc := t.TempDir()
	if err := os.Mkdir(filepath.Join(etc, "sources.list.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sources.list": "# comment\ndeb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian bookworm main contrib # why\n" +
			"deb-src https://mirror.example/debian bookworm main\ndeb https://other.example bookworm stable\ndeb https://x.example bookworm-pgdg main\ndeb [broken\ndeb\n",
		"sources.list.d/debian.sources": "# c\nTypes: deb deb-src\nURIs: https://u:p@mirror.example/debian\nSuites: bookworm bookworm-updates\n" +
			"Components: main\nSigned-By:\n -----BEGIN\n .\n -----END\n\n\nTypes: deb\nEnabled: no\nURIs: https://off.example\nSuites: bookworm\nComponents: main\n\n" +
			"Types: deb\nURIs: https://node.example\nSuites: nodistro\nComponents: main\n",
		"sources.list.d/ignored.list.save": "deb https://saved.example bookworm main\n",
	} {
		writeFile(t, filepath.Join(etc, name), []byte(text))
	}
	got, err := debianSources(etc, "bookworm")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Types: deb\nURIs: https://mirror.example/debian\nSuites: bookworm\nComponents: main contrib\nArchitectures: amd64\nSigned-By: /k.gpg\n",
		"Types: deb\nURIs: https://u:p@mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN\n .\n -----END\n",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if none, err := debianSources(t.TempDir(), "bookworm"); err != nil || len(none) != 0 {
		t.Errorf("%q, %v", none, err)
	}
}

func TestAptOptions(t *testing.T) {
	dump := "APT \"\";\nAcquire \"\";\nAcquire::http \"\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::https::CaInfo \"/ca.pem\";\n" +
		"Acquire::https::Verify-Peer \"false\";\nAcquire::https::Proxy \"\";\nDPkg::Post-Invoke:: \"rm\";\n"
	want := []string{`Acquire::http::Proxy "http://proxy.example:3128";`, `Acquire::https::CaInfo "/ca.pem";`}
	if d := cmp.Diff(want, aptOptions(dump)); d != "" {
		t.Error(d)
	}
}

func TestWithoutPasswords(t *testing.T) {
	in := "URIs: https://me:p@ss@a.example/x http://b.example/y@z\nhttps://t@c.example"
	want := "URIs: https://a.example/x http://b.example/y@z\nhttps://c.example"
	if got := withoutPasswords(in); got != want {
		t.Errorf("%q", got)
	}
}

func TestRelease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "os-release")
	for text, ok := range map[string]bool{
		"ID=debian\nVERSION_CODENAME=bookworm\n":  true,
		"ID=\"ubuntu\"\nVERSION_CODENAME=noble\n": true,
		"ID=fedora\nVERSION_ID=40\n":              false,
		"ID=debian\n":                             false, // testing
		"":                                        false,
	} {
		writeFile(t, file, []byte(text))
		if _, err := readRelease(file); (err == nil) != ok || !ok && rung.HintOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDefaultName(t *testing.T) {
	for ref, want := range map[string]string{
		"index.docker.io/library/python:3.12-slim": "python-3.12-slim",
		"index.docker.io/library/python:latest":    "python",
		"r.example:5000/a/B_c@sha256:abc":          "b_c",
	} {
		if got := defaultName(job{Mode: fromRegistry, Reference: ref}); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
	for ref, want := range map[string]string{"/x/My App.tar.gz": "my-app", "/x/.hidden": "hidden", "/x/layout": "layout"} {
		if got := defaultName(job{Mode: fromArchive, Reference: ref}); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
}
