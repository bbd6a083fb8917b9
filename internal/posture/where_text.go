package posture

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/rung-dev/rung"
)

const labelColumn = 12

// Text prints the answer: the sentence first, then what it rests on.
func (w Where) Text(out io.Writer, style Style) error {
	b := bufio.NewWriter(out)
	fmt.Fprintln(b, style.paint(bold, "rung "+string(w.Rung))+w.sentence())
	section := func(label string, shade colour, texts []string) {
		for _, text := range texts {
			for i, line := range wrap(text, style.width()-labelColumn) {
				if i > 0 {
					label = ""
				}
				fmt.Fprintln(b, style.paint(shade, column(label, labelColumn))+line)
			}
			label = ""
		}
	}
	section("because", green, w.Because)
	section("lowered by", red, texts(w.LoweredBy))
	section("holes", yellow, texts(w.Holes))
	section("unknown", "", w.Unknown)
	return b.Flush() // the first write error, if any
}

func (w Where) sentence() string {
	switch {
	case len(w.LoweredBy) > 0:
		return fmt.Sprintf(": built as %s, lowered by %s", w.Base, count(len(w.LoweredBy), "finding"))
	case w.Rung == rung.None:
		return ": nothing stands between this process and the machine"
	}
	return ""
}

func count(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return itoa(n) + " " + noun + "s"
}

func texts(list []Finding) []string {
	out := make([]string, len(list))
	for i, f := range list {
		out[i] = strings.TrimSpace(f.Text + " [" + f.ID + "]")
		if f.To != "" {
			out[i] = string(f.To) + ": " + out[i]
		}
	}
	return out
}
