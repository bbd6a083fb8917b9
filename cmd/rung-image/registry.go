//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image/unpack"
)

// openRegistry resolves a reference to one image. Its layers are fetched when they are unpacked.
func openRegistry(ctx context.Context, j job) (*source, error) {
	ref, err := name.ParseReference(j.Reference)
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "%w", err)
	}
	if j.Pin != "" {
		ref = ref.Context().Digest(j.Pin)
	}
	desc, err := remote.Get(ref,
		remote.WithContext(ctx),
		remote.WithAuth(authn.FromConfig(j.Auth)),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: j.Arch}),
		remote.WithTransport(cappedTransport{remote.DefaultTransport}),
		remote.WithUserAgent("rung-image"),
	)
	if err != nil {
		return nil, fetchError(j.Reference, err)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, fetchError(j.Reference, err)
	}
	s := &source{resolved: desc.Digest.String()}
	if err := s.fill(img, j); err != nil {
		return nil, fetchError(j.Reference, err)
	}
	return s, nil
}

func (s *source) fill(img v1.Image, j job) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	if err := checkManifest(m); err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	s.digest = digest.String()
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	if len(layers) != len(m.Layers) {
		return rung.Errorf(rung.KindRefused, "the image has %d layers, its manifest names %d", len(layers), len(m.Layers))
	}
	for i, l := range layers {
		s.layers = append(s.layers, unpack.Layer{Digest: m.Layers[i].Digest.String(), Size: m.Layers[i].Size, Open: l.Compressed})
	}
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	return s.describe(c, j)
}

// fetchError says what kind of failure a registry's answer is.
func fetchError(ref string, err error) error {
	if _, known := errors.AsType[*rung.Error](err); known {
		return err
	}
	answer, ok := errors.AsType[*transport.Error](err)
	switch {
	case !ok && strings.Contains(err.Error(), "no child with platform"):
		return rung.Errorf(rung.KindNotFound, "%s: %w", ref, err).WithHint("the image does not exist for this processor; --platform chooses another")
	case !ok:
		return rung.Errorf(rung.KindUnavailable, "%s: %w", ref, err).
			WithHint("check the network and, behind a proxy, HTTPS_PROXY; a docker save archive or an OCI layout can be imported without")
	case answer.StatusCode == http.StatusNotFound:
		return rung.Errorf(rung.KindNotFound, "%s: no such image: %w", ref, err)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return rung.Errorf(rung.KindNotFound, "%s: no such image, or not for you: %w", ref, err).
			WithHint("private registries: log in with docker login or podman login first")
	case answer.StatusCode == http.StatusTooManyRequests:
		return rung.Errorf(rung.KindExhausted, "%s: the registry limits the rate: %w", ref, err).WithHint("log in, or try later")
	}
	return rung.Errorf(rung.KindUnavailable, "%s: %w", ref, err)
}

// cappedTransport bounds everything that is read into memory: manifests and the answers of token services. Blobs are
// streamed, and bounded where they are.
type cappedTransport struct{ next http.RoundTripper }

func (c cappedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	first := req // of a chain of redirects
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if err == nil && !strings.Contains(first.URL.Path, "/blobs/") {
		resp.Body = &cappedBody{resp.Body, maxManifest}
	}
	return resp, err
}

type cappedBody struct {
	io.ReadCloser
	left int64
}

func (b *cappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, rung.Errorf(rung.KindRefused, "the registry's answer is longer than %s", rung.FormatBytes(maxManifest))
	}
	return n, err
}
