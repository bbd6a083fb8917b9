//go:build linux

// Package proc starts, watches, feeds and ends the processes of a sandbox on behalf of rung-guest.
//
// A process belongs to no client: it goes on when the one that started it leaves, and what it writes then is kept, the
// last bytes of it, for whoever attaches next. While a client is attached nothing is lost: a slow one holds the process
// back. The end is reported once the output is complete: both pipes at their end, or silent for a while when a descendant
// keeps one open.
package proc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rung-dev/rung/internal/guest/ident"
)

const (
	// retain is how long an ended process can still be attached to.
	retain = 30 * time.Second
	// maxEnded caps the ended processes that are kept, the oldest go first: their output is memory of the sandbox.
	maxEnded = 32
	// killWait bounds how long the end of a killed tree is waited for.
	killWait = 2 * time.Second
	// DefaultOutput is how much of each output is kept.
	DefaultOutput = 256 << 10
)

// Errors of this package; a failed start is a *StartError.
var (
	ErrNotFound = errors.New("no such process")
	ErrSurvived = errors.New("the process did not end")
)

// Spec says what to start.
type Spec struct {
	Path  string // looked up in the PATH of Env unless it has a slash
	Args  []string
	Env   []string // complete
	Dir   string
	User  ident.User
	Stdin bool  // a pipe; else /dev/null
	PTY   *Size // a terminal instead of pipes
	Tag   string
	// Timeout ends the process tree; 0 is none.
	Timeout time.Duration
	// Internal processes are the guest's own: not listed, not kept.
	Internal bool
	Label    any // the caller's, returned by List
}

// Size is a terminal's size.
type Size struct{ Cols, Rows uint16 }

// Config is fixed for a Table.
type Config struct {
	Output int       // bytes of each output that are kept; 0 is DefaultOutput
	Init   bool      // this program is PID 1 of a namespace of its own
	OOM    *ScoreAdj // nil: left alone
	Forker *Forker
}

// Table is all processes of the sandbox that this program started.
type Table struct {
	cfg  Config
	reap *reaper

	mu      sync.Mutex
	live    map[int]*Process
	ended   []*Process // oldest first
	started int        // without internal ones
}

// NewTable makes the table; there must be only one, as it collects every child of the program.
func NewTable(cfg Config) *Table {
	if cfg.Output == 0 {
		cfg.Output = DefaultOutput
	}
	cfg.Output = max(cfg.Output, minRing)
	return &Table{cfg: cfg, reap: newReaper(cfg.Forker.kill), live: map[int]*Process{}}
}

// Start starts a process and attaches the first watcher to it, who misses nothing.
func (t *Table) Start(spec Spec) (*Process, *Sub, error) {
	p := &Process{Spec: spec, table: t, subs: map[*Sub]struct{}{}, exited: make(chan struct{}), done: make(chan struct{}), eof: make(chan struct{}, outputs)}
	p.change.L = &p.mu
	for i := range p.out {
		p.out[i].max = t.cfg.Output
	}
	io, err := openIO(&spec)
	if err != nil {
		return nil, nil, err
	}
	defer io.closeTheirs()
	p.input, p.pipe, p.pty = newInput(io.input), io.pipe, io.pty
	for i := range p.pipe {
		p.out[i].eof = p.pipe[i] == nil
	}
	if err := t.spawn(p, io); err != nil {
		io.closeOurs()
		return nil, nil, err
	}
	sub := p.Attach([2]int64{})
	for i := range p.pipe {
		if p.pipe[i] != nil {
			go p.pump(i)
		}
	}
	go p.finish()
	return p, sub, nil
}

// spawn forks; the process is in the table before anybody can see its end.
func (t *Table) spawn(p *Process, io *stdio) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := t.reap.start(func() (int, error) { return t.fork(&p.Spec, io) }, p.collected)
	if err != nil {
		return err
	}
	p.PID = pid
	t.live[pid] = p
	if !p.Spec.Internal {
		t.started++
	}
	if p.Spec.Timeout > 0 {
		p.timer = time.AfterFunc(p.Spec.Timeout, func() { t.expire(p) })
	}
	return nil
}

func (p *Process) collected(status syscall.WaitStatus) {
	p.mu.Lock()
	p.status, p.since = status, time.Now()
	p.mu.Unlock()
	close(p.exited)
}

func (t *Table) expire(p *Process) {
	p.mu.Lock()
	p.timeout = true
	p.mu.Unlock()
	t.killTree(p)
}

// retire moves an ended process to those that can still be attached to, for a while.
func (t *Table) retire(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.PID] == p {
		delete(t.live, p.PID)
	}
	if p.Spec.Internal {
		return
	}
	if t.ended = append(t.ended, p); len(t.ended) > maxEnded {
		t.ended = slices.Delete(t.ended, 0, 1)
	}
	time.AfterFunc(retain, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ended = slices.DeleteFunc(t.ended, func(q *Process) bool { return q == p })
	})
}

// List returns the live processes in the order of their ids.
func (t *Table) List() []*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Process
	for _, p := range t.live {
		if !p.Spec.Internal {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Process) int { return a.PID - b.PID })
	return list
}

// Live finds a process that was not collected yet, Recent also one that ended a short while ago. The tag counts when pid
// is 0.
func (t *Table) Live(pid int, tag string) (*Process, error) {
	p, err := t.Recent(pid, tag)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.exited:
		return nil, ErrNotFound
	default:
		return p, nil
	}
}

// Recent: see Live.
func (t *Table) Recent(pid int, tag string) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	match := func(p *Process) bool {
		return !p.Spec.Internal && (pid != 0 && p.PID == pid || pid == 0 && tag != "" && p.Spec.Tag == tag)
	}
	for _, p := range t.live {
		if match(p) {
			return p, nil
		}
	}
	for _, p := range slices.Backward(t.ended) {
		if match(p) {
			return p, nil
		}
	}
	return nil, ErrNotFound
}

// Write feeds standard input or the terminal; it returns when the bytes are in the pipe.
func (p *Process) Write(ctx context.Context, b []byte) error { return p.input.write(ctx, b) }

// CloseStdin is end of file for the process. A terminal has no such thing.
func (p *Process) CloseStdin() error {
	if p.pty != nil {
		return errors.New("a terminal has no end of file: send 0x04")
	}
	p.input.close()
	return nil
}
