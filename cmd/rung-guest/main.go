//go:build linux

// Command rung-guest is the agent inside every sandbox; see internal/guest. It is started by the runtime or the holder,
// never by a person:
//
//	rung-guest serve CONFIG   serves the control channel; CONFIG is JSON
//	rung-guest measure        prints what this process can and cannot do, as JSON
package main

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/rung-dev/rung/internal/guest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		os.Stderr.WriteString("rung-guest: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		c, err := guest.ParseConfig(args[1])
		if err != nil {
			return err
		}
		return guest.Serve(c)
	case len(args) == 1 && args[0] == "measure":
		return json.NewEncoder(os.Stdout).Encode(self())
	default:
		return errors.New("usage: rung-guest serve CONFIG | rung-guest measure")
	}
}
