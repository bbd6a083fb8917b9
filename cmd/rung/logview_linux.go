package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
	"github.com/rung-dev/rung/internal/audit/ocsf"
)

// logPrinter prints events as lines of a table, or as they are.
type logPrinter struct {
	out          io.Writer
	json, colour bool
	begun        bool
}

// logWidth is the widest line of the table.
const logWidth = 100

func (p *logPrinter) print(line *log.Line, text []byte) error {
	if p.json {
		if _, err := fmt.Fprintf(p.out, "%s\n", text); err != nil {
			return rung.Errorf(rung.KindInternal, "write: %w", err)
		}
		return nil
	}
	if !p.begun {
		p.begun = true
		fmt.Fprintf(p.out, "%-20s %-14s %-5s %-17s %s\n", "TIME", "KIND", "", "SANDBOX", "WHAT")
	}
	decision := line.Decision
	if decision == log.Info {
		decision = ""
	}
	row := fmt.Sprintf("%-20s %-14s %-5s %-17s %s", line.Time.UTC().Format("2006-01-02 15:04:05Z"),
		fit(line.Kind, 14), fit(decision, 5), fit(line.Sandbox, 17), what(line))
	row = strings.TrimRight(fit(row, logWidth), " ")
	if colour := severityColour(line); p.colour && colour != "" {
		row = colour + row + "\x1b[0m"
	}
	if _, err := fmt.Fprintln(p.out, row); err != nil {
		return rung.Errorf(rung.KindInternal, "write: %w", err)
	}
	return nil
}

func severityColour(line *log.Line) string {
	switch {
	case line.Severity == log.High, line.Severity == log.Critical:
		return "\x1b[1;31m"
	case line.Decision == log.Deny:
		return "\x1b[31m"
	case line.Decision == log.Info:
		return "\x1b[2m"
	}
	return ""
}

// what tells in one piece what an event is about, the telling parts first: the row is cut at its end.
func what(line *log.Line) string {
	field := func(name string) string {
		switch v := line.Fields[name].(type) {
		case string:
			return v
		case json.Number:
			return v.String()
		}
		return ""
	}
	var parts []string
	add := func(format string, v string) {
		if v != "" {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	if line.Severity == log.High || line.Severity == log.Critical {
		add("%s:", strings.ToUpper(line.Severity))
	}
	add("%s", field("layer"))
	add("%s", field("request"))
	target := field("host")
	if target == "" {
		target = field("address")
	}
	if port := field("port"); target != "" && port != "" {
		target += ":" + port
	}
	add("%s", target)
	add("%s", field("syscall"))
	add("by %s", field("process"))
	add("%s", field("name"))
	add("%s", field("rung"))
	add("exit %s", field("exit_code"))
	if reason := field("exit_reason"); reason != "exited" {
		add("(%s)", reason)
	}
	if n := field("count"); n != "1" {
		add("%s times", n)
	}
	add("covers %s", field("covers"))
	add("rule %s", line.Rule)
	add("%s", line.Reason)
	add("agent %s", line.Agent)
	if line.Cut {
		parts = append(parts, "(cut)")
	}
	return strings.Join(parts, " ")
}

// fit makes any text printable ASCII of at most n characters, so that a hostile name can neither move the cursor nor the
// columns.
func fit(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() > n {
			break
		}
		switch {
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if b.Len() <= n {
		return b.String()
	}
	return b.String()[:n-1] + ">"
}

// tellReport says what verify found, and what it could not know.
func tellReport(w io.Writer, r *log.Report, anchor *log.Checkpoint) {
	for _, f := range r.Findings {
		where := ""
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d: ", f.Segment, f.Line)
		}
		fmt.Fprintf(w, "TAMPERED: %s%s\n", where, oneLine(f.What))
	}
	if r.More > 0 {
		fmt.Fprintf(w, "TAMPERED: and %d more\n", r.More)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", oneLine(n))
	}
	if r.Pruned > 0 && r.OK {
		fmt.Fprintf(w, "pruned: events 1 to %d were removed on request, as a signed event says\n", r.Pruned)
	}
	if !r.OK {
		return
	}
	rest := "all is signed"
	if r.Unsigned > 0 {
		rest = fmt.Sprintf("the newest %d are not signed yet", r.Unsigned)
	}
	fmt.Fprintf(w, "ok: events %d to %d are chained, %d signed ones are genuine; %s\n", r.First, r.Last, r.Checkpoints, rest)
	switch {
	case r.Anchored:
		fmt.Fprintf(w, "anchored: nothing up to event %d was changed since the checkpoint of %s\n", anchor.Seq, anchor.Time.Format("2006-01-02 15:04:05Z"))
	case anchor != nil:
		fmt.Fprintln(w, "not anchored: the checkpoint covers nothing that is still here")
	default:
		fmt.Fprintln(w, "not anchored: without an exported checkpoint, a cut end or a log rewritten with the key would not show")
	}
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
		_, err := out.Write(append(text[:len(text):len(text)], '\n'))
		return err
	})
	if err = errors.Join(err, out.Flush()); err != nil {
		return 0, rung.Errorf(rung.KindInternal, "export: %w", err)
	}
	return 0, nil
}
