//go:build linux

package main

import (
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image/unpack"
)

// source is one image of one platform, found but not read yet.
type source struct {
	digest   string // names the tree: of the manifest, or of the configuration where there is no manifest
	resolved string // what the reference or archive led to; of an index, where there is one
	arch     string
	config   config
	layers   []unpack.Layer
}

const (
	maxManifest = 4 << 20 // the registry specification's own bound
	maxLayers   = 256
)

// checkManifest refuses what no tree can or should be made of.
func checkManifest(m *v1.Manifest) error {
	if len(m.Layers) > maxLayers {
		return rung.Errorf(rung.KindRefused, "the image has %d layers, at most %d are allowed", len(m.Layers), maxLayers)
	}
	if m.Config.Size > maxManifest {
		return rung.Errorf(rung.KindRefused, "the image's configuration has %d bytes", m.Config.Size)
	}
	for _, l := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		// Addresses chosen by an image: following them would let it make requests from this host.
		if len(l.URLs) > 0 {
			return rung.Errorf(rung.KindRefused, "the image wants a layer fetched from elsewhere: %.200q", l.URLs[0])
		}
		if l.Digest.Algorithm != "sha256" {
			return rung.Errorf(rung.KindRefused, "the image uses the digest algorithm %.20q, only sha256 is supported", l.Digest.Algorithm)
		}
	}
	return nil
}

// describe takes from an image's configuration what a template keeps, and pairs its layers with the digests of their
// content.
func (s *source) describe(c *v1.ConfigFile, j job) error {
	if c.OS != "linux" && c.OS != "" {
		return rung.Errorf(rung.KindInvalid, "the image is for %.40q, not for Linux", c.OS)
	}
	s.arch = c.Architecture
	if s.arch == "" {
		s.arch = j.Arch
	}
	if s.arch != j.Arch {
		return rung.Errorf(rung.KindInvalid, "the image is for %.40q, not for %s", s.arch, j.Arch).
			WithHint("another platform is chosen with --platform; its programs do not run on this machine")
	}
	if len(c.RootFS.DiffIDs) != len(s.layers) {
		return rung.Errorf(rung.KindRefused, "the image has %d layers and %d digests of them", len(s.layers), len(c.RootFS.DiffIDs))
	}
	for i, id := range c.RootFS.DiffIDs {
		s.layers[i].DiffID = id.String()
	}
	s.config = config{
		Env: c.Config.Env, Workdir: c.Config.WorkingDir, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, User: c.Config.User,
	}
	hasPath := false
	for _, kv := range s.config.Env {
		hasPath = hasPath || strings.HasPrefix(kv, "PATH=")
	}
	if !hasPath {
		s.config.Env = append(s.config.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return s.config.check()
}
