package held

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/lock"
)

// Remains is what a dead sandbox has left.
type Remains struct {
	ID    string   `json:"id"`
	Found []string `json:"found"` // in words, such as "directory /run/rung/sandboxes/x", "cgroup with 3 processes"
}

// Sweep finds the sandboxes whose holder and client are both gone and removes what is left of them: processes (by control
// group), control group, directory. Mounts, loop devices and namespaces ended with the holder. A sandbox somebody holds is
// never touched, however it was started. With dry it only tells. Two sweeps at once share the work.
func (h Host) Sweep(ctx context.Context, dry bool) ([]Remains, error) {
	dead, err := lock.Dead(h.RuntimeDir)
	layout, cgErr := layouts()
	var all []Remains
	errs := []error{err}
	for _, box := range dead {
		r := Remains{ID: box.ID, Found: []string{"directory " + box.Dir}}
		var g *cgroup.Group
		if cgErr == nil {
			if g, err = layout.Open(box.ID); err == nil {
				procs, _ := g.Procs()
				r.Found = append(r.Found, fmt.Sprintf("control group with %d processes", len(procs)))
			}
		}
		all = append(all, r)
		if dry {
			errs = append(errs, box.Close())
			continue
		}
		errs = append(errs, clear(ctx, box, g))
	}
	return all, errors.Join(errs...)
}

func clear(ctx context.Context, box *lock.Sandbox, g *cgroup.Group) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if g != nil {
		if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
			return errors.Join(err, box.Close())
		}
	}
	return box.Remove()
}

// removeDead removes the directory of a sandbox whose holder has just ended: its lock may be held for a moment more, by the
// holder's last thread or by a sweep that found it first.
func (h Host) removeDead(ctx context.Context, id string) error {
	for {
		box, err := lock.Claim(h.RuntimeDir, id)
		if err != nil {
			return err
		}
		if box != nil {
			return box.Remove()
		}
		if _, err := os.Lstat(h.sandbox(id)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return rung.Errorf(rung.KindTimeout, "the holder of %s does not end: %w", id, ctx.Err())
		}
	}
}
