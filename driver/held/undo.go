package held

// undo is a stack of releases: every step that takes something pushes one, success forgets them all.
type undo []func()

func (u *undo) push(f func()) { *u = append(*u, f) }

// run releases everything, last first. Deferred; a no-op after keep.
func (u *undo) run() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
	*u = nil
}

func (u *undo) keep() { *u = nil }
