//go:build !linux

package main

import (
	"context"
	"os/exec"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/session"
)

var errNotHere = rung.Errorf(rung.KindUnavailable, "rung builds its walls from Linux primitives, and this is not Linux").
	WithHint("run it on a Linux machine or in a Linux virtual machine")

func becomeHolder() {}

type seed struct{}

func sow([]string) func() *seed { return nil }

func (*app) endUnused() {}

type host struct{}

func openHost(*app) (*host, error) { return nil, errNotHere }

func (*host) run(context.Context, *app, *runCmd, session.Task) (int, error) { return 0, errNotHere }

func findProgram(name string) string {
	p, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return p
}

// elsewhereCmd stands for every command that needs Linux.
type elsewhereCmd struct {
	Args []string `arg:"" optional:"" passthrough:"all"`
}

// Run implements runner.
func (*elsewhereCmd) Run(context.Context, *app) (int, error) { return 0, errNotHere }

type (
	ladderCmd   = elsewhereCmd
	whereamiCmd = elsewhereCmd
	templateCmd = elsewhereCmd
	recordCmd   = elsewhereCmd
	reapCmd     = elsewhereCmd
	versionCmd  = elsewhereCmd
	logCmd      = elsewhereCmd
	secretCmd   = elsewhereCmd
	agentCmd    = elsewhereCmd
)
