//go:build linux

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/rung-dev/rung"
)

// newProgress returns a function that shows how far something is: one line on a terminal, after the first second, ten times
// a second at most. wipe removes it.
func newProgress(show bool, label string) func(bytes int64) {
	if !show {
		return func(int64) {}
	}
	next := time.Now().Add(time.Second)
	return func(bytes int64) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(100 * time.Millisecond)
		fmt.Fprintf(os.Stderr, "\rrung-image: %s: %s\x1b[K", label, rung.FormatBytes(bytes))
	}
}

func wipe(show bool) {
	if show {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}
