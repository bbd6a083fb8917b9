package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/rung-dev/rung"
)

// recordCmd is `rung record`.
type recordCmd struct {
	List   recordListCmd   `cmd:"" help:"List the newest records."`
	Show   recordShowCmd   `cmd:"" help:"Print a stored record."`
	Verify recordVerifyCmd `cmd:"" help:"Check that a record is what this host signed."`
}

// Examples implements exampler.
func (*recordCmd) Examples() string {
	return `  rung record list
  rung record show r3xq5tfvymq2ka2p
  rung record verify ./record.json
`
}

// Run implements runner; one of the subcommands is always selected.
func (*recordCmd) Run(context.Context, *app) (int, error) {
	return 0, rung.Errorf(rung.KindInvalid, "name a subcommand").WithHint("rung record --help")
}

type recordListCmd struct {
	Limit int  `help:"How many, newest first; 0 for all." default:"20" placeholder:"N"`
	JSON  bool `name:"json" help:"Print JSON."`
}

// Run implements runner.
func (c *recordListCmd) Run(_ context.Context, a *app) (int, error) {
	if c.Limit < 0 {
		return 0, rung.Errorf(rung.KindInvalid, "--limit %d: not zero or more", c.Limit)
	}
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	list, err := h.audit.List(c.Limit)
	if err != nil {
		return 0, err
	}
	if c.JSON {
		return 0, printJSON(a.out, list)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTORED\tBYTES")
	for _, e := range list {
		fmt.Fprintf(w, "%s\t%s\t%d\n", e.ID, e.Time.Format("2006-01-02 15:04:05"), e.Size)
	}
	return 0, w.Flush()
}

type recordShowCmd struct {
	ID string `arg:"" name:"ID|FILE" help:"A run's id, or a file with a record."`
}

// Run implements runner.
func (c *recordShowCmd) Run(_ context.Context, a *app) (int, error) {
	_, raw, err := openRecord(a, c.ID)
	if err != nil {
		return 0, err
	}
	_, err = a.out.Write(raw)
	return 0, err
}

func openRecord(a *app, id string) (*host, []byte, error) {
	h, err := openHost(a)
	if err != nil {
		return nil, nil, err
	}
	raw, err := h.record(id)
	return h, raw, err
}

type recordVerifyCmd struct {
	ID string `arg:"" name:"ID|FILE" help:"A run's id, or a file with a record."`
}

// Run implements runner.
func (c *recordVerifyCmd) Run(_ context.Context, a *app) (int, error) {
	h, raw, err := openRecord(a, c.ID)
	if err != nil {
		return 0, err
	}
	if err := h.audit.Verify(raw); err != nil {
		return 0, err
	}
	fmt.Fprintln(a.out, "the record is unchanged since this host's key signed it")
	return 0, nil
}

// maxRecord bounds a record file that is read.
const maxRecord = 64 << 20

// record reads a stored record by id, or a file when the argument looks like a path.
func (h *host) record(arg string) ([]byte, error) {
	if !strings.ContainsAny(arg, "/.") {
		return h.audit.Load(arg)
	}
	f, err := os.Open(arg)
	if err != nil {
		return nil, rung.Errorf(rung.KindNotFound, "record: %w", err)
	}
	defer f.Close()
	return readRecord(f)
}
