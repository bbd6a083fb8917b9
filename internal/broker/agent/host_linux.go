package agent

import (
	"context"
	"path/filepath"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/lock"
)

// Host ends sandboxes by their control groups and their holders.
type Host struct{ RuntimeDir string }

// End kills the control group, which is at once, and asks the holder to go, which takes what has no group and is everything
// where there are no groups. A sandbox without both is not there yet, or no more: Alive tells.
func (h Host) End(ctx context.Context, id string) error {
	failed := h.killGroup(ctx, id)
	link, err := holder.Adopt(ctx, filepath.Join(h.RuntimeDir, "sandboxes", id), nil)
	if err == nil {
		err = link.Destroy(ctx)
	}
	if rung.KindOf(err) == rung.KindNotFound {
		return failed
	}
	return err // the holder's word counts: its end is the end of all
}

func (h Host) killGroup(ctx context.Context, id string) error {
	layout, err := cgroup.Detect()
	if err != nil {
		return err
	}
	g, err := layout.Open(id)
	if rung.KindOf(err) == rung.KindNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Kill(ctx)
}

// Alive implements Wall.
func (h Host) Alive(id string) (bool, error) { return lock.Alive(h.RuntimeDir, id) }
