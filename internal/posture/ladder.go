package posture

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/measure"
)

// Status is what a check found; it has the fields of driver.Status, so that one converts into the other.
type Status struct {
	Version string
	Notes   []string
	Limits  []string
}

// Checker asks whether this host can build a rung. An error means no: its text says why, its hint what would change it.
type Checker struct {
	Rung  rung.Rung
	Check func(context.Context) (Status, error)
}

// Cost is what one sandbox of a rung takes on this host.
type Cost struct {
	Start  rung.Millis // from the call to the first answer from inside
	Memory int64       // proportional set size of all its processes and rung's own, in bytes
	Runs   int         // how many sandboxes the numbers are the median of
}

// Measure starts sandboxes of the rung and tells their cost.
type Measure func(context.Context, rung.Rung) (Cost, error)

// checkTimeout bounds one check. A runtime that does not answer is as good as none.
const checkTimeout = 15 * time.Second

// Report is the ladder of one host.
type Report struct {
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	User   int    `json:"uid"` // rungs differ for root and others
	Rungs  []Step `json:"rungs"`
}

// Step is one rung of the report.
type Step struct {
	Rung        rung.Rung   `json:"rung"`
	Available   bool        `json:"available"`
	Why         string      `json:"why_not,omitempty"`
	Remedy      string      `json:"remedy,omitempty"`
	Version     string      `json:"version,omitempty"`
	Boundary    string      `json:"boundary"`
	EnforcedBy  string      `json:"enforced_by"`
	Use         string      `json:"use"`
	GetsOut     []string    `json:"gets_out"`
	Notes       []string    `json:"notes,omitempty"`
	Limits      []string    `json:"unenforced_limits,omitempty"`
	Start       rung.Millis `json:"start_ms,omitempty"`
	Memory      int64       `json:"memory_bytes,omitempty"`
	Runs        int         `json:"measured_runs,omitempty"`
	NotMeasured string      `json:"not_measured,omitempty"`
}

// Ladder checks all rungs at once, in the order of the ladder; one without a checker is told as not built yet. With a
// measure each available rung is then measured, one after the other so that they do not disturb each other.
func Ladder(ctx context.Context, checks []Checker, cost Measure) Report {
	self := measure.Self()
	report := Report{Kernel: clean(self.Kernel), Arch: runtime.GOARCH, User: self.UID}
	report.Rungs = make([]Step, len(rung.Rungs()))
	var wg sync.WaitGroup
	for i, r := range rung.Rungs() {
		wg.Go(func() { report.Rungs[i] = step(ctx, r, checks) })
	}
	wg.Wait()
	if cost == nil {
		return report
	}
	for i := range report.Rungs {
		report.Rungs[i].measure(ctx, cost)
	}
	return report
}

func step(ctx context.Context, r rung.Rung, checks []Checker) Step {
	f := factsOf(r)
	s := Step{Rung: r, Boundary: f.boundary, EnforcedBy: f.enforced, Use: f.use, GetsOut: f.getsOut}
	check := find(checks, r)
	if check == nil {
		s.Why, s.Remedy = "not built yet in this version", "a later version of rung"
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	status, err := check(ctx)
	s.Version = clean(status.Version)
	for _, n := range status.Notes {
		s.Notes = append(s.Notes, clean(n))
	}
	for _, l := range status.Limits {
		s.Limits = append(s.Limits, clean(l))
	}
	if err != nil {
		s.Why, s.Remedy = clean(err.Error()), clean(rung.HintOf(err))
		return s
	}
	s.Available = true
	return s
}

func find(checks []Checker, r rung.Rung) func(context.Context) (Status, error) {
	for _, c := range checks {
		if c.Rung == r {
			return c.Check
		}
	}
	return nil
}

func (s *Step) measure(ctx context.Context, cost Measure) {
	if !s.Available {
		return
	}
	c, err := cost(ctx, s.Rung)
	if err != nil {
		s.NotMeasured = clean(err.Error())
		return
	}
	s.Start, s.Memory, s.Runs = c.Start, c.Memory, c.Runs
}
