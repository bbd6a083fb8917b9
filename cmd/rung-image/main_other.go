//go:build !linux

// Command rung-image fills the store of templates. It works on Linux only, where sandboxes are.
package main

import (
	"fmt"
	"os"

	"github.com/rung-dev/rung"
)

func main() {
	fmt.Fprintln(os.Stderr, "rung-image: templates are made on Linux, on the machine that runs the sandboxes")
	os.Exit(rung.ExitError)
}
