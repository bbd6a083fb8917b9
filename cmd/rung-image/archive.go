//go:build linux

package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image/unpack"
)

const (
	maxSpooled = 10_000 // files of an archive of images
	maxNesting = 3      // indexes in indexes
)

// spool keeps the files of an archive under numbers: their names are the archive's and only looked up in a map.
type spool struct {
	dir   *os.Root
	names map[string]string // name in the archive -> file in dir
	links map[string]string // old docker save: a layer that is a link to another image's
}

// openArchive spools an OCI layout or a docker save archive and finds the one image in it.
func openArchive(in io.Reader, dir *os.Root, j job) (*source, error) {
	sp := &spool{dir: dir, names: map[string]string{}, links: map[string]string{}}
	if err := sp.fill(in, j.Limits.Bytes, newProgress(j.Progress, "reading the archive")); err != nil {
		return nil, err
	}
	switch {
	case sp.has("index.json"):
		return sp.layout(j)
	case sp.has("manifest.json"):
		return sp.dockerSave(j)
	}
	return nil, rung.Errorf(rung.KindInvalid, "this is neither an OCI layout (no index.json) nor a docker save archive (no manifest.json)").
		WithHint("docker save -o image.tar IMAGE, or skopeo copy … oci-archive:image.tar, makes one; docker export does not")
}

func (s *spool) fill(in io.Reader, limit int64, progress func(int64)) error {
	plain, err := unpack.Decompress(in)
	if err != nil {
		return err
	}
	defer plain.Close()
	tr := tar.NewReader(io.LimitReader(plain, limit+1<<30)) // headers, and the wrapping of a layer
	var total int64
	for n := 0; ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return rung.Errorf(rung.KindInvalid, "read the archive: %w", err)
		}
		if n >= maxSpooled {
			return rung.Errorf(rung.KindExhausted, "the archive has more than %d files", maxSpooled).
				WithHint("if it is a root file system and not an image, it cannot be imported")
		}
		name := path.Clean("/" + hdr.Name)[1:]
		switch hdr.Typeflag {
		case tar.TypeReg:
			if total += hdr.Size; total > limit {
				return rung.Errorf(rung.KindExhausted, "the archive holds more than %s", rung.FormatBytes(limit))
			}
			if err := s.keep(name, tr); err != nil {
				return err
			}
			progress(total)
		case tar.TypeSymlink:
			s.links[name] = path.Join(path.Dir("/"+name), hdr.Linkname)[1:]
		}
	}
}

func (s *spool) keep(name string, content io.Reader) error {
	file := strconv.Itoa(len(s.names))
	if old, ok := s.names[name]; ok {
		return rung.Errorf(rung.KindRefused, "the archive has two files named %.200q (%s)", name, old)
	}
	f, err := s.dir.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	s.names[name] = file
	return errors.Join(err, f.Close())
}

// find resolves one link at most: that is all docker save ever wrote.
func (s *spool) find(name string) (string, bool) {
	name = path.Clean(name)
	if target, ok := s.links[name]; ok {
		name = target
	}
	file, ok := s.names[name]
	return file, ok
}

func (s *spool) has(name string) bool { _, ok := s.find(name); return ok }

func (s *spool) open(name string) (*os.File, error) {
	file, ok := s.find(name)
	if !ok {
		return nil, rung.Errorf(rung.KindInvalid, "the archive lacks %.200q, which it refers to", name)
	}
	return s.dir.Open(file)
}

// read returns a small file, checked against a digest if one is given.
func (s *spool) read(name string, want string) ([]byte, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxManifest {
		return nil, rung.Errorf(rung.KindRefused, "%.200q in the archive is longer than %s", name, rung.FormatBytes(maxManifest))
	}
	if want != "" && sum(data) != want {
		return nil, rung.Errorf(rung.KindRefused, "%.200q in the archive has digest %s", name, sum(data)).WithHint("the archive was damaged or changed")
	}
	return data, nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}

// blob is a descriptor's name in a layout.
func blob(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }

// layout finds the image in an OCI layout.
func (s *spool) layout(j job) (*source, error) {
	data, err := s.read("index.json", "")
	if err != nil {
		return nil, err
	}
	found, err := s.pick(data, j, 0)
	if err != nil {
		return nil, err
	}
	if j.Pin != "" && j.Pin != found.top.Digest.String() && j.Pin != found.desc.Digest.String() {
		return nil, rung.Errorf(rung.KindRefused, "the archive holds %s, not %s", found.top.Digest, j.Pin)
	}
	data, err = s.read(blob(found.desc), found.desc.Digest.String())
	if err != nil {
		return nil, err
	}
	var m v1.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "the image's manifest: %w", err)
	}
	if err := checkManifest(&m); err != nil {
		return nil, err
	}
	src := &source{digest: found.desc.Digest.String(), resolved: found.top.Digest.String()}
	for _, l := range m.Layers {
		src.layers = append(src.layers, unpack.Layer{Digest: l.Digest.String(), Size: l.Size, Open: func() (io.ReadCloser, error) { return s.open(blob(l)) }})
	}
	return src, s.configure(src, blob(m.Config), m.Config.Digest.String(), j)
}

