//go:build !linux

package agent

import (
	"context"

	"github.com/rung-dev/rung"
)

// Host ends sandboxes, of which there are none but on Linux.
type Host struct{ RuntimeDir string }

var errNotHere = rung.Errorf(rung.KindUnavailable, "there are sandboxes on Linux only")

// End implements Wall.
func (Host) End(context.Context, string) error { return errNotHere }

// Alive implements Wall.
func (Host) Alive(string) (bool, error) { return false, errNotHere }
