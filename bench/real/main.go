// Command real runs HumanEval, 164 small Python programs with their own tests, each as its own sandbox: on every rung of
// this machine, and on bare crun and runsc for comparison. A program passes when it exits with 0. It prints passes and
// runs per second, updates RESULTS.md, and exits with 1 unless every rung passed every program in every round.
//
// The data is not part of the repository: -data or RUNG_HUMANEVAL names HumanEval.jsonl.gz (the file of that name from
// github.com/openai/human-eval); without either, a folder named shared/data beside the repository is tried.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung/bench/results"
)

type options struct {
	data, bin, template, egress, only, into, dir string
	jobs, rounds, limit                          int
	timeout                                      time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.data, "data", os.Getenv("RUNG_HUMANEVAL"), "HumanEval.jsonl.gz")
	flag.StringVar(&o.bin, "bin", "bin", "folder of rung and runsc")
	flag.StringVar(&o.template, "template", "host", "template of the rungs; the bare runtimes get the same tree only with host")
	flag.StringVar(&o.egress, "egress", "none", "network of the rungs; the bare runtimes have none")
	flag.StringVar(&o.only, "only", "", "comma-separated contenders instead of all")
	flag.StringVar(&o.into, "into", "bench/RESULTS.md", "Markdown file whose section is replaced; empty: none")
	flag.StringVar(&o.dir, "dir", "", "folder with the programs (used by the program itself)")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "sandboxes at once")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds over all contenders, in random order")
	flag.IntVar(&o.limit, "limit", 0, "only the first N programs (for a quick look; always exits with 1)")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Minute, "bound on one run")
	flag.Parse()
	if o.dir != "" { // re-executed for one contender, see isolated
		one(o)
		return
	}
	ok, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(o options) (bool, error) {
	programs, err := load(o)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "rung-real-")
	if err != nil {
		return false, err
	}
	defer func() {
		// Bare runsc leaves an empty network namespace mounted in its state.
		_ = syscall.Unmount(filepath.Join(dir, "root-runsc", "null-netns"), 0) // fails where there is none
		_ = os.RemoveAll(dir)                                                  // what stays is in the temporary folder
	}()
	if err := unpack(dir, programs); err != nil {
		return false, err
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return false, err
	}
	all, err := contenders(o, dir)
	if err != nil {
		return false, err
	}
	tally := map[string][]result{}
	for round := range o.rounds {
		order := slices.Clone(all)
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, c := range order {
			r, err := measure(o, dir, c)
			if err != nil && !c.rung { // a peer that this user cannot run leaves its column empty
				fmt.Printf("round %d  %-15s not measured: %v\n", round+1, c.name, err)
				continue
			}
			if err != nil {
				r = result{Total: len(programs), Seconds: 1, Failures: []string{err.Error()}}
			}
			fmt.Printf("round %d  %-15s %3d of %d passed  %6.1f runs/s\n", round+1, c.name, r.Passed, r.Total, r.rate())
			for _, f := range r.Failures {
				fmt.Println("   ", f)
			}
			tally[c.name] = append(tally[c.name], r)
		}
	}
	return report(o, all, tally, len(programs))
}

// result of one contender in one round.
type result struct {
	Passed, Total int
	Seconds       float64
	Failures      []string
}

func (r result) rate() float64 { return float64(r.Total) / r.Seconds }

// measure runs the contender here or, where it needs a mount namespace of its own, in a re-executed copy of this program.
func measure(o options, dir string, c contender) (result, error) {
	if !c.hideV2 {
		return runAll(o, dir, c)
	}
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	mountpoint := strayCgroup2()
	args := []string{"-m", "--propagation", "private", "bash", "-c", `umount "$0" && exec "$@"`, mountpoint, self}
	args = append(args, "-dir", dir, "-egress", o.egress, "-bin", o.bin, "-only", c.name, "-jobs", fmt.Sprint(o.jobs), "-timeout", o.timeout.String(), "-template", o.template)
	out, err := exec.Command("unshare", args...).Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(e.Stderr))
		}
		return result{}, err
	}
	var r result
	return r, json.Unmarshal(out, &r)
}

// one is the re-executed copy: one contender, its result as JSON.
func one(o options) {
	err := func() error {
		all, err := contenders(o, o.dir)
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("no contender %q", o.only)
		}
		r, err := runAll(o, o.dir, all[0])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

func report(o options, all []contender, tally map[string][]result, total int) (bool, error) {
	var b strings.Builder
	machine, err := exec.CommandContext(context.Background(), "bench/machine.sh").Output()
	if err != nil {
		machine = []byte(err.Error())
	}
	fmt.Fprintf(&b, "%sTemplate `%s`, egress %s (the bare runtimes have none); %d at once; %d rounds in random order, runs/s is the median. `make real`.\n\n", machine, o.template, o.egress, o.jobs, o.rounds)
	b.WriteString("| | passed | runs/s | ratio | goal |\n|---|---|---|---|---|\n")
	ok := total == humanEval && o.limit == 0
	rates := map[string]float64{}
	for _, c := range all {
		passed, list := total, []float64{}
		if len(tally[c.name]) == 0 {
			passed = 0
		}
		for _, r := range tally[c.name] {
			passed, list = min(passed, r.Passed), append(list, r.rate())
		}
		slices.Sort(list)
		rates[c.name] = results.Median(list)
		ok = ok && (passed == total || c.peer == "" && !c.rung)
		ratio, goal := "", ""
		if peer := rates[c.peer]; peer > 0 {
			ratio = fmt.Sprintf("%.2f × %s", rates[c.name]/peer, c.peer)
			if c.goal > 0 {
				goal = fmt.Sprintf("≥ %.1f: %s", c.goal, map[bool]string{true: "reached", false: "**missed**"}[rates[c.name] >= c.goal*peer])
			}
		}
		fmt.Fprintf(&b, "| %s | %d of %d | %.1f | %s | %s |\n", c.name, passed, total, rates[c.name], ratio, goal)
	}
	fmt.Print("\n", b.String())
	if o.limit > 0 || o.only != "" {
		return ok, nil // a part is not a result
	}
	return ok, results.Replace(o.into, "real", "Real programs: HumanEval", b.String())
}
