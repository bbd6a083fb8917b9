//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

type buildCmd struct {
	Variant string `arg:"" help:"python, node or full."`
	Name    string `help:"Name of the template; the default is the variant."`
	Rebuild bool   `help:"Build again although it exists, for newer packages."`
}

// variants are the packages on top of a minimal Debian.
func variants() map[string][]string {
	python := []string{"python3", "python3-pip", "python3-venv", "ca-certificates"}
	node := []string{"nodejs", "npm", "ca-certificates"}
	full := []string{"git", "curl", "build-essential", "bash", "procps", "file", "jq", "unzip", "zip", "xz-utils", "python3-dev"}
	return map[string][]string{
		"python": python,
		"node":   node,
		"full":   append(append(full, python...), node...),
	}
}

// buildDebian makes a template from Debian's packages. Packages are verified by apt against the host's keys and trusted;
// still their scripts run in a user namespace, and the tree is unpacked as any image is.
func (a *app) buildDebian(ctx context.Context, c buildCmd) (image.Template, bool, error) {
	packages, ok := variants()[c.Variant]
	if !ok {
		return image.Template{}, false, rung.Errorf(rung.KindInvalid, "unknown variant %q", c.Variant).WithHint("one of: python, node, full")
	}
	if c.Name == "" {
		c.Name = c.Variant
	}
	rel, err := readRelease("/etc/os-release")
	if err != nil {
		return image.Template{}, false, err
	}
	sources, err := debianSources("/etc/apt", rel.codename)
	if err != nil {
		return image.Template{}, false, err
	}
	b, err := a.store.Begin(ctx, c.Name)
	if err != nil {
		return image.Template{}, false, err
	}
	defer b.Abort()
	reference := rel.id + "/" + rel.codename + "/" + c.Variant
	old, err := a.previous(ctx, c.Name, image.Debian, reference)
	if err != nil {
		return image.Template{}, false, err
	}
	if old.Name != "" && !c.Rebuild {
		return old, false, nil
	}
	r, err := a.bootstrap(ctx, b, bootstrap{Release: rel.codename, Packages: packages, Sources: sources},
		job{Mode: fromTree, Reference: reference, Variant: c.Variant, Arch: runtime.GOARCH})
	if err != nil {
		return image.Template{}, false, err
	}
	t, err := a.commit(ctx, b, c.Name, image.Template{
		Kind: image.Debian, Digest: r.Digest, Source: image.Source{Reference: reference}, Arch: runtime.GOARCH,
		Env: r.Config.Env, Workdir: "/work", Packages: r.Packages, Notes: r.Notes,
	})
	return t, err == nil, err
}

// release is what os-release says of this host.
type release struct{ id, codename string }

func readRelease(path string) (release, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return release{}, rung.Errorf(rung.KindUnavailable, "what this host runs is unknown: %w", err)
	}
	var r release
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.id = value
		case "VERSION_CODENAME":
			r.codename = value
		}
	}
	if r.id != "debian" && r.id != "ubuntu" || r.codename == "" {
		return release{}, rung.Errorf(rung.KindUnavailable, "this host runs %q: templates are built from the packages of a Debian or Ubuntu host", r.id).
			WithHint("import an image instead: rung template import docker.io/library/python:3.12-slim")
	}
	return r, nil
}

func (b bootstrap) check() error {
	if len(b.Sources) == 0 {
		return rung.Errorf(rung.KindUnavailable, "apt on this host has no source for %s main", b.Release).
			WithHint("see /etc/apt/sources.list.d; apt-get update must work first")
	}
	for _, p := range b.Packages {
		if strings.ContainsAny(p, ", \n") {
			return fmt.Errorf("package %q: not a name", p)
		}
	}
	return nil
}
