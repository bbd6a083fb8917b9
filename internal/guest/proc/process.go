//go:build linux

package proc

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The outputs of a process. With a terminal there is only Stdout, and it carries both.
const (
	Stdout = iota
	Stderr
	outputs
)

// quiet is how long a descendant that outlives the process may hold its output open without writing, before the end is
// reported.
const quiet = 250 * time.Millisecond

// Process is one started process.
type Process struct {
	PID  int
	Spec Spec

	table  *Table
	input  *input
	pty    *os.File      // nil without a terminal
	exited chan struct{} // closed when it was collected
	done   chan struct{} // closed when its output is complete as well
	timer  *time.Timer   // of the deadline; nil without one
	eof    chan struct{} // an output ended

	mu      sync.Mutex
	timeout bool      // ended by its deadline
	since   time.Time // of its end
	change  sync.Cond // a reader advanced or left
	out     [outputs]ring
	pipe    [outputs]*pipe
	subs    map[*Sub]struct{}
	status  syscall.WaitStatus
	ended   bool // output is complete: no more is kept
}

// pipe is the reading end of one output.
type pipe struct {
	file    *os.File
	fd      int
	reading bool      // mu of the process: waiting for data, not for a slow client
	since   time.Time // mu of the process: of the last data, or of the start of that wait
	discard bool      // mu of the process: the end was reported, the rest goes nowhere
}

// Exit is how a process ended.
type Exit struct {
	Status   syscall.WaitStatus
	TimedOut bool
}

// Done is closed when the process has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is valid after Done.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Exit{p.status, p.timeout}
}

// pump moves one output into its ring until its end. A slow client that is attached holds the process back; without one,
// the oldest bytes go.
func (p *Process) pump(i int) {
	for {
		p.mu.Lock()
		area := p.area(i)
		p.pipe[i].reading, p.pipe[i].since = true, time.Now()
		p.mu.Unlock()
		if p.take(i, area) != nil { // EOF; EIO is a terminal's
			select {
			case p.eof <- struct{}{}:
			default:
			}
			p.pipe[i].file.Close()
			return
		}
	}
}

// take waits for data and takes it. Reading and counting are one step under the lock, so that data is always seen by drained
// in the pipe or in the ring: on a starved machine the time between the two can be longer than quiet.
func (p *Process) take(i int, area []byte) error {
	pipe := p.pipe[i]
	raw, err := pipe.file.SyscallConn()
	if err == nil {
		wait := raw.Read(func(fd uintptr) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			var n int
			for n, err = unix.Read(int(fd), area); err == unix.EINTR; n, err = unix.Read(int(fd), area) {
			}
			if err == unix.EAGAIN {
				return false
			}
			if err == nil && n == 0 {
				err = io.EOF
			}
			pipe.reading, pipe.since = false, time.Now()
			if !pipe.discard && !p.ended {
				p.out[i].end += int64(max(n, 0))
			}
			p.out[i].eof = err != nil
			p.wakeLocked()
			return true
		})
		if wait == nil {
			return err
		}
		err = wait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pipe.reading, p.out[i].eof = false, true
	p.wakeLocked()
	return err
}

// area waits for room. After the end was reported a descendant may still write: it is read, so that it is not killed by
// SIGPIPE, and thrown away.
func (p *Process) area(i int) []byte {
	for {
		if p.ended {
			p.pipe[i].discard = true
			return make([]byte, 512)
		}
		low := p.out[i].end
		for s := range p.subs {
			low = min(low, s.pos[i])
		}
		if area := p.out[i].reserve(low); area != nil {
			return area
		}
		p.change.Wait()
	}
}

func (p *Process) wakeLocked() {
	for s := range p.subs {
		s.poke()
	}
}

// finish runs once the process was collected: it waits for the rest of the output, then lets the end be seen.
func (p *Process) finish() {
	<-p.exited
	if p.pty == nil { // a terminal is also the output, which is not complete yet
		p.input.close()
	}
	for left := p.drained(); left > 0; left = p.drained() {
		wait := time.NewTimer(left)
		select {
		case <-p.eof:
		case <-wait.C:
		}
		wait.Stop()
	}
	if p.timer != nil { // it may have had to end a descendant that never stopped writing
		p.timer.Stop()
	}
	p.mu.Lock()
	p.ended = true
	p.wakeLocked()
	p.change.Broadcast()
	p.mu.Unlock()
	close(p.done)
	p.table.retire(p)
}

// drained returns how long the output must stay quiet from now on to count as complete, 0 when it is.
func (p *Process) drained() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left time.Duration
	for i := range p.pipe {
		pipe := p.pipe[i]
		if pipe == nil || p.out[i].eof {
			continue
		}
		if !pipe.reading {
			left = quiet // the client is slow, or the pump is about to read again
			continue
		}
		from := pipe.since
		if p.since.After(from) {
			from = p.since
		}
		rest := quiet - time.Since(from)
		// On a starved machine the quiet time may pass before the pump gets to run: ask the pipe itself; see take.
		if n, err := unix.IoctlGetInt(pipe.fd, unix.TIOCINQ); rest <= 0 && err == nil && n > 0 {
			rest = quiet
		}
		left = max(left, rest)
	}
	return max(left, 0)
}
