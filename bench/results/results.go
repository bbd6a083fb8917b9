// Package results keeps RESULTS.md: every benchmark owns one section of it and replaces only that.
package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const head = "# Results\n\nMeasured by the scripts in this folder; each section says when and on what machine. Compare figures inside one table,\nnever across machines or days.\n"

// Replace puts body between the section's markers in the file at path, adding section and file where they are missing. An
// empty path does nothing.
func Replace(path, name, title, body string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte(head), nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(replaced(string(data), name, title, body)), 0o644)
}

func replaced(text, name, title, body string) string {
	begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- end of %s -->\n", name)
	section := begin + "## " + title + "\n\n" + strings.TrimSpace(body) + "\n" + end
	if before, rest, ok := strings.Cut(text, begin); ok {
		if _, after, ok := strings.Cut(rest, end); ok {
			return before + section + after
		}
	}
	return strings.TrimRight(text, "\n") + "\n\n" + section
}

// Median of sorted values; 0 of none.
func Median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
