// Command report reads `go test -json` and prints what a person wants to know: each package's closing line, the whole
// output of what failed, and every skipped test with its reason. A skip without a reason is a failure: a test that
// silently does not run proves nothing.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	title := flag.String("title", "test", "what these tests are called in the summary")
	flag.Parse()
	r := newReport(*title)
	if err := r.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	r.summary(os.Stdout)
	if r.bad() {
		os.Exit(1)
	}
}

// event is one line of `go test -json` (see cmd/test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	FailedBuild string
}

type key struct{ pkg, test string }

type report struct {
	title  string
	output map[key][]string // of tests that have not ended, and of packages
	skips  []string
	mute   []string // skips without a reason
	failed []string
	counts map[string]int
}

func newReport(title string) *report {
	return &report{title: title, output: map[key][]string{}, counts: map[string]int{}}
}

// read takes events until the end of in; lines that are no events (a build error of an older go, a stray print) go through
// as they are.
func (r *report) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			var e event
			if json.Unmarshal([]byte(text), &e) == nil && e.Action != "" {
				r.add(e, out)
			} else {
				fmt.Fprint(out, line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event, out io.Writer) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.output[k] = append(r.output[k], e.Output)
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "build-fail":
		r.failed = append(r.failed, e.ImportPath+" (build)")
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.endPackage(e, out)
		} else {
			r.endTest(e, out)
		}
		delete(r.output, k)
	}
}

func (r *report) endTest(e event, out io.Writer) {
	r.counts[e.Action]++
	name := short(e.Package) + " " + e.Test
	lines := r.output[key{e.Package, e.Test}]
	switch e.Action {
	case "fail":
		r.failed = append(r.failed, name)
		fmt.Fprintf(out, "FAIL %s\n%s", name, strings.Join(lines, ""))
	case "skip":
		if why := reason(lines); why != "" {
			r.skips = append(r.skips, name+": "+why)
		} else {
			r.mute = append(r.mute, name)
		}
	}
}

// endPackage prints go's own closing line of the package ("ok", "FAIL", "?") and, where the package failed outside any
// test (a panic, a time-out, os.Exit in TestMain), all that was said.
func (r *report) endPackage(e event, out io.Writer) {
	lines := r.output[key{e.Package, ""}]
	if e.Action == "fail" {
		if e.FailedBuild == "" && !slices.ContainsFunc(r.failed, func(s string) bool { return strings.HasPrefix(s, short(e.Package)+" ") }) {
			r.failed = append(r.failed, short(e.Package)+" (package)")
		}
		for k, rest := range r.output {
			if k.pkg == e.Package && k.test != "" {
				fmt.Fprintf(out, "UNFINISHED %s %s\n%s", short(k.pkg), k.test, strings.Join(rest, ""))
				delete(r.output, k)
			}
		}
		fmt.Fprint(out, strings.Join(lines, ""))
		return
	}
	if n := len(lines); n > 0 {
		fmt.Fprint(out, lines[n-1])
	}
}

// location is what testing puts before a skip's text.
var location = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: ?`)

// reason joins what a skipped test said, without the framing of the testing package.
func reason(lines []string) string {
	var said []string
	for _, l := range lines {
		t := strings.TrimSpace(l)
		if strings.HasPrefix(t, "=== ") || strings.HasPrefix(t, "--- ") {
			continue
		}
		if t = strings.TrimSpace(location.ReplaceAllString(l, "")); t != "" {
			said = append(said, t)
		}
	}
	return strings.Join(said, " ")
}

func short(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, "github.com/rung-dev/rung"), "/")
}

func (r *report) bad() bool {
	return len(r.failed) > 0 || len(r.mute) > 0 || r.counts["pass"] == 0
}

// summary ends with one line in a form that needs no knowledge of Go.
func (r *report) summary(out io.Writer) {
	section := func(head string, list []string) {
		if len(list) > 0 {
			fmt.Fprintf(out, "\n%s\n  %s\n", head, strings.Join(list, "\n  "))
		}
	}
	section("skipped, and why:", r.skips)
	section("skipped without a reason (say why in t.Skip):", r.mute)
	section("failed:", r.failed)
	if len(r.skips)+len(r.mute) == 0 {
		fmt.Fprintln(out, "\nno test was skipped")
	}
	fmt.Fprintf(out, "\n%s: %d passed, %d failed, %d skipped\n", r.title, r.counts["pass"],
		len(r.failed)+len(r.mute), r.counts["skip"])
}
