package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rung-dev/rung"
)

const (
	// atOnce is how many sandboxes are ended at the same time.
	atOnce = 16
	// killBound is how long all of them may take.
	killBound = 30 * time.Second
)

// Wall is how sandboxes are ended and how their end is known: the host's own means (see Host), or a test's.
type Wall interface {
	// End ends all processes of a sandbox, or as many as are there yet. It may be called again.
	End(ctx context.Context, id string) error
	// Alive reports whether anybody still holds the sandbox.
	Alive(id string) (bool, error)
}

// Killed is what Kill did.
type Killed struct {
	Sandboxes []string      `json:"sandboxes"` // that were alive and are no more
	Took      time.Duration `json:"-"`
}

// Kill ends all live sandboxes of an agent and returns when none is left. An error names what may still live.
func Kill(ctx context.Context, runtimeDir, agent string, wall Wall) (Killed, error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, killBound)
	defer cancel()
	all, failed := Sandboxes(runtimeDir)
	k := Killed{Sandboxes: []string{}}
	var mu sync.Mutex // guards k and failed
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, id := range all[agent] {
		alive, err := wall.Alive(id)
		if err == nil && !alive {
			continue // its remains are the reaper's
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			err := end(ctx, id, wall)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			k.Sandboxes = append(k.Sandboxes, id)
		})
	}
	group.Wait()
	k.Took = time.Since(begin)
	return k, failed
}

// end tries until nobody holds the sandbox: one that is still being made has nothing to end yet, and its maker is about to
// see the mark.
func end(ctx context.Context, id string, wall Wall) error {
	for pause := time.Millisecond / 4; ; pause = min(2*pause, 20*time.Millisecond) {
		failed := wall.End(ctx, id)
		alive, err := wall.Alive(id)
		if err == nil && !alive {
			return nil
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return rung.Errorf(rung.KindTimeout, "sandbox %s may still live: %w", id, errors.Join(failed, err, ctx.Err()))
		}
	}
}
