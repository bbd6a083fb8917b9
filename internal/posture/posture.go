// Package posture answers two questions about isolation. Ladder: which rungs can this host build, what is each boundary, and
// what still gets out of it? Whereami: on which rung does this very process stand, and what lowers it?
//
// Whereami is the same question asked from inside a wall somebody else built, so it trusts nothing it reads for its form,
// changes nothing, sends nothing (it connects to sockets and opens files, and closes both), and says what it could not
// find out. Its answer is the minimum over all findings, not the name of the tool that built the wall.
//
// The package imports no driver: cmd hands in what to check.
package posture

import (
	"os"
	"strings"
	"unicode"
)

// Style says how to print. The zero value is plain and 100 columns wide.
type Style struct {
	Colour bool
	Width  int // 0: 100
}

// StyleFor is the style for a file: colour only on a terminal that wants it (https://no-color.org).
func StyleFor(f *os.File) Style {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return Style{Colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s Style) width() int {
	if s.Width <= 0 {
		return 100
	}
	return s.Width
}

type colour string

const (
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	red    colour = "\x1b[31m"
	bold   colour = "\x1b[1m"
)

func (s Style) paint(c colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return string(c) + text + "\x1b[0m"
}

// longest is the most that is printed of one text from outside.
const longest = 400

// clean makes a text from a runtime or a container fit for one line of a terminal: no control characters, which could
// repaint the screen, and no endless length.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// wrap breaks a text into lines of at most width columns at spaces; a longer word has a line of its own and is cut.
func wrap(text string, width int) []string {
	var lines []string
	line, columns := "", 0
	for word := range strings.FieldsSeq(text) {
		runes := []rune(word)
		for len(runes) > width { // no such words in our own texts
			if line != "" {
				lines, line, columns = append(lines, line), "", 0
			}
			lines, runes = append(lines, string(runes[:width])), runes[width:]
		}
		if line != "" && columns+1+len(runes) > width {
			lines, line, columns = append(lines, line), "", 0
		}
		if line != "" {
			line, columns = line+" ", columns+1
		}
		line, columns = line+string(runes), columns+len(runes)
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// column pads a short text to a width; a longer one is cut.
func column(text string, width int) string {
	runes := []rune(text)
	if len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text + strings.Repeat(" ", width-len(runes))
}
