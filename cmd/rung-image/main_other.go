//go:build !linux

package main // elsewhere than on Linux, where sandboxes are, there is nothing to fill

import (
	"fmt"
	"os"

	"github.com/rung-dev/rung"
)

func main() {
	fmt.Fprintln(os.Stderr, "rung-image: templates are made on Linux, on the machine that runs the sandboxes")
	os.Exit(rung.ExitError)
}
