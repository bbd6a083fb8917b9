package posture

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// Columns of the ladder's table. The last one takes the rest of the line.
const (
	rungColumn = 11
	hereColumn = 5
	withColumn = 15
	textIndent = rungColumn + hereColumn + withColumn
)

// Text prints the ladder, strongest rung on top as on a ladder.
func (r Report) Text(w io.Writer, style Style) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "Linux %s on %s, uid %d\n\n", r.Kernel, r.Arch, r.User)
	head := column("RUNG", rungColumn) + column("HERE", hereColumn) + column("WITH", withColumn) + "BOUNDARY"
	fmt.Fprintln(b, style.paint(bold, head))
	for _, v := range slices.Backward(r.Rungs) {
		v.text(b, style)
	}
	fmt.Fprintln(b, "\n"+style.paint(bold, "out of every rung"))
	for _, text := range everywhere {
		bullet := "- "
		for _, line := range wrap(text, style.width()-len(bullet)) {
			fmt.Fprintln(b, bullet+line)
			bullet = "  "
		}
	}
	return b.Flush() // the first write error, if any
}

func (s Step) text(b *bufio.Writer, style Style) {
	here, shade := "yes", green
	switch {
	case !s.Available:
		here, shade = "no", red
	case len(s.Limits) > 0 || len(s.Notes) > 0:
		shade = yellow
	}
	lines := s.lines(style.width() - textIndent)
	for i, line := range lines {
		if i > 0 {
			fmt.Fprintln(b, strings.Repeat(" ", textIndent)+line)
			continue
		}
		fmt.Fprintln(b, style.paint(bold, column(string(s.Rung), rungColumn))+style.paint(shade, column(here, hereColumn))+
			column(s.runtime(), withColumn-1)+" "+line)
	}
}

func (s Step) runtime() string {
	if s.Version == "" {
		return "-"
	}
	return strings.Replace(s.Version, " version ", " ", 1)
}

// lines are the texts of the last column, each item hanging under its label.
func (s Step) lines(width int) []string {
	lines := wrap(s.Boundary+"; enforced by "+s.EnforcedBy, width)
	add := func(label, text string) {
		for i, line := range wrap(text, width-len(label)) {
			if i > 0 {
				label = strings.Repeat(" ", len(label))
			}
			lines = append(lines, label+line)
		}
	}
	if s.Why != "" {
		add("not here: ", s.Why)
	}
	if s.Remedy != "" {
		add("remedy: ", s.Remedy)
	}
	if s.Runs > 0 {
		add("measured: ", fmt.Sprintf("start %v, %s per sandbox, median of %d", s.Start, rung.FormatBytes(s.Memory), s.Runs))
	}
	if s.NotMeasured != "" {
		add("not measured: ", s.NotMeasured)
	}
	label := "gets out: "
	for _, text := range s.GetsOut {
		if !slices.Contains(everywhere, text) { // told once, below the table
			add(label+"- ", text)
			label = strings.Repeat(" ", len(label))
		}
	}
	for _, text := range s.Notes {
		add("weaker here: ", text)
	}
	for _, text := range s.Limits {
		add("not limited: ", text)
	}
	return lines
}
