package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
)

// reapCmd is `rung reap`.
type reapCmd struct {
	DryRun bool `help:"Only tell what would be removed."`
	JSON   bool `name:"json" help:"Print JSON."`
}

// Examples implements exampler.
func (*reapCmd) Examples() string {
	return `  rung reap --dry-run
  rung reap --json
`
}

// Run implements runner.
func (c *reapCmd) Run(ctx context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	list, err := h.Sweep(ctx, c.DryRun)
	if c.JSON {
		if list == nil {
			list = []held.Remains{} // [], not null
		}
		if e := printJSON(a.out, list); e != nil {
			return 0, e
		}
		return 0, err
	}
	verb := "removed"
	if c.DryRun {
		verb = "would remove"
	}
	for _, r := range list {
		fmt.Fprintf(a.out, "%s %s: %s\n", verb, r.ID, strings.Join(r.Found, ", "))
	}
	if len(list) == 0 && err == nil {
		fmt.Fprintln(a.out, "nothing is left behind")
	}
	return 0, err
}

func readRecord(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "record: %w", err)
	}
	if len(raw) > maxRecord {
		return nil, rung.Errorf(rung.KindInvalid, "record: longer than %s", rung.FormatBytes(maxRecord))
	}
	return raw, nil
}
