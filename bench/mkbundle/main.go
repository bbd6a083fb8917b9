// Command mkbundle writes one OCI bundle for the benchmark scripts: mkbundle DIR ROOTFS|host ARG…
package main

import (
	"fmt"
	"os"

	"github.com/rung-dev/rung/bench/bundle"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: mkbundle DIR ROOTFS|host ARG…")
		os.Exit(2)
	}
	o := bundle.Options{RootFS: os.Args[2], Args: os.Args[3:]}
	if o.RootFS == "host" {
		o.RootFS, o.Host = "", true
	}
	if err := bundle.Write(os.Args[1], o); err != nil {
		fmt.Fprintln(os.Stderr, "mkbundle:", err)
		os.Exit(1)
	}
}
