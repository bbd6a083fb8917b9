package main

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/rung-dev/rung"
)

// printJSON writes one value as one line, readable by people and programs alike: no HTML escapes.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return rung.Errorf(rung.KindInternal, "write the result: %w", err)
	}
	return nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}

func plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}
