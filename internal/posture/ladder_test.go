package posture

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
)

func checks() []Checker {
	return []Checker{
		{rung.None, func(context.Context) (Status, error) { return Status{}, nil }},
		{rung.Hardened, func(context.Context) (Status, error) {
			return Status{Version: "crun 1.8.1", Notes: []string{"no LSM"}, Limits: []string{"cpu: no controller; delegate it"}}, nil
		}},
		{rung.GVisor, func(context.Context) (Status, error) {
			return Status{}, rung.Errorf(rung.KindUnavailable, "runsc is missing\x1b[2J").WithHint("make bin/runsc")
		}},
	}
}

func TestLadder(t *testing.T) {
	cost := func(_ context.Context, r rung.Rung) (Cost, error) {
		if r == rung.None {
			return Cost{}, errors.New("no time")
		}
		return Cost{Start: 8.25, Memory: 6 << 20, Runs: 5}, nil
	}
	report := Ladder(t.Context(), checks(), cost)
	if len(report.Rungs) != len(rung.Rungs()) {
		t.Fatalf("%d rungs", len(report.Rungs))
	}
	for i, s := range report.Rungs {
		if s.Rung != rung.Rungs()[i] || s.Boundary == "" || s.EnforcedBy == "" || s.Use == "" || len(s.GetsOut) == 0 {
			t.Errorf("incomplete: %+v", s)
		}
		if available := s.Rung == rung.None || s.Rung == rung.Hardened; s.Available != available || available == (s.Why != "") {
			t.Errorf("%s: available %v, why %q", s.Rung, s.Available, s.Why)
		}
	}
	var text strings.Builder
	if err := report.Text(&text, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"not here: runsc is missing?[2J", "remedy: make bin/runsc", "crun 1.8.1", "start 8.2 ms, 6 MiB per sandbox",
		"not measured: no time", "weaker here: no LSM", "not limited: cpu", "not built yet in this version",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, text.String())
		}
	}
	for line := range strings.Lines(text.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 || strings.HasSuffix(line, " \n") {
			t.Errorf("%d columns or space at the end: %q", n, line)
		}
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Error("escape characters without colour")
	}
	checkJSON(t, report)
}

func checkJSON(t *testing.T, report Report) {
	t.Helper()
	raw, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"rung":"hardened","available":true`, `"start_ms":8.25`, `"why_not":"runsc is missing?[2J"`} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("JSON lacks %s: %s", part, raw)
		}
	}
}

func TestLadderUnmeasuredAndColoured(t *testing.T) {
	report := Ladder(t.Context(), checks(), nil)
	var text strings.Builder
	if err := report.Text(&text, Style{Colour: true, Width: 80}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), string(green)) || strings.Contains(text.String(), "measured:") {
		t.Errorf("%q", text.String())
	}
}

// A runtime that hangs is given up, and the others are still told.
func TestLadderHonoursTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hangs := Checker{rung.GVisor, func(ctx context.Context) (Status, error) {
		cancel()
		<-ctx.Done()
		return Status{}, ctx.Err()
	}}
	report := Ladder(ctx, []Checker{hangs}, nil)
	if s := report.Rungs[4]; s.Available || s.Why == "" {
		t.Errorf("%+v", s)
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"a b c":         "a b c",
		"aaaa bbbb cc":  "aaaa|bbbb|cc",
		"aaaaaaaaaaa b": "aaaaaa|aaaaa|b",
		"éééé éé":       "éééé|éé",
	} {
		if got := strings.Join(wrap(text, 6), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
