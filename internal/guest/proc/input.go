//go:build linux

package proc

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// ErrNoInput is returned when the process has no standard input to write to (any more).
var ErrNoInput = errors.New("standard input is closed")

// input is the writing end of standard input, or the terminal. Writers take turns, so that two calls do not interleave.
type input struct {
	turn chan struct{} // holds one token
	mu   sync.Mutex
	file *os.File // nil once closed
}

func newInput(f *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), file: f}
	in.turn <- struct{}{}
	return in
}

func (in *input) get() *os.File {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.file
}

// write returns when all of b is in the pipe, the process is gone or ctx is done.
func (in *input) write(ctx context.Context, b []byte) error {
	select {
	case <-in.turn:
		defer func() { in.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	f := in.get()
	if f == nil {
		return ErrNoInput
	}
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := f.Write(b)
	if !stop() {
		f.SetWriteDeadline(time.Time{})
		return ctx.Err()
	}
	if err != nil { // EPIPE, or closed meanwhile: either way nobody reads
		return ErrNoInput
	}
	return nil
}

func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file != nil {
		in.file.Close()
		in.file = nil
	}
}
