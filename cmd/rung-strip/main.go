// Command rung-strip reads TypeScript from standard input and writes the same program with its types stripped as an
// ECMAScript module to standard output. It is a program of its own because the compiler in it would cost every start of
// rung half a millisecond.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/evanw/esbuild/pkg/api"
)

// maxSource bounds the program, as rung's inputs are.
const maxSource = 16 << 20

func main() {
	source, err := io.ReadAll(io.LimitReader(os.Stdin, maxSource+1))
	if err != nil || len(source) > maxSource {
		fmt.Fprintf(os.Stderr, "read the program: longer than %d bytes or unreadable (%v)\n", maxSource, err)
		os.Exit(1)
	}
	name := "main.ts"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	out := api.Transform(string(source), api.TransformOptions{
		Loader: api.LoaderTS, Format: api.FormatESModule, Target: api.ES2022, Sourcefile: name, LogLevel: api.LogLevelSilent,
	})
	for _, m := range out.Errors {
		if l := m.Location; l != nil {
			fmt.Fprintf(os.Stderr, "%s:%d:%d: %s\n", l.File, l.Line, l.Column+1, m.Text)
			continue
		}
		fmt.Fprintln(os.Stderr, m.Text)
	}
	if len(out.Errors) > 0 {
		os.Exit(1)
	}
	os.Stdout.Write(out.Code)
}
