package unpack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/rung-dev/rung"
)

func file(name, text string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}, text}
}

func dir(name string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}, ""}
}

func hardlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target, Mode: 0o644}, ""}
}

func node(name string, kind byte) entry {
	return entry{tar.Header{Name: name, Typeflag: kind, Mode: 0o666, Devmajor: 1, Devminor: 1}, ""}
}

type entry struct {
	hdr  tar.Header
	text string
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&e.hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func plain(data []byte) Layer {
	return Layer{Size: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// sandbox is a directory to unpack in, with a canary beside it and one behind an absolute path that entries aim at.
type sandbox struct {
	t    testing.TB
	base string
	tree *Tree
}

func newSandbox(t testing.TB, limits Limits) *sandbox {
	t.Helper()
	s := &sandbox{t: t, base: t.TempDir()}
	for _, d := range []string{"root", "outside"} {
		if err := os.Mkdir(filepath.Join(s.base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.base, "outside", "canary"), []byte("alive"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(s.base, "root"))
	if err != nil {
		t.Fatal(err)
	}
	s.tree = New(root, limits, false, nil)
	t.Cleanup(func() { s.tree.Close(); _ = root.Close() })
	return s
}

func (s *sandbox) add(entries ...entry) error { return s.tree.Add(plain(archive(s.t, entries...))) }

// intact fails the test if anything outside the root changed.
func (s *sandbox) intact() {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.base, "outside"))
	if err != nil || len(entries) != 1 {
		s.t.Errorf("outside: %v, %v", entries, err)
	}
	if data, err := os.ReadFile(filepath.Join(s.base, "outside", "canary")); err != nil || string(data) != "alive" {
		s.t.Errorf("canary: %q, %v", data, err)
	}
	if entries, err := os.ReadDir(s.base); err != nil || len(entries) != 2 {
		s.t.Errorf("beside the root: %v, %v", entries, err)
	}
	info, err := os.Stat(filepath.Join(s.base, "outside", "canary"))
	if err != nil || info.Mode() != 0o644 {
		s.t.Errorf("canary: %v, %v", info, err)
	}
}

// content lists the tree: "dir/", "file=text", "link->target".
func (s *sandbox) content() []string {
	s.t.Helper()
	top := filepath.Join(s.base, "root")
	list := []string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		name := strings.TrimPrefix(path, top+"/")
		switch {
		case d.IsDir():
			list = append(list, name+"/")
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			list = append(list, name+"->"+target)
		default:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			list = append(list, name+"="+string(data))
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func TestLayers(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]entry
		want   []string
	}{
		"plain": {
			[][]entry{{dir("a"), file("a/f", "1"), symlink("l", "/etc/passwd"), hardlink("h", "a/f")}},
			[]string{"a/", "a/f=1", "h=1", "l->/etc/passwd"},
		},
		"missing parents":               {[][]entry{{file("a/b/c", "1")}}, []string{"a/", "a/b/", "a/b/c=1"}},
		"leading slash and dots":        {[][]entry{{file("/a/./f", "1"), file("./b", "2"), dir("/")}}, []string{"a/", "a/f=1", "b=2"}},
		"last duplicate wins":           {[][]entry{{file("f", "1"), file("f", "2")}}, []string{"f=2"}},
		"file over link":                {[][]entry{{symlink("f", "../outside/canary")}, {file("f", "2")}}, []string{"f=2"}},
		"dir over link":                 {[][]entry{{symlink("d", "../outside")}, {dir("d"), file("d/f", "2")}}, []string{"d/", "d/f=2"}},
		"link over dir":                 {[][]entry{{file("d/f", "1")}, {symlink("d", "/x")}}, []string{"d->/x"}},
		"file over dir":                 {[][]entry{{file("d/f", "1")}, {file("d", "2")}}, []string{"d=2"}},
		"dir over dir keeps":            {[][]entry{{file("d/f", "1")}, {dir("d"), file("d/g", "2")}}, []string{"d/", "d/f=1", "d/g=2"}},
		"whiteout":                      {[][]entry{{file("d/f", "1"), file("d/g", "1")}, {file("d/.wh.f", "")}}, []string{"d/", "d/g=1"}},
		"whiteout of a tree":            {[][]entry{{file("d/e/f", "1")}, {file(".wh.d", "")}}, []string{}},
		"whiteout of nothing":           {[][]entry{{file("a", "1")}, {file("x/.wh.f", ""), file(".wh.b", "")}}, []string{"a=1"}},
		"whiteout spares its own layer": {[][]entry{{file("f", "1")}, {file("f", "2"), file(".wh.f", "")}}, []string{"f=2"}},
		"opaque": {
			[][]entry{{file("d/f", "1"), file("d/s/t", "1")}, {file("d/s/u", "2"), file("d/.wh..wh..opq", ""), file("d/n", "2")}},
			[]string{"d/", "d/n=2", "d/s/", "d/s/u=2"},
		},
		"whiteout of what its layer adds to": {[][]entry{{file("d/f", "1")}, {file("d/g", "2"), file(".wh.d", "")}}, []string{"d/", "d/g=2"}},
		"opaque root":                        {[][]entry{{file("f", "1")}, {file(".wh..wh..opq", ""), file("g", "2")}}, []string{"g=2"}},
		"whiteout of a link":                 {[][]entry{{symlink("l", "../outside")}, {file(".wh.l", "")}}, []string{}},
		"aufs":                               {[][]entry{{file(".wh..wh.plnk", ""), file("f", "1")}}, []string{"f=1"}},
		"devices": {
			[][]entry{{node("null", tar.TypeChar), node("sda", tar.TypeBlock), node("p", tar.TypeFifo), file("f", "1")}},
			[]string{"f=1"},
		},
		"not UTF-8":           {[][]entry{{file("f\xff\xfe", "1")}}, []string{"f\xff\xfe=1"}},
		"newline in a name":   {[][]entry{{file("a\nb", "1")}}, []string{"a\nb=1"}},
		"long names":          {[][]entry{{file(strings.Repeat(strings.Repeat("n", 200)+"/", 10)+"f", "1")}}, nil},
		"hard link replaces":  {[][]entry{{file("a", "1"), file("b", "2"), hardlink("b", "a")}}, []string{"a=1", "b=1"}},
		"hard link to a link": {[][]entry{{symlink("a", "/x"), hardlink("b", "a")}}, []string{"a->/x", "b->/x"}},
		"empty":               {[][]entry{{}}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, DefaultLimits())
			for i, l := range c.layers {
				if err := s.add(l...); err != nil {
					t.Fatalf("layer %d: %v", i, err)
				}
			}
			s.intact()
			if got := s.content(); c.want != nil && !cmp.Equal(got, c.want) {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
}

func TestHostile(t *testing.T) {
	owner := file("f", "1")
	owner.hdr.Uid = 1 << 20
	group := file("f", "1")
	group.hdr.Gid = -1
	strange := node("f", 'S'+1)
	for name, c := range map[string]struct {
		layers [][]entry
		kind   rung.Kind
	}{
		"up":                        {[][]entry{{file("../outside/f", "x")}}, rung.KindRefused},
		"up later":                  {[][]entry{{file("a/../../outside/f", "x")}}, rung.KindRefused},
		"up absolute":               {[][]entry{{file("/../outside/f", "x")}}, rung.KindRefused},
		"write through a link":      {[][]entry{{symlink("l", "../outside"), file("l/canary", "x")}}, rung.KindRefused},
		"write through a good link": {[][]entry{{dir("d"), symlink("l", "d"), file("l/f", "x")}}, rung.KindRefused},
		"through a lower link":      {[][]entry{{symlink("l", "../outside")}, {file("l/canary", "x")}}, rung.KindRefused},
		"through a deep link":       {[][]entry{{symlink("a/b", "../../outside"), file("a/b/c/d", "x")}}, rung.KindRefused},
		"mkdir through a link":      {[][]entry{{symlink("l", "../outside"), dir("l/d")}}, rung.KindRefused},
		"dir becomes a link":        {[][]entry{{file("d/f", "1")}, {symlink("d", "../outside"), file("d/canary", "x")}}, rung.KindRefused},
		"cached dir becomes a link": {[][]entry{{file("d/f", "1"), symlink("d", "../outside"), file("d/f", "x")}}, rung.KindRefused},
		"through a file":            {[][]entry{{file("f", "1"), file("f/g", "x")}}, rung.KindRefused},
		"hard link up":              {[][]entry{{hardlink("h", "../outside/canary")}}, rung.KindRefused},
		"hard link through a link":  {[][]entry{{symlink("l", "../outside"), hardlink("h", "l/canary")}}, rung.KindRefused},
		"write through a hard link": {[][]entry{{symlink("l", "../outside/canary"), hardlink("h", "l"), file("h/x", "x")}}, rung.KindRefused},
		"hard link to nothing":      {[][]entry{{hardlink("h", "/etc/passwd")}}, rung.KindRefused},
		"hard link to a directory":  {[][]entry{{dir("d"), hardlink("h", "d")}}, rung.KindRefused},
		"hard link to itself":       {[][]entry{{file("f", "1"), hardlink("f", "f")}}, rung.KindRefused},
		"hard link over its parent": {[][]entry{{file("d/f", "1"), hardlink("d", "d/f")}}, rung.KindRefused},
		"whiteout up":               {[][]entry{{file("../.wh.outside", "")}}, rung.KindRefused},
		"whiteout of dots":          {[][]entry{{file("a/.wh...", "")}}, rung.KindRefused},
		"whiteout of a dot":         {[][]entry{{file("a/.wh..", "")}}, rung.KindRefused},
		"whiteout of no name":       {[][]entry{{file("a/.wh.", "")}}, rung.KindRefused},
		"whiteout through a link":   {[][]entry{{symlink("l", "../outside")}, {file("l/.wh.canary", "")}}, rung.KindRefused},
		"opaque through a link":     {[][]entry{{symlink("l", "../outside")}, {file("l/.wh..wh..opq", "")}}, rung.KindRefused},
		"long component":            {[][]entry{{file(strings.Repeat("n", 300), "x")}}, rung.KindRefused},
		"long path":                 {[][]entry{{file(strings.Repeat("nnn/", 2000)+"f", "x")}}, rung.KindRefused},
		"deep path":                 {[][]entry{{file(strings.Repeat("n/", 200)+"f", "x")}}, rung.KindRefused},
		"owner out of range":        {[][]entry{{owner}}, rung.KindRefused},
		"group out of range":        {[][]entry{{group}}, rung.KindRefused},
		"unknown type":              {[][]entry{{strange}}, rung.KindRefused},
		"empty link":                {[][]entry{{symlink("l", "")}}, rung.KindRefused},
		"too many files":            {[][]entry{{file("a", ""), file("b", ""), file("c", ""), file("d", "")}, {file("e", "")}}, rung.KindExhausted},
		"too many in one layer":     {[][]entry{{file("a", ""), file("a", ""), file("a", ""), file("a", ""), file("a", "")}}, rung.KindExhausted},
		"file too large":            {[][]entry{{file("a", strings.Repeat("x", 101))}}, rung.KindExhausted},
		"together too large":        {[][]entry{{file("a", strings.Repeat("x", 90))}, {file("b", strings.Repeat("x", 90))}}, rung.KindExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, Limits{Bytes: 150, Files: 4, FileSize: 100, Depth: 128, Ratio: 200})
			var err error
			for _, l := range c.layers {
				if err = s.add(l...); err != nil {
					break
				}
			}
			if rung.KindOf(err) != c.kind {
				t.Errorf("got %v (%s), want %s", err, rung.KindOf(err), c.kind)
			}
			s.intact()
		})
	}
}

// A header may promise more than any disk has; it is refused before a byte is written.
func TestHugeSize(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 1 << 50, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, DefaultLimits())
	if err := s.tree.Add(plain(buf.Bytes())); rung.KindOf(err) != rung.KindExhausted {
		t.Errorf("got %v", err)
	}
	if got := s.content(); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}

func TestBombs(t *testing.T) {
	zeros := make([]byte, 1<<20)
	write := func(w io.WriteCloser) {
		tw := tar.NewWriter(w)
		if err := tw.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o644, Size: 256 << 20}); err != nil {
			t.Fatal(err)
		}
		for range 256 {
			if _, err := tw.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var gz, zs bytes.Buffer
	write(gzip.NewWriter(&gz))
	zw, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	write(zw)
	for name, data := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zs.Bytes()} {
		s := newSandbox(t, DefaultLimits())
		if err := s.tree.Add(plain(data)); rung.KindOf(err) != rung.KindExhausted {
			t.Errorf("%s: %v", name, err)
		}
		if n := s.tree.Stats().Bytes; n > 100<<20 {
			t.Errorf("%s: %d bytes written before it was noticed", name, n)
		}
	}
}

func TestModes(t *testing.T) {
	s := newSandbox(t, DefaultLimits())
	f, d, x := file("f", "1"), dir("d"), file("x", "1")
	f.hdr.Mode, d.hdr.Mode, x.hdr.Mode = 0o6755, 0o3777, 0
	x.hdr.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01"}
	x.hdr.Uid = 1000
	if err := s.add(f, d, x); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"f": 0o755, "d": 0o777 | fs.ModeSticky | fs.ModeDir, "x": 0o600} {
		if info, err := os.Lstat(filepath.Join(s.base, "root", name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if st := s.tree.Stats(); st.SetID != 2 || st.Attrs != 1 || st.Owners != 1 || len(st.Notes()) != 3 {
		t.Errorf("%+v %q", st, st.Notes())
	}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestDigests(t *testing.T) {
	tarball := archive(t, file("f", "1"))
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	if _, err := w.Write(tarball); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	good := Layer{Digest: digest(gz.Bytes()), Size: int64(gz.Len()), DiffID: digest(tarball)}
	for name, c := range map[string]struct {
		change func(l *Layer)
		data   []byte
		ok     bool
	}{
		"good":         {func(*Layer) {}, gz.Bytes(), true},
		"other digest": {func(l *Layer) { l.Digest = digest(nil) }, gz.Bytes(), false},
		"other diff":   {func(l *Layer) { l.DiffID = digest(nil) }, gz.Bytes(), false},
		"shorter":      {func(*Layer) {}, gz.Bytes()[:gz.Len()-9], false},
		"longer":       {func(*Layer) {}, append(bytes.Clone(gz.Bytes()), 0), false},
		"size too big": {func(l *Layer) { l.Size++ }, gz.Bytes(), false},
		"empty":        {func(*Layer) {}, nil, false},
	} {
		l := good
		c.change(&l)
		l.Open = plain(c.data).Open
		if err := newSandbox(t, DefaultLimits()).tree.Add(l); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, dir("a"), file("a/f", "1"), symlink("l", "../outside"), hardlink("h", "a/f")), archive(f, file("l/canary", "x"), file(".wh.a", "")))
	f.Add(archive(f, symlink("d", "../outside")), archive(f, dir("d"), file("d/.wh..wh..opq", ""), file("d/../../f", "")))
	f.Add(archive(f, node("n", tar.TypeChar), file("\xff", "")), []byte{0x1f, 0x8b, 8})
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		s := newSandbox(t, Limits{Bytes: 1 << 20, Files: 100, FileSize: 1 << 20, Depth: 16, Ratio: 200})
		for _, data := range [][]byte{lower, upper} {
			if s.tree.Add(plain(data)) != nil {
				break
			}
		}
		s.intact()
		if got := s.tree.Stats(); got.Bytes > 1<<20 || got.Files > 200 {
			t.Errorf("caps broken: %+v", got)
		}
	})
}

func Example() {
	fmt.Println(Stats{Devices: 2}.Notes()[0])
	// Output: 2 device nodes and FIFOs left out: a sandbox has devices of its own
}
