package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/rung-dev/rung/driver/held"
)

// versionCmd is `rung version`.
type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Examples implements exampler.
func (*versionCmd) Examples() string { return "  rung version --json\n" }

type usedProgram struct {
	Name    string `json:"name"`
	Path    string `json:"path"`    // "" = not found
	Version string `json:"version"` // in its own words
}

// Run implements runner.
func (c *versionCmd) Run(ctx context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	list := []usedProgram{{"rung", held.FindProgram("rung"), version}}
	for _, name := range []string{"rung-guest", "rung-gate", "rung-broker", "rung-image", "rung-strip", "crun", "runc", "runsc"} {
		p := usedProgram{Name: name, Path: held.FindProgram(name)}
		if p.Path != "" && name[0] == 'r' && name != "runc" && name != "runsc" {
			p.Version = version // built and shipped together
		} else if p.Path != "" {
			if p.Version, err = h.Version(ctx, p.Path); err != nil {
				p.Version = "unknown: " + err.Error()
			}
		}
		list = append(list, p)
	}
	if c.JSON {
		return 0, printJSON(a.out, list)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for _, p := range list {
		if p.Path == "" {
			p.Version = "not found"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, firstLine(p.Version), p.Path)
	}
	return 0, w.Flush()
}
