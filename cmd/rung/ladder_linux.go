package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/posture"
)

// ladderCmd is `rung ladder`.
type ladderCmd struct {
	JSON    bool `name:"json" help:"Print JSON."`
	Measure bool `help:"Start sandboxes of each available rung and tell start time and memory, measured here and now."`
}

// Examples implements exampler.
func (*ladderCmd) Examples() string {
	return "  rung ladder\n  rung ladder --measure --json\n"
}

// Run implements runner.
func (c *ladderCmd) Run(ctx context.Context, a *app) (int, error) {
	h, err := openHost(a)
	if err != nil {
		return 0, err
	}
	var checks []posture.Checker
	for _, r := range rung.Rungs() {
		d := h.driver(r)
		if d == nil {
			continue
		}
		checks = append(checks, posture.Checker{Rung: r, Check: func(ctx context.Context) (posture.Status, error) {
			s, err := d.Check(ctx)
			return posture.Status(s), err
		}})
	}
	var cost posture.Measure
	if c.Measure {
		cost = func(ctx context.Context, r rung.Rung) (posture.Cost, error) {
			if !c.JSON {
				a.progress("measuring %s", r)
			}
			return h.cost(ctx, r)
		}
	}
	report := posture.Ladder(ctx, checks, cost)
	a.progress("")
	if c.JSON {
		return 0, printJSON(a.out, report)
	}
	return 0, report.Text(a.out, a.style())
}

// costRuns is how many sandboxes a measurement is the median of.
const costRuns = 7

// cost starts sandboxes of a rung one after the other, from the call to the guest's first measurement.
func (h *host) cost(ctx context.Context, r rung.Rung) (posture.Cost, error) {
	tmpl, release, err := h.images.Use(ctx, "host")
	if err != nil {
		return posture.Cost{}, err
	}
	defer release()
	var starts, memory []float64
	for range costRuns {
		start, mem, err := h.costOnce(ctx, r, held.Template(tmpl))
		if err != nil {
			return posture.Cost{}, err
		}
		starts, memory = append(starts, start), append(memory, mem)
	}
	slices.Sort(starts)
	slices.Sort(memory)
	return posture.Cost{Start: rung.Millis(starts[costRuns/2]), Memory: int64(memory[costRuns/2]), Runs: costRuns}, nil
}

func (h *host) costOnce(ctx context.Context, r rung.Rung, t driver.Template) (start, memory float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	limits := rung.DefaultLimits()
	limits.Best = true // the cost is asked, not the protection
	begin := time.Now()
	in, err := h.driver(r).Create(ctx, driver.Spec{ID: newID(), Template: t, Limits: limits, Owned: true, WallClock: time.Minute})
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if e := in.Destroy(context.WithoutCancel(ctx)); err == nil {
			err = e
		}
	}()
	if _, err := client.New(in.Dial).Measure(ctx); err != nil {
		return 0, 0, err
	}
	start = float64(millis(begin))
	if m, ok := in.(driver.Meter); ok {
		u, err := m.Usage(ctx)
		return start, float64(u.Memory), err
	}
	return start, 0, nil
}

func millis(since time.Time) rung.Millis { return rung.Millis(time.Since(since).Microseconds()) / 1000 }

// whereamiCmd is `rung whereami`.
type whereamiCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Examples implements exampler.
func (*whereamiCmd) Examples() string {
	return "  rung whereami\n  docker run --rm -v $PWD/rung:/rung:ro IMAGE /rung whereami --json\n"
}

// Run implements runner. It needs nothing but this one static program, so that it can be copied into any container.
func (c *whereamiCmd) Run(_ context.Context, a *app) (int, error) {
	w := posture.Whereami(posture.Here())
	if c.JSON {
		return 0, printJSON(a.out, w)
	}
	return 0, w.Text(a.out, a.style())
}

func (a *app) style() posture.Style {
	if f, ok := a.out.(*os.File); ok {
		return posture.StyleFor(f)
	}
	return posture.Style{}
}

// progress overwrites one line on a terminal; the empty text clears it.
func (a *app) progress(format string, args ...any) {
	f, ok := a.err.(*os.File)
	if !ok || !isTerminal(f) {
		return
	}
	fmt.Fprintf(f, "\r\x1b[K"+format, args...)
}
