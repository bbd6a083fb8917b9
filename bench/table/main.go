// Command table turns the raw files of bench/start.sh (hyperfine's JSON, named PROGRAM.NAME.ROUND.json) into the table of
// start times, prints it, and puts it into its section of RESULTS.md. With -section it puts a finished text there instead.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rung-dev/rung/bench/results"
)

// row is one contender: the peer it is measured against and how much slower it may be.
type row struct {
	name, peer string
	goal       float64
}

var rows = []row{
	{"host", "", 0},
	{"bwrap", "", 0},
	{"rung process", "bwrap", 2},
	{"crun", "", 0},
	{"runc", "", 0},
	{"rung container", "crun", 2},
	{"rung hardened", "crun", 2},
	{"runsc", "", 0},
	{"rung gvisor", "runsc", 1.5},
}

var programs = []string{"true", "python"}

func main() {
	intro := flag.String("intro", "", "file with the text above the table")
	into := flag.String("into", "", "Markdown file whose section is replaced")
	section := flag.String("section", "", "name of the section for the text of -intro as it is")
	title := flag.String("title", "", "title of that section")
	flag.Parse()
	do := func() error { return run(*intro, *into, flag.Arg(0)) }
	if *section != "" {
		do = func() error { return put(*intro, *into, *section, *title) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func put(intro, into, section, title string) error {
	text, err := os.ReadFile(intro)
	if err != nil {
		return err
	}
	return results.Replace(into, section, title, string(text))
}

func run(intro, into, dir string) error {
	times, err := load(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(intro)
	if err != nil {
		return err
	}
	section := string(text) + "\n" + render(times)
	fmt.Print("\n", section)
	return results.Replace(into, "start", "Start time", section)
}

// key is a program and a contender.
type key struct{ program, name string }

// load collects the times in milliseconds of all rounds.
func load(dir string) (map[key][]float64, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	times := map[key][]float64{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		var file struct {
			Results []struct {
				Command string    `json:"command"`
				Times   []float64 `json:"times"`
			} `json:"results"`
		}
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		program, _, _ := strings.Cut(filepath.Base(p), ".")
		for _, r := range file.Results {
			k := key{program, r.Command}
			for _, t := range r.Times {
				times[k] = append(times[k], t*1000)
			}
		}
	}
	for _, v := range times {
		slices.Sort(v)
	}
	return times, nil
}

func render(times map[key][]float64) string {
	var b strings.Builder
	b.WriteString("| start to exit, ms | `true` median (min–max) | ratio | `python3 -c 'print(1)'` median (min–max) | ratio | goal for `true` |\n")
	b.WriteString("|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s ", r.name)
		for _, p := range programs {
			fmt.Fprintf(&b, "| %s | %s ", spread(times[key{p, r.name}]), ratio(times, p, r))
		}
		fmt.Fprintf(&b, "| %s |\n", verdict(times, r))
	}
	return b.String()
}

func spread(sorted []float64) string {
	if len(sorted) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f (%.1f–%.1f)", results.Median(sorted), sorted[0], sorted[len(sorted)-1])
}

func factor(times map[key][]float64, program string, r row) float64 {
	own, peer := times[key{program, r.name}], times[key{program, r.peer}]
	if len(own) == 0 || len(peer) == 0 {
		return 0
	}
	return results.Median(own) / results.Median(peer)
}

func ratio(times map[key][]float64, program string, r row) string {
	if f := factor(times, program, r); f > 0 {
		return fmt.Sprintf("%.2f × %s", f, r.peer)
	}
	return ""
}

func verdict(times map[key][]float64, r row) string {
	f := factor(times, "true", r)
	switch {
	case r.goal == 0:
		return ""
	case f == 0:
		return fmt.Sprintf("≤ %.1f × %s: not measured", r.goal, r.peer)
	case f <= r.goal:
		return fmt.Sprintf("≤ %.1f × %s: reached", r.goal, r.peer)
	default:
		return fmt.Sprintf("≤ %.1f × %s: **missed**", r.goal, r.peer)
	}
}
