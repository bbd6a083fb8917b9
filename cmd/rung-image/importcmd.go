//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

type importCmd struct {
	Ref      string `arg:"" help:"Image reference (docker.io is the default registry), OCI layout directory, or archive."`
	Name     string `help:"Name of the template; the default is made from the reference."`
	Digest   string `help:"Refuse anything but this digest." placeholder:"sha256:…"`
	Platform string `help:"Platform of the image." placeholder:"linux/ARCH"`
}

// importImage makes a template from an image. False when the template was there and is up to date.
func (a *app) importImage(ctx context.Context, c importCmd) (image.Template, bool, error) {
	j := job{Mode: fromRegistry, Reference: c.Ref, Arch: runtime.GOARCH, Pin: c.Digest}
	if c.Digest != "" {
		if err := validDigest(c.Digest); err != nil {
			return image.Template{}, false, err
		}
	}
	if c.Platform != "" {
		arch, ok := strings.CutPrefix(c.Platform, "linux/")
		if !ok || arch == "" {
			return image.Template{}, false, rung.Errorf(rung.KindInvalid, "platform %q: only linux/ARCH can be imported", c.Platform)
		}
		j.Arch = arch
	}
	input, wait, err := a.openInput(&j)
	if err != nil {
		return image.Template{}, false, err
	}
	if input != nil {
		defer input.Close()
	}
	if c.Name == "" {
		c.Name = defaultName(j)
	}
	t, fresh, err := a.importAs(ctx, c.Name, j, input)
	if input != nil {
		_ = input.Close() // a writer at the other end must not wait for a reader that is gone
	}
	if feedErr := wait(); err == nil && feedErr != nil {
		err = feedErr
	}
	return t, fresh, err
}

func (a *app) importAs(ctx context.Context, name string, j job, input *os.File) (image.Template, bool, error) {
	b, err := a.store.Begin(ctx, name)
	if err != nil {
		return image.Template{}, false, err
	}
	defer b.Abort()
	old, err := a.previous(ctx, name, image.OCI, j.Reference)
	if err != nil {
		return image.Template{}, false, err
	}
	j.Have = old.Digest
	r, err := a.do(ctx, b, j, input)
	if err != nil {
		return image.Template{}, false, err
	}
	if r.Unchanged {
		return old, false, nil
	}
	t := image.Template{
		Kind: image.OCI, Digest: r.Digest, Source: image.Source{Reference: j.Reference, Digest: r.Resolved}, Arch: r.Arch,
		Env: r.Config.Env, Workdir: r.Config.Workdir, Entrypoint: r.Config.Entrypoint, Cmd: r.Config.Cmd, User: r.Config.User,
		Notes: r.Notes,
	}
	if r.Arch != runtime.GOARCH {
		t.Notes = append(t.Notes, "made for "+r.Arch+": its programs do not run on this machine")
	}
	t, err = a.commit(ctx, b, name, t)
	return t, err == nil, err
}

// commit finishes what both commands build.
func (a *app) commit(ctx context.Context, b *image.Build, name string, t image.Template) (image.Template, error) {
	t.Created = time.Now().UTC()
	if os.Geteuid() == 0 {
		t.OwnerBase = image.OwnerBase
	}
	if err := removeScratch(b.Dir); err != nil {
		return image.Template{}, err
	}
	if err := b.Commit(t); err != nil {
		return image.Template{}, err
	}
	return a.store.Get(ctx, name)
}

// removeScratch leaves nothing in a build's directory but what a template consists of: scratch files can name mirrors with
// passwords.
func removeScratch(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "rootfs" || e.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// previous returns the template that a build would replace, the zero one when there is none. Only a newer version of the
// same thing is replaced.
func (a *app) previous(ctx context.Context, name string, kind image.Kind, reference string) (image.Template, error) {
	old, err := a.store.Get(ctx, name)
	switch {
	case rung.KindOf(err) == rung.KindNotFound:
		return image.Template{}, nil
	case err != nil:
		return image.Template{}, err
	case old.Kind != kind || old.Source.Reference != reference:
		return image.Template{}, rung.Errorf(rung.KindExists, "template %s exists and was made from %s", name, printable(old.Source.Reference)).
			WithHint("choose another name with --name, or remove it: rung template rm " + name)
	}
	return old, nil
}

// openInput decides what the reference is, and opens it where it is something on this machine. The returned function
// waits for what feeds the input.
func (a *app) openInput(j *job) (*os.File, func() error, error) {
	none := func() error { return nil }
	info, err := os.Stat(j.Reference)
	switch local := isPath(j.Reference); {
	case err != nil && local:
		return nil, none, rung.Errorf(rung.KindNotFound, "no image archive or layout at %s: %w", j.Reference, err)
	case err != nil, !local && info.IsDir() && !hasFile(j.Reference, "index.json"): // a folder "python" is not what is meant
		return nil, none, a.resolveAuth(j)
	}
	j.Mode = fromArchive
	if j.Reference, err = filepath.Abs(j.Reference); err != nil {
		return nil, none, err
	}
	if info.IsDir() {
		return feedLayout(j.Reference)
	}
	if !info.Mode().IsRegular() {
		return nil, none, rung.Errorf(rung.KindInvalid, "%s: not a file or directory", j.Reference)
	}
	f, err := os.Open(j.Reference)
	return f, none, err
}

// isPath reports whether a reference can only be a path.
func isPath(ref string) bool {
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(ref, prefix) {
			return true
		}
	}
	for _, suffix := range []string{".tar", ".tgz", ".tar.gz", ".tar.zst"} {
		if strings.HasSuffix(ref, suffix) {
			return true
		}
	}
	return ref == "." || ref == ".."
}

func hasFile(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular()
}

func feedLayout(dir string) (*os.File, func() error, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() {
		err := streamLayout(dir, w)
		if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
			err = nil // the child stopped reading and says why
		}
		done <- errors.Join(err, w.Close())
	}()
	return r, func() error { return <-done }, nil
}

// resolveAuth checks the reference and looks up the caller's own login for its registry: the child cannot read it.
func (a *app) resolveAuth(j *job) error {
	ref, err := name.ParseReference(j.Reference)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "%q is neither a file nor an image reference: %w", j.Reference, err).
			WithHint("for example docker.io/library/python:3.12-slim, ./image.tar or ./layout")
	}
	j.Reference = ref.Name()
	auth, err := authn.DefaultKeychain.Resolve(ref.Context())
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "login for %s: %w", ref.Context().RegistryStr(), err)
	}
	conf, err := auth.Authorization()
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "login for %s: %w", ref.Context().RegistryStr(), err)
	}
	j.Auth = *conf
	return nil
}

// defaultName makes python-3.12-slim of docker.io/library/python:3.12-slim, and app of /tmp/App.tar.gz.
func defaultName(j job) string {
	base := path.Base(j.Reference)
	if j.Mode == fromRegistry {
		base, _, _ = strings.Cut(base, "@")
		base = strings.TrimSuffix(base, ":latest")
	} else {
		for _, ext := range []string{".gz", ".tgz", ".zst", ".tar"} {
			base = strings.TrimSuffix(base, ext)
		}
	}
	base = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, base)
	base = strings.TrimLeft(base, "._-")
	return base[:min(len(base), 64)]
}
