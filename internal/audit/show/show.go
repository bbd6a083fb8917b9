// Package show turns the event log into text for people: a table of events, and what a verification found.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

// Printer prints events as lines of a table, or as they are.
type Printer struct {
	Out    io.Writer
	JSON   bool // the lines themselves
	Colour bool
	begun  bool
}

// Width is that of the widest row of the table.
const Width = 100

// Print prints one event; it is a log.Visit.
func (p *Printer) Print(line *log.Line, text []byte) error {
	if p.JSON {
		if _, err := fmt.Fprintf(p.Out, "%s\n", text); err != nil {
			return rung.Errorf(rung.KindInternal, "write: %w", err)
		}
		return nil
	}
	if !p.begun {
		p.begun = true
		fmt.Fprintf(p.Out, "%-20s %-14s %-5s %-17s %s\n", "TIME", "KIND", "", "SANDBOX", "WHAT")
	}
	decision := line.Decision
	if decision == log.Info {
		decision = ""
	}
	row := fmt.Sprintf("%-20s %-14s %-5s %-17s %s", line.Time.UTC().Format("2006-01-02 15:04:05Z"),
		fit(line.Kind, 14), fit(decision, 5), fit(line.Sandbox, 17), what(line))
	row = strings.TrimRight(fit(row, Width), " ")
	if colour := severityColour(line); p.Colour && colour != "" {
		row = colour + row + "\x1b[0m"
	}
	if _, err := fmt.Fprintln(p.Out, row); err != nil {
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
	add("%s", field("pinned"))
	add("%s", field("accepted"))
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

// maxFinding bounds a finding, which may quote the log.
const maxFinding = 300

// Report says what verify found, and what it could not know.
func Report(w io.Writer, r *log.Report, anchor *log.Checkpoint) {
	for _, f := range r.Findings {
		where := ""
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d: ", f.Segment, f.Line)
		}
		fmt.Fprintf(w, "TAMPERED: %s%s\n", where, fit(f.What, maxFinding))
	}
	if r.More > 0 {
		fmt.Fprintf(w, "TAMPERED: and %d more\n", r.More)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", fit(n, maxFinding))
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
