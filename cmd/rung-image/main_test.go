//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

// asProgram in the environment makes the test binary the program itself, or a probe in the place of its child.
const asProgram = "RUNG_IMAGE_TEST_PROGRAM"

// The test binary is its own child, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		if role, ok := roles()[os.Args[1]]; ok {
			os.Exit(role())
		}
	}
	switch os.Getenv(asProgram) {
	case "program":
		main()
	case "probe":
		os.Exit(probe(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// tarOf makes a layer.
func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		text := "content of " + h.Name
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func regular(name string, uid int) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Uid: uid, Gid: uid}
}

// imageOf makes an image like a small Python one.
func imageOf(t testing.TB, arch string, layers ...[]byte) v1.Image {
	t.Helper()
	img := v1.Image(empty.Image)
	for _, data := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	c.Config = v1.Config{Env: []string{"PATH=/usr/local/bin:/bin", "PYTHON_VERSION=3.12"}, Cmd: []string{"python3"}, WorkingDir: "/srv", User: "1000"}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

func small(t testing.TB, extra string) v1.Image {
	return imageOf(t, runtime.GOARCH,
		tarOf(t, regular("usr/bin/python3", 0), tar.Header{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"}, regular("srv/app.py", 1234), regular("old", 0)),
		tarOf(t, regular(".wh.old", 0), regular("extra-"+extra, 0)))
}

// serve starts a registry and returns its host name.
func serve(t testing.TB, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func push(t testing.TB, ref string, img v1.Image) v1.Hash {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// program runs the command against one state directory.
type program struct {
	t     testing.TB
	state string
}

func newProgram(t testing.TB) program {
	dir := t.TempDir()
	return program{t, dir}
}

// run returns the exit code and everything that was printed.
func (p program) run(args ...string) (int, string) {
	p.t.Helper()
	var out bytes.Buffer
	code := run(p.t.Context(), append([]string{"--state-dir", p.state}, args...), &out, &out)
	return code, out.String()
}

func (p program) must(args ...string) string {
	p.t.Helper()
	code, out := p.run(args...)
	if code != 0 {
		p.t.Fatalf("%q: exit %d\n%s", args, code, out)
	}
	return out
}

// refused runs a command that must fail, leave nothing, and say want.
func (p program) refused(want string, args ...string) {
	p.t.Helper()
	code, out := p.run(args...)
	if code == 0 || !strings.Contains(out, want) {
		p.t.Errorf("%q: exit %d, want a message with %q:\n%s", args, code, want, out)
	}
	p.clean()
}

// clean fails the test if there is anything in the store but whole templates.
func (p program) clean() {
	p.t.Helper()
	entries, err := os.ReadDir(filepath.Join(p.state, "templates"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Error(err)
	}
	for _, e := range entries {
		if e.Name() != ".locks" && strings.HasPrefix(e.Name(), ".") {
			p.t.Errorf("left: %s", e.Name())
		}
	}
}

func (p program) get(name string) image.Template {
	p.t.Helper()
	t, err := image.Open(p.state).Get(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	return t
}

func owner(t testing.TB, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// checkSmall checks the tree of small.
func checkSmall(t testing.TB, tpl image.Template, extra string) {
	t.Helper()
	for _, name := range []string{"usr/bin/python3", "srv/app.py", "extra-" + extra, "proc", "work", "home/user", ".rung/guest", "etc/passwd"} {
		if _, err := os.Lstat(filepath.Join(tpl.Root, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(tpl.Root, "old")); err == nil {
		t.Error("a whiteout was ignored")
	}
	if tpl.Kind != image.OCI || tpl.Workdir != "/srv" || tpl.User != "1000" || len(tpl.Cmd) != 1 || len(tpl.Env) != 2 {
		t.Errorf("configuration: %+v", tpl)
	}
	base := uint32(0)
	if os.Geteuid() == 0 {
		if base = tpl.OwnerBase; base != image.OwnerBase {
			t.Errorf("owner base %#x", base)
		}
		if got := owner(t, filepath.Join(tpl.Root, "srv/app.py")); got != base+1234 {
			t.Errorf("srv/app.py belongs to %#x", got)
		}
		for _, name := range []string{"", "usr/bin/python3", "etc/passwd", "work"} {
			if got := owner(t, filepath.Join(tpl.Root, name)); got != base {
				t.Errorf("/%s belongs to %#x", name, got)
			}
		}
	}
}

func TestRegistry(t *testing.T) {
	p, host := newProgram(t), serve(t, nil)
	ref := host + "/library/python:3.12-slim"
	digest := push(t, ref, small(t, "1"))
	p.must("import", ref)
	tpl := p.get("python-3.12-slim")
	checkSmall(t, tpl, "1")
	if tpl.Digest != digest.String() || tpl.Source.Digest != digest.String() || tpl.Source.Reference != ref {
		t.Errorf("%+v", tpl)
	}
	if out := p.must("import", ref); !strings.Contains(out, "already up to date") {
		t.Errorf("second import: %s", out)
	}
	push(t, ref, small(t, "2"))
	p.must("import", ref)
	checkSmall(t, p.get("python-3.12-slim"), "2")
	p.must("import", ref, "--digest", digest.String(), "--name", "pinned")
	checkSmall(t, p.get("pinned"), "1")
	p.refused("exists and was made from", "import", host+"/other:latest", "--name", "pinned")
	p.refused("no such image", "import", host+"/library/nothing:1")
	p.refused("built-in", "import", ref, "--name", "host")
	p.refused("no digest", "import", ref, "--digest", "sha256:1")
	p.refused("only linux/ARCH", "import", ref, "--platform", "windows/amd64")
	p.refused("no such image", "import", ref, "--digest", "sha256:"+strings.Repeat("0", 64))
	p.clean()
}

func TestPlatforms(t *testing.T) {
	p, host := newProgram(t), serve(t, nil)
	other := "s390x"
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, other, tarOf(t, regular("other", 0))), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: other}}},
		mutate.IndexAddendum{Add: small(t, "mine"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	ref, err := name.ParseReference(host + "/multi:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	p.must("import", ref.Name())
	checkSmall(t, p.get("multi-1"), "mine")
	p.must("import", ref.Name(), "--platform", "linux/"+other, "--name", "other")
	if tpl := p.get("other"); tpl.Arch != other || !strings.Contains(strings.Join(tpl.Notes, "\n"), "do not run") {
		t.Errorf("%+v", tpl)
	}
	p.refused("does not exist for this processor", "import", ref.Name(), "--platform", "linux/riscv64", "--name", "none")
	push(t, host+"/single:1", imageOf(t, other, tarOf(t, regular("f", 0))))
	p.refused("not for "+runtime.GOARCH, "import", host+"/single:1")

	dir := t.TempDir()
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	p.must("import", dir, "--name", "layout")
	checkSmall(t, p.get("layout"), "mine")
}

func TestArchives(t *testing.T) {
	p, dir := newProgram(t), t.TempDir()
	img := small(t, "a")
	saved := filepath.Join(dir, "Saved.tar")
	tag, err := name.NewTag("example/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(saved, tag, img); err != nil {
		t.Fatal(err)
	}
	p.must("import", saved)
	checkSmall(t, p.get("saved"), "a")

	lay := filepath.Join(dir, "layout")
	path, err := layout.Write(lay, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	p.must("import", lay)
	checkSmall(t, p.get("layout"), "a")
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	p.must("import", lay, "--name", "pinned", "--digest", digest.String())
	p.refused("not sha256:", "import", lay, "--name", "x", "--digest", "sha256:"+strings.Repeat("0", 64))

	var packed bytes.Buffer
	if err := streamLayout(lay, &packed); err != nil {
		t.Fatal(err)
	}
	ociTar := filepath.Join(dir, "oci.tar")
	writeFile(t, ociTar, packed.Bytes())
	p.must("import", ociTar)
	checkSmall(t, p.get("oci"), "a")

	for file, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty.tar":     {nil, "neither an OCI layout"},
		"noise.tar":     {bytes.Repeat([]byte("noise"), 1000), "read the archive"},
		"truncated.tar": {packed.Bytes()[:packed.Len()-2000], "read the archive"},
		"rootfs.tar":    {tarOf(t, regular("etc/passwd", 0)), "neither an OCI layout"},
		"twice.tar":     {tarOf(t, regular("a", 0), regular("./a", 0)), "two files named"},
		"index.tar":     {tarOf(t, regular("index.json", 0)), "the archive's index"},
		"manifest.tar":  {tarOf(t, regular("manifest.json", 0)), "manifest.json"},
	} {
		writeFile(t, filepath.Join(dir, file), c.data)
		p.refused(c.want, "import", filepath.Join(dir, file))
	}
	p.refused("no image archive", "import", "./nothing.tar")
	p.refused("neither a file nor an image reference", "import", "UPPER CASE")
	p.refused("neither an OCI layout", "import", t.TempDir(), "--name", "nothing")
}

// A blob that was changed on disk is found by its digest.
func TestDamagedLayout(t *testing.T) {
	p, lay := newProgram(t), t.TempDir()
	path, err := layout.Write(lay, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(small(t, "a")); err != nil {
		t.Fatal(err)
	}
	blobs, err := filepath.Glob(filepath.Join(lay, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		good, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)-3] ^= 1
		for _, data := range [][]byte{bad, good[:len(good)-1], append(bytes.Clone(good), '\n'), nil} {
			writeFile(t, b, data)
			p.refused("rung-image:", "import", lay, "--name", "bad")
		}
		writeFile(t, b, good)
	}
	p.must("import", lay, "--name", "good")
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A registry that lies about blobs, cuts them short or never stops.
func TestLyingRegistry(t *testing.T) {
	change := func(data []byte) []byte { return data }
	host := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				h.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			body := rec.Body.Bytes()
			if strings.Contains(r.URL.Path, "/blobs/") && bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
				body = change(body)
			}
			for k, v := range rec.Header() {
				if k != "Content-Length" {
					w.Header()[k] = v
				}
			}
			w.WriteHeader(rec.Code)
			if _, err := w.Write(body); err != nil {
				t.Log(err) // the client may have gone
			}
		})
	})
	p := newProgram(t)
	ref := host + "/app:1"
	push(t, ref, small(t, "1"))
	for what, f := range map[string]func([]byte) []byte{
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"longer":    func(b []byte) []byte { return append(bytes.Clone(b), 0) },
		"flipped":   func(b []byte) []byte { c := bytes.Clone(b); c[len(c)/2] ^= 8; return c },
		"another":   func([]byte) []byte { return tarOf(t, regular("evil", 0)) },
	} {
		change = f
		if code, out := p.run("import", ref); code == 0 {
			t.Errorf("%s: accepted\n%s", what, out)
		}
		p.clean()
	}
	change = func(b []byte) []byte { return b }
	p.must("import", ref)
}

// The hostile archives of package unpack, at the level of whole images: refused, and nothing stays.
func TestHostileImages(t *testing.T) {
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	p, dir := newProgram(t), t.TempDir()
	canary := filepath.Join(dir, "canary")
	writeFile(t, canary, []byte("alive"))
	for what, c := range map[string]struct {
		layer []byte
		want  string
	}{
		"up":              {tarOf(t, regular("../../canary", 0)), "leads upwards"},
		"through a link":  {tarOf(t, link("l", dir), regular("l/canary", 0)), "used as a directory"},
		"/proc is a link": {tarOf(t, link("proc", "/work")), "symbolic link at /proc"},
		"/dev is a link":  {tarOf(t, link("dev", "home/user")), "symbolic link at /dev"},
		"/sys is a file":  {tarOf(t, regular("sys", 0)), "file at /sys"},
		"/etc is a link":  {tarOf(t, link("etc", dir)), "symbolic link at /etc"},
		"foreign owner":   {tarOf(t, regular("f", 70000)), "outside 0..65535"},
	} {
		file := filepath.Join(dir, "image.tar")
		tag, err := name.NewTag("example/hostile:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := tarball.WriteToFile(file, tag, imageOf(t, runtime.GOARCH, c.layer)); err != nil {
			t.Fatal(err)
		}
		t.Run(what, func(t *testing.T) { program{t, p.state}.refused(c.want, "import", file) })
	}
	if data, err := os.ReadFile(canary); err != nil || string(data) != "alive" {
		t.Errorf("canary: %q, %v", data, err)
	}
}

// Several processes import the same name at once: one tree, whole, and nothing else.
func TestTogether(t *testing.T) {
	p, host := newProgram(t), serve(t, nil)
	ref := host + "/app:1"
	push(t, ref, small(t, "1"))
	codes := make(chan string, 4)
	for range cap(codes) {
		go func() {
			var out bytes.Buffer
			codes <- fmt.Sprint(run(t.Context(), []string{"--state-dir", p.state, "import", ref}, &out, &out), out.String())
		}()
	}
	fresh := 0
	for range cap(codes) {
		s := <-codes
		if !strings.HasPrefix(s, "0") {
			t.Error(s)
		}
		if strings.Contains(s, "is ready") {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("unpacked %d times", fresh)
	}
	checkSmall(t, p.get("app-1"), "1")
	p.clean()
}

// A blob that never ends keeps an import busy until it is interrupted.
func TestInterrupted(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	host := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Header.Get("User-Agent") != "" && strings.Contains(r.URL.Path, "/blobs/") && strings.HasPrefix(r.UserAgent(), "rung-image") {
				select {
				case reached <- struct{}{}:
				case <-release:
				}
				<-release
			}
			h.ServeHTTP(w, r)
		})
	})
	defer close(release)
	p := newProgram(t)
	ref := host + "/app:1"
	push(t, ref, small(t, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	var out bytes.Buffer
	go func() { done <- run(ctx, []string{"--state-dir", p.state, "import", ref}, &out, &out) }()
	<-reached
	cancel()
	if code := <-done; code == 0 || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("exit %d: %s", code, out.String())
	}
	p.clean()
}

func TestWireIsNotTrusted(t *testing.T) {
	good := result{Digest: "sha256:" + strings.Repeat("a", 64)}
	for what, change := range map[string]func(r *result){
		"digest":       func(r *result) { r.Digest = "sha256:../../etc" },
		"resolved":     func(r *result) { r.Resolved = "x" },
		"env":          func(r *result) { r.Config.Env = []string{"=x"} },
		"zero byte":    func(r *result) { r.Config.Cmd = []string{"a\x00b"} },
		"workdir":      func(r *result) { r.Config.Workdir = "../x" },
		"too much":     func(r *result) { r.Config.Env = []string{"A=" + strings.Repeat("x", 1<<20)} },
		"error":        func(r *result) { r.Error = &rung.Failure{Kind: rung.KindRefused, Msg: "no\x1b[2J"} },
		"answer twice": nil,
	} {
		r := good
		text := []byte("{}{}")
		if change != nil {
			change(&r)
			var err error
			if text, err = json.Marshal(r); err != nil {
				t.Fatal(err)
			}
		}
		buf := &cappedBuffer{limit: maxResult}
		if _, err := buf.Write(text); err != nil {
			t.Fatal(err)
		}
		_, err := buf.result()
		if err == nil || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestUsage(t *testing.T) {
	p := newProgram(t)
	p.refused("unknown flag", "import", "x", "--nonsense")
	p.refused("unknown variant", "build", "cobol")
	p.refused("rung-image", "frobnicate")
	if code, out := p.run("--help"); code != 0 || !strings.Contains(out, "Import a container image") {
		t.Errorf("exit %d: %s", code, out)
	}
}