// choice is an image of an index, and the entry of the outermost index that led there.
type choice struct{ desc, top v1.Descriptor }

// pick chooses the image of j's processor from an index.
func (s *spool) pick(index []byte, j job, depth int) (choice, error) {
	var list v1.IndexManifest
	if err := json.Unmarshal(index, &list); err != nil {
		return choice{}, rung.Errorf(rung.KindInvalid, "the archive's index: %w", err)
	}
	var found []choice
	for _, d := range list.Manifests {
		if d.Digest.Algorithm != "sha256" || !fits(d.Platform, j.Arch) {
			continue
		}
		c := choice{d, d}
		if d.MediaType.IsIndex() {
			if depth == maxNesting {
				return choice{}, rung.Errorf(rung.KindRefused, "the archive's indexes are nested too deep")
			}
			data, err := s.read(blob(d), d.Digest.String())
			if err != nil {
				return choice{}, err
			}
			inner, err := s.pick(data, j, depth+1)
			if err != nil {
				return choice{}, err
			}
			c.desc = inner.desc
		}
		if len(found) == 0 || found[0].desc.Digest != c.desc.Digest { // one image may have several tags
			found = append(found, c)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return choice{}, rung.Errorf(rung.KindNotFound, "the archive holds no image for linux/%s", j.Arch)
	}
	return choice{}, rung.Errorf(rung.KindInvalid, "the archive holds %d images", len(found)).WithHint("save one image per archive")
}

// fits takes an entry without a platform for a match: the image's configuration decides later.
func fits(p *v1.Platform, arch string) bool {
	return p == nil || p.OS == "linux" && p.Architecture == arch
}

// dockerSave finds the image in the older format of docker save, which has no manifest with digests: the configuration
// names the content of the layers, and its own digest is the image's id.
func (s *spool) dockerSave(j job) (*source, error) {
	data, err := s.read("manifest.json", "")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "the archive's manifest.json: %w", err)
	}
	if len(list) != 1 {
		return nil, rung.Errorf(rung.KindInvalid, "the archive holds %d images", len(list)).WithHint("save one image per archive")
	}
	if len(list[0].Layers) > maxLayers {
		return nil, rung.Errorf(rung.KindRefused, "the image has %d layers, at most %d are allowed", len(list[0].Layers), maxLayers)
	}
	text, err := s.read(list[0].Config, "")
	if err != nil {
		return nil, err
	}
	src := &source{digest: sum(text), resolved: sum(text)}
	if j.Pin != "" && j.Pin != src.digest {
		return nil, rung.Errorf(rung.KindRefused, "the archive holds the image %s, not %s", src.digest, j.Pin)
	}
	for _, l := range list[0].Layers {
		src.layers = append(src.layers, unpack.Layer{Size: -1, Open: func() (io.ReadCloser, error) { return s.open(l) }})
	}
	return src, s.configure(src, list[0].Config, "", j)
}

func (s *spool) configure(src *source, name, digest string, j job) error {
	data, err := s.read(name, digest)
	if err != nil {
		return err
	}
	var c v1.ConfigFile
	if err := json.Unmarshal(data, &c); err != nil {
		return rung.Errorf(rung.KindInvalid, "the image's configuration: %w", err)
	}
	return src.describe(&c, j)
}

// streamLayout writes an OCI layout directory as an archive: the child has no way to open its files itself. Only what a
// layout consists of is sent, and no link followed out of it.
func streamLayout(dir string, out io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	names := []string{"oci-layout", "index.json", "manifest.json"}
	if d, err := root.Open("blobs/sha256"); err == nil {
		entries, err := d.ReadDir(maxSpooled)
		_ = d.Close() // read only
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for _, e := range entries {
			names = append(names, "blobs/sha256/"+e.Name())
		}
	}
	w := tar.NewWriter(out)
	for _, name := range names {
		if err := streamFile(root, name, w); err != nil {
			return err
		}
	}
	return w.Close()
}

func streamFile(root *os.Root, name string, w *tar.Writer) error {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(path.Base(name), ".") {
		return nil // an optional file; what is missing the child will say
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: info.Size(), Mode: 0o644}); err != nil {
		return err
	}
	if n, err := io.CopyN(w, f, info.Size()); err != nil {
		return fmt.Errorf("%s: %d of %d bytes: %w", name, n, info.Size(), err)
	}
	return nil
}
