package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
	"github.com/rung-dev/rung/internal/audit/ocsf"
	"github.com/rung-dev/rung/internal/audit/show"
)

// logCmd is `rung log`.
type logCmd struct {
	Show       logShowCmd       `cmd:"" default:"withargs" help:"Show events: what rung log without a subcommand does."`
	Verify     logVerifyCmd     `cmd:"" help:"Check that no event was changed, removed, inserted or reordered."`
	Checkpoint logCheckpointCmd `cmd:"" help:"Sign the log as it is and print the checkpoint, to be kept elsewhere."`
	Export     logExportCmd     `cmd:"" help:"Print all events as JSON or OCSF, one per line."`
	Prune      logPruneCmd      `cmd:"" help:"Remove old segments; a signed event says so."`
}

// Examples implements exampler.
func (*logCmd) Examples() string {
	return `  rung log --denied --since 2h
  rung log --follow --agent builder
  rung log checkpoint --out rung-checkpoint.json
  rung log verify --checkpoint rung-checkpoint.json
  rung log export --ocsf --since 24h
  rung log prune --before 90d
`
}

// Run implements runner; one of the subcommands is always selected.
func (*logCmd) Run(context.Context, *app) (int, error) {
	return 0, rung.Errorf(rung.KindInvalid, "name a subcommand").WithHint("rung log --help")
}

// moment is a time as a flag: a duration back from now (90m, 7d), a day, or RFC 3339.
type moment struct{ time.Time }

func (m *moment) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			m.Time = time.Now().AddDate(0, 0, -int(n))
			return nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		m.Time = time.Now().Add(-d)
		return nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, s); err == nil {
			m.Time = t
			return nil
		}
	}
	return rung.Errorf(rung.KindInvalid, "%.40q is no time: use 90m, 7d, 2026-11-30 or 2026-11-30T12:00:00Z", s)
}

// openLog returns the host's event log.
func openLog(a *app) (*host, *log.Log, error) {
	h, err := openHost(a)
	if err != nil {
		return nil, nil, err
	}
	l, err := h.audit.Log()
	return h, l, err
}

type logShowCmd struct {
	Follow  bool   `short:"f" help:"Go on as events come, until interrupted."`
	Sandbox string `help:"Only this sandbox." placeholder:"ID"`
	Agent   string `help:"Only this agent." placeholder:"NAME"`
	Kind    string `help:"Only this kind: run, refused, net, denied, secret, …" placeholder:"KIND"`
	Denied  bool   `help:"Only what was denied."`
	Since   moment `help:"Only newer than a time or a duration ago: 90m, 7d, 2026-11-30." placeholder:"T"`
	Lines   int    `short:"n" name:"lines" help:"How many of the newest; 0 for all (default ${default})." default:"100" placeholder:"N"`
	JSON    bool   `name:"json" help:"Print the lines as they are in the log."`
}

