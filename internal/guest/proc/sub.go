//go:build linux

package proc

import (
	"context"
	"time"
)

// Sub is one client that watches a process. It is used by one goroutine. Until Close, the process waits for it rather than
// lose output.
type Sub struct {
	p    *Process
	pos  [outputs]int64 // mu of the process: next byte to take
	turn int
	wake chan struct{}
}

// All as the offset of Attach means: from now on.
const All = -1

// Attach begins watching. Output that is kept is replayed from the offsets on; a negative one replays nothing.
func (p *Process) Attach(from [2]int64) *Sub {
	s := &Sub{p: p, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range s.pos {
		s.pos[i] = p.out[i].end
		if from[i] >= 0 {
			s.pos[i] = min(max(from[i], p.out[i].start), p.out[i].end)
		}
	}
	p.subs[s] = struct{}{}
	s.poke()
	return s
}

func (s *Sub) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Again makes the next Wait return at once: the caller stopped taking before there was nothing left.
func (s *Sub) Again() { s.poke() }

// Offsets is how many bytes of each output come before what Take returns next.
func (s *Sub) Offsets() [2]int64 {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.pos
}

// Take returns the next bytes of one output, the outputs in turn. They stay valid until Advance says they were used.
func (s *Sub) Take() (output int, data []byte) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for range outputs {
		s.turn = (s.turn + 1) % outputs
		if data := s.p.out[s.turn].view(s.pos[s.turn]); data != nil {
			return s.turn, data
		}
	}
	return 0, nil
}

// Advance gives back what Take returned.
func (s *Sub) Advance(output, n int) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.pos[output] += int64(n)
	s.p.change.Broadcast()
}

// Ended reports whether the process has ended and all its output was taken.
func (s *Sub) Ended() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.ended && s.pos[Stdout] == s.p.out[Stdout].end && s.pos[Stderr] == s.p.out[Stderr].end
}

// Wait blocks until there may be something to take or the end to see. It returns false after idle without either, and when
// ctx is done.
func (s *Sub) Wait(ctx context.Context, idle time.Duration) bool {
	select {
	case <-s.wake:
		return true
	default:
	}
	timer := time.NewTimer(idle)
	defer timer.Stop()
	select {
	case <-s.wake:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// Close ends the watching; the process goes on.
func (s *Sub) Close() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.subs, s)
	s.p.change.Broadcast()
}
