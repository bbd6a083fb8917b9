package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

// templateCmd is `rung template`.
type templateCmd struct {
	List    templateListCmd    `cmd:"" help:"List templates."`
	Inspect templateInspectCmd `cmd:"" help:"Print what is known about a template, as JSON."`
	Rm      templateRmCmd      `cmd:"" help:"Remove a template that no sandbox uses."`
	Build   templateBuildCmd   `cmd:"" help:"Build a template from Debian's packages: python, node or full."`
	Import  templateImportCmd  `cmd:"" help:"Import an OCI image: a registry reference, an OCI layout or a docker save archive."`
}

// Examples implements exampler.
func (*templateCmd) Examples() string {
	return `  rung template build python
  rung template import docker.io/library/python:3.12-slim --name python312
  rung template import ./image.tar --name mine
  rung template list
`
}

// Run implements runner; one of the subcommands is always selected.
func (*templateCmd) Run(context.Context, *app) (int, error) {
	return 0, rung.Errorf(rung.KindInvalid, "name a subcommand").WithHint("rung template --help")
}

type templateListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Run implements runner.
func (c *templateListCmd) Run(ctx context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	list, err := h.images.List(ctx)
	if err != nil {
		return 0, err
	}
	if c.JSON {
		return 0, printJSON(a.out, list)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tKIND\tARCH\tCREATED\tSOURCE")
	for _, t := range list {
		source := t.Source.Reference
		if len(source) > 48 {
			source = source[:47] + "…"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Name, t.Kind, t.Arch, t.Created.Format("2006-01-02"), source)
	}
	return 0, w.Flush()
}

type templateInspectCmd struct {
	Name string `arg:"" help:"Template."`
}

// Run implements runner.
func (c *templateInspectCmd) Run(ctx context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	t, err := h.images.Inspect(ctx, c.Name)
	if err != nil {
		return 0, err
	}
	return 0, printJSON(a.out, t)
}

type templateRmCmd struct {
	Names []string `arg:"" help:"Templates."`
}

// Run implements runner.
func (c *templateRmCmd) Run(ctx context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, n := range c.Names {
		if n == image.HostName {
			errs = append(errs, rung.Errorf(rung.KindInvalid, "template host is built in and cannot be removed"))
			continue
		}
		if err := h.images.Remove(ctx, n); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintln(a.out, "removed", n)
	}
	return 0, errors.Join(errs...)
}

type templateBuildCmd struct {
	Args []string `arg:"" passthrough:"all" name:"python|node|full" help:"What to build, and flags of rung-image build."`
}

// Run implements runner.
func (c *templateBuildCmd) Run(ctx context.Context, a *app) (int, error) {
	if f, ok := a.err.(*os.File); ok && !isTerminal(f) {
		fmt.Fprintln(a.err, "rung: building from Debian's packages, which takes a minute or two")
	}
	return a.image(ctx, append([]string{"build"}, c.Args...))
}

type templateImportCmd struct {
	Args []string `arg:"" passthrough:"all" name:"REF|PATH" help:"What to import, and flags of rung-image import."`
}

// Run implements runner.
func (c *templateImportCmd) Run(ctx context.Context, a *app) (int, error) {
	return a.image(ctx, append([]string{"import"}, c.Args...))
}

// image runs the helper that alone links registry and archive code. It is our process's successor in all but name: it gets
// our streams, and its exit code is ours.
func (a *app) image(ctx context.Context, args []string) (int, error) {
	helper := findProgram("rung-image")
	if helper == "" {
		return 0, rung.Errorf(rung.KindUnavailable, "rung-image, which builds and imports templates, is not found").
			WithHint("put it beside rung or in PATH; `make` builds it into bin/")
	}
	state, _, err := places()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, helper, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	cmd.Env = append(os.Environ(), "RUNG_STATE_DIR="+state)
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return exit.ExitCode(), nil // it has told why
	}
	if err != nil {
		return 0, rung.Errorf(rung.KindInternal, "%s: %w", strings.Join(args, " "), err)
	}
	return 0, nil
}
