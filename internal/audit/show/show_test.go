package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung/internal/audit/log"
)

// Whatever an event says, its row is one line of printable ASCII that fits the width.
func TestTable(t *testing.T) {
	hostile := "\x1b[2J\r\nevil\u202e\u009b\xff\U0001f600" + strings.Repeat("w", 300)
	for _, e := range []log.Entry{
		{Kind: hostile, Sandbox: hostile, Agent: hostile, Rule: hostile, Reason: hostile, Decision: hostile, Severity: hostile},
		{Kind: "net", Decision: log.Deny, Severity: log.High, Fields: map[string]any{"host": hostile, "request": hostile, "port": json.Number(hostile)}},
		{Kind: "x", Fields: map[string]any{"host": 1.5, "count": json.Number("7")}},
	} {
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			p := &Printer{Out: &out, Colour: colour, begun: true}
			if err := p.Print(&log.Line{Entry: e, Cut: true}, nil); err != nil {
				t.Fatal(err)
			}
			row := strings.TrimSuffix(out.String(), "\n")
			if c := severityColour(&log.Line{Entry: e}); colour && c != "" {
				if !strings.HasPrefix(row, c) {
					t.Errorf("no colour: %q", row)
				}
				row = strings.TrimSuffix(strings.TrimPrefix(row, c), "\x1b[0m")
			}
			if len(row) > Width || strings.ContainsFunc(row, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%d: %q", len(row), row)
			}
		}
	}
}

func TestRow(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Out: &out}
	line := &log.Line{Time: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), Entry: log.Entry{
		Kind: "net", Sandbox: "r1", Decision: log.Deny, Severity: log.High, Rule: "web", Reason: "why",
		Fields: map[string]any{"layer": "tcp", "host": "x.example", "port": json.Number("443"), "count": json.Number("3")},
	}}
	if err := p.Print(line, nil); err != nil {
		t.Fatal(err)
	}
	want := "TIME                 KIND                 SANDBOX           WHAT\n" +
		"2026-11-30 01:02:03Z net            deny  r1                HIGH: tcp x.example:443 3 times rule we>\n"
	if got := out.String(); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}

func TestReport(t *testing.T) {
	point := &log.Checkpoint{Seq: 3}
	for _, c := range []struct {
		r      log.Report
		anchor *log.Checkpoint
		want   []string
	}{
		{log.Report{OK: true, First: 1, Last: 9, Unsigned: 2}, nil, []string{"ok: events 1 to 9", "newest 2 are not", "not anchored: without"}},
		{log.Report{OK: true, Anchored: true, Pruned: 4}, point, []string{"pruned: events 1 to 4", "all is signed", "anchored: nothing up to event 3"}},
		{log.Report{OK: true, Notes: []string{"n\x1b"}}, point, []string{"note: n\\u001b\n", "not anchored: the checkpoint covers nothing"}},
		{log.Report{Findings: []log.Finding{{Segment: "s", Line: 4, What: "gone"}, {What: "cut"}}, More: 7}, nil, []string{"TAMPERED: s:4: gone\nTAMPERED: cut\nTAMPERED: and 7 more\n"}},
	} {
		var out bytes.Buffer
		Report(&out, &c.r, c.anchor)
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("no %q in\n%s", w, out.String())
			}
		}
	}
}
