package log

import (
	"errors"
	"io/fs"
	"time"
)

// Pruned is what Prune removed.
type Pruned struct {
	Segments int   `json:"segments"`
	Through  int64 `json:"through"` // the newest line removed, 0 if none
}

// Prune removes the oldest segments of which every line is older than the time, and never the newest. Before it does, it
// writes a signed line that says up to where, so that Verify knows that it was asked for; a crash in between leaves
// segments that the next Prune removes.
func (l *Log) Prune(before time.Time) (Pruned, error) {
	w, err := l.begin()
	if err != nil {
		return Pruned{}, err
	}
	defer w.end()
	segments, err := l.segments()
	if err != nil {
		return Pruned{}, err
	}
	old, through, hash := 0, int64(0), ""
	for i := 1; i < len(segments); i++ {
		next, err := l.firstLine(segments[i])
		if err != nil {
			return Pruned{}, failed("read the beginning of a log segment", err)
		}
		if !next.Time.Before(before) {
			break
		}
		old, through, hash = i, next.Seq-1, next.Prev
	}
	if old == 0 {
		return Pruned{}, nil
	}
	b, err := w.batch()
	if err != nil {
		return Pruned{}, err
	}
	if _, err = b.sign(KindPruned, through, hash, map[string]any{"before": before.UTC().Format(time.RFC3339)}); err != nil {
		return Pruned{}, failed("sign what is pruned", err)
	}
	// The line itself is covered by a checkpoint at once: it is what excuses the missing ones.
	if _, err = b.sign(KindCheckpoint, b.seq, b.hash, nil); err != nil {
		return Pruned{}, failed("sign what is pruned", err)
	}
	if err := w.write(b); err != nil {
		return Pruned{}, err
	}
	for i, first := range segments[:old] {
		if err := l.root.Remove(segmentName(first)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Pruned{Segments: i, Through: through}, failed("prune the event log", err)
		}
	}
	return Pruned{Segments: old, Through: through}, failedNil(w.sync(true))
}

func failedNil(err error) error {
	if err == nil {
		return nil
	}
	return failed("sync the event log", err)
}
