// Package lang knows the languages of `rung run --lang`: which interpreter runs a file, and which languages need a step
// before that.
package lang

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

// Language is one that rung runs by name.
type Language struct {
	Name        string
	Interpreter []string // the command before the file's name
	Ext         string   // of a file made from --code or standard input
	Strip       bool     // types are stripped first; the result is JavaScript
	exts        []string
}

// The languages. An interpreter is found in the template's PATH.
var languages = []Language{
	{Name: "python", Interpreter: []string{"python3"}, Ext: ".py", exts: []string{".py"}},
	{Name: "javascript", Interpreter: []string{"node"}, Ext: ".js", exts: []string{".js", ".mjs", ".cjs"}},
	{Name: "typescript", Interpreter: []string{"node"}, Ext: ".mjs", Strip: true, exts: []string{".ts", ".mts", ".cts"}},
	{Name: "bash", Interpreter: []string{"bash"}, Ext: ".sh", exts: []string{".sh", ".bash"}},
}

// Named returns the language of that name, or a KindInvalid error that lists the names.
func Named(name string) (Language, error) {
	var names []string
	for _, l := range languages {
		if l.Name == name || slices.Contains(l.exts, "."+name) { // "py", "js", "ts", "sh"
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Language{}, rung.Errorf(rung.KindInvalid, "unknown language %q", name).WithHint("one of: " + strings.Join(names, ", "))
}

// OfFile returns the language that a file name's extension tells.
func OfFile(name string) (Language, bool) {
	ext := strings.ToLower(filepath.Ext(name))
	for _, l := range languages {
		if slices.Contains(l.exts, ext) {
			return l, true
		}
	}
	return Language{}, false
}

// FileName is the name a program gets inside: the base of the host file's name with nothing but harmless characters, or
// main with the language's extension.
func (l Language) FileName(host string) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, filepath.Base(host))
	if host == "" || strings.Trim(base, "._-") == "" {
		return "main" + l.Ext
	}
	base = strings.TrimLeft(base, "-.")
	if l.Strip {
		return strings.TrimSuffix(base, filepath.Ext(base)) + l.Ext
	}
	return base
}
