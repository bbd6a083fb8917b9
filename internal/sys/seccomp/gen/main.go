// Command gen compiles rung's system call profiles: `go generate ./internal/sys/seccomp`. It writes, for each architecture,
// the filters as raw BPF, the same policies as runtime-spec JSON, and a table of call names.
//
// The container profile is what moby's default profile (github.com/moby/profiles/seccomp) resolves to for the fourteen
// capabilities a Docker container has, on a kernel of at least 4.8: what people get from a plain container. The others are
// rung's own, in package profile.
package main

import (
	"fmt"
	"os"
	"path"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes every generated file below dir, which is the folder of package seccomp.
func run(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through the directory itself
	files, err := generate()
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
