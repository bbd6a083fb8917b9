//go:build linux

// Command rung-image fills the store of templates: it imports container images and builds Debian trees. It is a program of
// its own so that `rung run` links no registry code; `rung template import` and `rung template build` start it.
//
// Everything that parses bytes of an image (manifests, archives, layers, the tree itself) happens in a child of this
// program, see job.go: as root in a user namespace of its own, whose ids are nobody's on the host, with Landlock keeping
// its writes in the new tree. This process only finds out what to fetch, makes directories, and writes template.json from
// what the child reports, which it trusts no further than the image.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

type cli struct {
	StateDir string    `help:"Directory of rung's state." env:"RUNG_STATE_DIR" placeholder:"DIR"`
	JSON     bool      `help:"Print the template as JSON." name:"json"`
	Quiet    bool      `help:"No progress line."`
	Import   importCmd `cmd:"" help:"Import a container image: a registry reference, an OCI layout or a docker save archive."`
	Build    buildCmd  `cmd:"" help:"Build a template from Debian's packages: python, node or full."`
}

func main() {
	if len(os.Args) == 2 {
		if role, ok := roles()[os.Args[1]]; ok {
			os.Exit(role())
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// roles are what this program is when it starts itself.
func roles() map[string]func() int {
	return map[string]func() int{unpackRole: unpackMain, debootRole: debootMain}
}

// app is what both commands need.
type app struct {
	store  *image.Store
	stderr io.Writer
	quiet  bool
}

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	helped := false
	parser, err := kong.New(&c, kong.Name("rung-image"), kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }))
	if err != nil {
		return report(stderr, err)
	}
	kctx, err := parser.Parse(args)
	if helped {
		return 0
	}
	if err != nil {
		return report(stderr, rung.Errorf(rung.KindInvalid, "%w", err).WithHint("rung-image --help"))
	}
	dir, err := stateDir(c.StateDir)
	if err != nil {
		return report(stderr, err)
	}
	a := &app{store: image.Open(dir), stderr: stderr, quiet: c.Quiet}
	var t image.Template
	var fresh bool
	switch kctx.Selected().Name {
	case "import":
		t, fresh, err = a.importImage(ctx, c.Import)
	case "build":
		t, fresh, err = a.buildDebian(ctx, c.Build)
	}
	if err != nil {
		return report(stderr, err)
	}
	return report(stderr, show(stdout, t, fresh, c.JSON))
}

func show(w io.Writer, t image.Template, fresh, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(t)
	}
	state := "ready"
	if !fresh {
		state = "already up to date"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "template %s (%s, %s) is %s\n", t.Name, t.Kind, t.Digest, state)
	for _, n := range t.Notes {
		fmt.Fprintf(&text, "  note: %s\n", n)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		err = rung.Errorf(rung.KindInternal, "interrupted: nothing was changed")
	}
	fmt.Fprintf(w, "rung-image: %v\n", err)
	if hint := rung.HintOf(err); hint != "" {
		fmt.Fprintf(w, "  %s\n", hint)
	}
	return rung.ExitCode(err)
}

// stateDir is where rung keeps its state: one place for root, one per ordinary user.
func stateDir(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/rung", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "rung"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", rung.Errorf(rung.KindInvalid, "no place for rung's state: %w", err).WithHint("set RUNG_STATE_DIR")
	}
	return filepath.Join(home, ".local", "state", "rung"), nil
}