// Run implements runner.
func (c *logShowCmd) Run(ctx context.Context, a *app) (int, error) {
	h, l, err := openLog(a)
	switch {
	case rung.KindOf(err) == rung.KindNotFound && !c.Follow:
		return 0, nil // no events yet: an empty list
	case rung.KindOf(err) == rung.KindNotFound:
		l, err = h.audit.MakeLog()
	}
	if err != nil {
		return 0, err
	}
	f := log.Filter{Sandbox: c.Sandbox, Agent: c.Agent, Kind: c.Kind, Denied: c.Denied, Since: c.Since.Time}
	p := &show.Printer{Out: a.out, JSON: c.JSON, Colour: colourful(a.out)}
	var at log.Position
	if c.Lines == 0 {
		at, err = l.Scan(log.Position{}, f, p.Print)
	} else {
		at, err = l.Tail(c.Lines, f, p.Print)
	}
	if err != nil || !c.Follow {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return 0, l.Follow(ctx, at, f, p.Print)
}

func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

type logVerifyCmd struct {
	Checkpoint string `help:"An exported checkpoint to hold the log against; - reads standard input." placeholder:"FILE"`
	Require    bool   `name:"require-anchor" help:"Fail unless the log was held against a checkpoint."`
	JSON       bool   `name:"json" help:"Print JSON."`
}

// maxCheckpoint bounds a checkpoint file.
const maxCheckpoint = 16 << 10

// exitTampered says that the log was read and is not what was written.
const exitTampered = 1

// Run implements runner.
func (c *logVerifyCmd) Run(_ context.Context, a *app) (int, error) {
	anchor, err := c.anchor(a)
	if err != nil {
		return 0, err
	}
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	l, err := h.audit.Log()
	if rung.KindOf(err) == rung.KindNotFound && anchor != nil {
		l, err = h.audit.MakeLog() // an empty one, which the checkpoint does not fit
	}
	if err != nil {
		return 0, err
	}
	public, err := h.audit.LogKey()
	if err != nil {
		return 0, err
	}
	r, err := l.Verify(public, anchor)
	if err != nil {
		return 0, err
	}
	if c.JSON {
		err = printJSON(a.out, r)
	} else {
		show.Report(a.out, r, anchor)
	}
	if err == nil && (!r.OK || c.Require && !r.Anchored) {
		return exitTampered, nil
	}
	return 0, err
}

func (c *logVerifyCmd) anchor(a *app) (*log.Checkpoint, error) {
	var in io.Reader
	switch c.Checkpoint {
	case "":
		return nil, nil
	case "-":
		in = a.in
	default:
		f, err := os.Open(c.Checkpoint)
		if err != nil {
			return nil, rung.Errorf(rung.KindNotFound, "--checkpoint: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCheckpoint+1))
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "--checkpoint: %w", err)
	}
	if len(text) > maxCheckpoint {
		return nil, rung.Errorf(rung.KindInvalid, "--checkpoint: longer than %s", rung.FormatBytes(maxCheckpoint))
	}
	return log.ParseCheckpoint(text)
}

type logCheckpointCmd struct {
	Out string `help:"Write to a file, instead of standard output." placeholder:"FILE"`
}

// Run implements runner.
func (c *logCheckpointCmd) Run(_ context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	l, err := h.audit.MakeLog()
	if err != nil {
		return 0, err
	}
	point, err := l.Checkpoint()
	if err != nil {
		return 0, err
	}
	if c.Out == "" {
		return 0, printJSON(a.out, point)
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, rung.Errorf(rung.KindInvalid, "--out: %w", err)
	}
	err = printJSON(f, point)
	if e := f.Close(); err == nil && e != nil {
		err = rung.Errorf(rung.KindInternal, "--out: %w", e)
	}
	if err == nil {
		fmt.Fprintf(a.out, "the log is signed up to event %d; keep %s where this host cannot write\n", point.Seq, oneLine(c.Out))
	}
	return 0, err
}

type logExportCmd struct {
	OCSF    bool   `name:"ocsf" xor:"form" help:"Open Cybersecurity Schema Framework, version 1.6.0."`
	JSON    bool   `name:"json" xor:"form" help:"The lines as they are in the log (default)."`
	Sandbox string `help:"Only this sandbox." placeholder:"ID"`
	Since   moment `help:"Only newer than a time or a duration ago." placeholder:"T"`
}

// Run implements runner. What is exported is signed before, so that a collector can hold it against the log later.
func (c *logExportCmd) Run(_ context.Context, a *app) (int, error) {
	_, l, err := openLog(a)
	if rung.KindOf(err) == rung.KindNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	point, err := l.Checkpoint()
	if err != nil {
		return 0, err
	}
	source := ocsf.Source{Version: version, Log: point.Log}
	source.Host, _ = os.Hostname() // "unknown" otherwise
	out := bufio.NewWriterSize(a.out, 64<<10)
	_, err = l.Scan(log.Position{}, log.Filter{Sandbox: c.Sandbox, Since: c.Since.Time}, func(line *log.Line, text []byte) error {
		if c.OCSF {
			var err error
			if text, err = ocsf.Marshal(source, line); err != nil {
				return err
			}
		}
		_, err := out.Write(append(slices.Clip(text), '\n'))
		return err
	})
	if err = errors.Join(err, out.Flush()); err != nil {
		return 0, rung.Errorf(rung.KindInternal, "export: %w", err)
	}
	return 0, nil
}

type logPruneCmd struct {
	Before moment `required:"" help:"Remove segments of which every event is older: 90d, 2026-11-30, …" placeholder:"T"`
}

// Run implements runner.
func (c *logPruneCmd) Run(_ context.Context, a *app) (int, error) {
	_, l, err := openLog(a)
	if err != nil {
		return 0, err
	}
	p, err := l.Prune(c.Before.Time)
	if err != nil {
		return 0, err
	}
	if p.Segments == 0 {
		fmt.Fprintln(a.out, "nothing to remove: segments are removed as a whole, and the newest never")
		return 0, nil
	}
	fmt.Fprintf(a.out, "removed %d segment%s, events 1 to %d; export a new checkpoint (rung log checkpoint)\n", p.Segments, plural(int64(p.Segments)), p.Through)
	return 0, nil
}
