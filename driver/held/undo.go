package held

import "slices"

// undo is a stack of releases: every step that takes something pushes one, success forgets them all.
type undo []func()

func (u *undo) push(f func()) { *u = append(*u, f) }

// run releases everything, last first. Deferred; a no-op after keep.
func (u *undo) run() {
	for i := range slices.Backward(*u) {
		(*u)[i]()
	}
	*u = nil
}

func (u *undo) keep() { *u = nil }
