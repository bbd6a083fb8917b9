// Command gate measures rung's gate for bench/gate.sh, which starts it in an empty network namespace of its own. The
// outside is played there by bench/gate/standin on documentation addresses; the client is the same program everywhere,
// bench/gate/inside. Peers are slirp4netns and pasta for bytes and connections, and goproxy for opened TLS.
//
// Everything is measured in rounds, all contenders in random order in each, for a fixed time or count.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung/bench/results"
)

type options struct {
	programs, bin, machine, into, only string
	rounds                             int
	d                                  time.Duration
	conns, starts, idle                int
}

func main() {
	var o options
	flag.StringVar(&o.programs, "programs", "", "folder with inside, standin and mitm")
	flag.StringVar(&o.bin, "bin", "bin", "folder of rung's programs")
	flag.StringVar(&o.machine, "machine", "", "file with the text above the tables")
	flag.StringVar(&o.into, "into", "", "Markdown file whose section is replaced; empty: none")
	flag.StringVar(&o.only, "only", "", "comma-separated parts instead of all: bytes, connections, web, memory, load, start")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds over all contenders, in random order")
	flag.DurationVar(&o.d, "for", 2*time.Second, "time of one transfer or load")
	flag.IntVar(&o.conns, "connections", 500, "new connections of one measurement")
	flag.IntVar(&o.starts, "starts", 5, "starts of one measurement")
	flag.IntVar(&o.idle, "idle", 50, "idle sandboxes for the memory of one")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

// part is one of the questions.
type part struct {
	name   string
	title  string
	runs   func(*world) []measurement
	report func(*samples) string
}

func parts() []part {
	return []part{
		{"bytes", "One TCP connection, Gbit/s", bytesRuns, bytesReport},
		{"connections", "A new connection, until one byte is back", connectionRuns, connectionReport},
		{"web", "HTTPS opened on its way", webRuns, webReport},
		{"memory", "Memory of the gate", memoryRuns, memoryReport},
		{"load", "An allowed flow beside 1,000 rules and 10,000 denied lookups/s", loadRuns, loadReport},
		{"start", "`rung run … true` with the default network, the gate running", startRuns, startReport},
	}
}

// measurement is one contender in one part, and what it adds to the samples.
type measurement struct {
	name string
	do   func() (map[string]float64, error)
}

// samples are all numbers by contender and what was measured.
type samples struct {
	of     map[string][]float64
	failed int
}

// maxFailed measurements of a part may fail before it is given up; those that did are told below its table.
const maxFailed = 3

func (s *samples) add(name string, n map[string]float64) {
	for k, v := range n {
		s.of[name+" "+k] = append(s.of[name+" "+k], v)
	}
}

func (s *samples) sorted(key string) []float64 { return slices.Sorted(slices.Values(s.of[key])) }

func (s *samples) median(key string) float64 { return results.Median(s.sorted(key)) }

func run(o options) error {
	w, err := newWorld(o)
	if err != nil {
		return err
	}
	defer w.close()
	var text strings.Builder
	intro, err := os.ReadFile(o.machine)
	if err != nil {
		return err
	}
	began := loadAverage()
	var failures []error
	for _, p := range parts() {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), p.name) {
			continue
		}
		s, err := measure(w, p)
		failures = append(failures, err)
		fmt.Fprintf(&text, "\n### %s\n\n%s", p.title, p.report(s))
		if s.failed > 0 {
			fmt.Fprintf(&text, "\n%d measurements failed and are not in the table.\n", s.failed)
		}
	}
	body := fmt.Sprintf("%s%d rounds in random order, transfers and loads of %s; medians (min–max). Load average of the machine before %s, after %s%s. `make bench-gate`.\n%s",
		intro, o.rounds, o.d, began, loadAverage(), busy(began), text.String())
	fmt.Print("\n", body)
	if err := errors.Join(failures...); err != nil || o.only != "" {
		return err // a part is not a result
	}
	return results.Replace(o.into, "gate", "The gate", body)
}

func measure(w *world, p part) (*samples, error) {
	s := &samples{of: map[string][]float64{}}
	runs := p.runs(w)
	for round := range w.rounds {
		rand.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		for _, m := range runs {
			n, err := m.do()
			if err != nil {
				err = fmt.Errorf("%s: %s: %w", p.name, m.name, err)
				fmt.Fprintln(os.Stderr, err)
				if s.failed++; s.failed > maxFailed {
					return s, err
				}
				continue
			}
			s.add(m.name, n)
			fmt.Fprintf(os.Stderr, "%s %d/%d: %s:", p.name, round+1, w.rounds, m.name)
			for _, k := range slices.Sorted(maps.Keys(n)) {
				fmt.Fprintf(os.Stderr, " %s %s", k, short(n[k]))
			}
			fmt.Fprintln(os.Stderr)
		}
	}
	return s, nil
}

// busy says what a load means that the benchmark did not make.
func busy(load string) string {
	if v, err := strconv.ParseFloat(load, 64); err == nil && v > float64(runtime.NumCPU()) {
		return fmt.Sprintf(": **other programs had the %d processors too, so the figures say little, and the verdicts less**", runtime.NumCPU())
	}
	return ""
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}
