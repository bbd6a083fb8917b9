package unpack

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/rung-dev/rung"
)

// Layer is one archive to write. Digests are "sha256:…"; an empty one, or a negative size, is not checked.
type Layer struct {
	Digest string // of the bytes as they come, compressed or not
	Size   int64  // of the same
	DiffID string // of the archive within
	Open   func() (io.ReadCloser, error)
}

// Add writes one layer on top of those before.
func (t *Tree) Add(l Layer) (err error) {
	rc, err := l.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	in := &meter{r: rc, hash: sha256.New(), limit: l.Size}
	plain, err := decompress(in)
	if err != nil {
		return err
	}
	defer plain.Close()
	out := &meter{r: plain, hash: sha256.New(), limit: -1}
	counted := countingReader{out, func(n int64) error {
		if out.n > ratioFree && out.n/t.limits.Ratio > in.n {
			return exhausted("the layer is %d times as large as what it was made from: a decompression bomb", out.n/max(in.n, 1))
		}
		return t.count(n)
	}}
	if err := t.tar(counted); err != nil {
		return err
	}
	// What follows the end of the archive counts for the digests.
	if _, err := io.Copy(io.Discard, counted); err != nil {
		return fmt.Errorf("read the end of the archive: %w", err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("read the end of the layer: %w", err)
	}
	if l.Size >= 0 && in.n != l.Size {
		return rung.Errorf(rung.KindRefused, "the layer has %d bytes, its manifest says %d", in.n, l.Size)
	}
	if err := match("the layer", in.hash, l.Digest); err != nil {
		return err
	}
	return match("the layer's content", out.hash, l.DiffID)
}

func match(what string, h hash.Hash, want string) error {
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); want != "" && got != want {
		return rung.Errorf(rung.KindRefused, "%s has digest %s, the image says %s", what, got, want).
			WithHint("the image was damaged or changed on the way: fetch it again")
	}
	return nil
}

// meter hashes and counts what passes; limit, if not negative, ends it one byte later.
type meter struct {
	r     io.Reader
	hash  hash.Hash
	n     int64
	limit int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.hash.Write(p[:n]) // never fails
	m.n += int64(n)
	if m.limit >= 0 && m.n > m.limit {
		return 0, rung.Errorf(rung.KindRefused, "the layer has more than the %d bytes of its manifest", m.limit)
	}
	return n, err
}

// decompress goes by the first bytes: media types lie, magic numbers cannot in a way that matters.
func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return zr, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return zr.IOReadCloser(), nil
	}
	return io.NopCloser(br), nil
}

// Decompress is what Add does to a layer, for archives of layers.
func Decompress(r io.Reader) (io.ReadCloser, error) { return decompress(r) }
