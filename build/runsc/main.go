// Command runsc is gVisor's OCI runtime, built from the version this module's go.mod pins. It is a module of its own so
// that gVisor and what it needs never enter rung's module graph: rung only runs the finished program.
package main

import (
	"gvisor.dev/gvisor/runsc/cli/maincli"
	_ "gvisor.dev/gvisor/runsc/version" // the Makefile stamps version.version with the pinned version
)

func main() { maincli.Main() }
