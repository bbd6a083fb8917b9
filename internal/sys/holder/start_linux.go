package holder

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/userns"
)

// Link is a client's end of a holder.
type Link struct {
	dir    string
	seed   *Seed // nil when adopted
	life   *peer
	events func(denied *rung.Denied, notice string)
	first  chan message  // Ready or Failed
	gone   chan struct{} // closed when the holder's connection has ended
	mu     sync.Mutex
	ended  *Ended // guarded by mu
}

// startTimeout bounds the time from the holder's start to Ready where the caller's context does not.
const startTimeout = 60 * time.Second

// Start starts a holder and waits until its wall stands. On an error nothing of the holder is left.
func Start(ctx context.Context, req Request) (*Link, error) {
	order := req.Order
	order.Prepared = req.Prepare != nil
	seed, err := req.Seed.fit(order)
	if err != nil {
		return nil, err
	}
	l := newLink(order.Dir, seed.conn, req.Events)
	l.seed = seed
	if err := l.begin(ctx, order, req); err != nil {
		seed.End()
		return nil, err
	}
	return l, nil
}

func (l *Link) begin(ctx context.Context, order Order, req Request) error {
	if len(order.UIDs) > 0 && order.Namespaces {
		if err := l.mapIDs(order); err != nil {
			return err
		}
	}
	if err := sendOrder(l.seed.conn, order, req.Keep); err != nil {
		return err
	}
	if req.Prepare != nil {
		if err := l.prepare(ctx, req.Prepare); err != nil {
			return err
		}
	}
	go l.read()
	return l.await(ctx)
}

// prepare does the client's part and gives the holder the go-ahead with what came of it.
func (l *Link) prepare(ctx context.Context, f func(context.Context) (Prepared, error)) error {
	p, err := f(ctx)
	if err != nil {
		return err
	}
	var files []*os.File
	if p.File != nil {
		defer p.File.Close()
		files = append(files, p.File)
	}
	text := []byte{'p'}
	if p.Cgroup {
		text[0] = 'c'
	}
	if err := sendFiles(l.seed.conn, text, files); err != nil {
		return rung.Errorf(rung.KindInternal, "%w: %s", err, l.seed.log())
	}
	return nil
}

func newLink(dir string, conn net.Conn, events func(*rung.Denied, string)) *Link {
	if events == nil {
		events = func(*rung.Denied, string) {}
	}
	return &Link{dir: dir, life: newPeer(conn), events: events, first: make(chan message, 1), gone: make(chan struct{})}
}

// unmapped, in a holder's environment, says that it is in a user namespace whose id maps are not written yet.
const unmapped = "RUNG_HOLDER_UNMAPPED"

// mapIDs makes an ordinary user root of the holder's user namespace, the only way it may mount anything, and then lets the
// holder go on: it executes itself again, since a program started by an unmapped id has no capabilities.
func (l *Link) mapIDs(order Order) error {
	var err error
	if pid := l.seed.holder.PID; len(order.UIDs) == 1 {
		err = userns.MapSelf(pid, 0, 0)
	} else {
		err = userns.NewIDMap(context.Background(), pid, order.UIDs, order.GIDs)
	}
	if err != nil {
		return err
	}
	if _, err := l.life.conn.Write([]byte{'m'}); err != nil {
		return rung.Errorf(rung.KindInternal, "start holder: %w", err)
	}
	return nil
}

// await returns when the holder said Ready, with its error when it failed.
func (l *Link) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case m := <-l.first:
		if m.Failed != nil {
			return m.Failed.Err()
		}
		return nil
	case <-l.gone:
		select {
		case m := <-l.first:
			if m.Failed != nil {
				return m.Failed.Err()
			}
		default:
		}
		return rung.Errorf(rung.KindInternal, "the holder ended before the sandbox started: %s", l.seed.log())
	case <-ctx.Done():
		return waitError(ctx, "the sandbox's wall")
	}
}

func waitError(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return rung.Errorf(rung.KindTimeout, "waiting for %s took too long: %w", what, ctx.Err())
	}
	return rung.Errorf(rung.KindConflict, "waiting for %s: %w", what, ctx.Err())
}

// read takes the holder's messages until its end.
func (l *Link) read() {
	defer close(l.gone)
	lines := bufio.NewReader(l.life.conn)
	for {
		m, err := receive(lines)
		if err != nil {
			return
		}
		switch {
		case m.Ready != nil || m.Failed != nil:
			select {
			case l.first <- m:
			default:
			}
		case m.Ended != nil:
			l.mu.Lock()
			l.ended = m.Ended
			l.mu.Unlock()
		case m.Denied != nil || m.Notice != "":
			l.events(m.Denied, m.Notice)
		}
	}
}

// Adopt connects to the live holder of the sandbox in dir. KindNotFound when there is none.
func Adopt(ctx context.Context, dir string, events func(*rung.Denied, string)) (*Link, error) {
	conn, err := dial(ctx, dir, 'H')
	if err != nil {
		return nil, rung.Errorf(rung.KindNotFound, "adopt %s: no live holder: %w", dir, err)
	}
	l := newLink(dir, conn, events)
	go l.read()
	if err := l.await(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

func dial(ctx context.Context, dir string, kind byte) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{kind}); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Dial opens a connection to the guest's HTTP server. KindConflict after the sandbox's end.
func (l *Link) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := dial(ctx, l.dir, 'G')
	if err == nil {
		return conn, nil
	}
	select {
	case <-l.gone:
		return nil, rung.Errorf(rung.KindConflict, "the sandbox has ended: %w", err)
	default:
		return nil, rung.Errorf(rung.KindUnavailable, "connect to the sandbox: %w", err)
	}
}

// PID is the holder's process id, 0 when adopted.
func (l *Link) PID() int {
	if l.seed == nil {
		return 0
	}
	return l.seed.holder.PID
}

// Wait blocks until the sandbox has ended; a holder that went without a word was killed.
func (l *Link) Wait(ctx context.Context) (Ended, error) {
	select {
	case <-l.gone:
	case <-ctx.Done():
		return Ended{}, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		return Ended{Reason: rung.Killed, Detail: "its holder was killed"}, nil
	}
	return *l.ended, nil
}

// Destroy ends the holder and with it every process of the sandbox, and returns when they are gone: wait(2) on the first
// process of a pid namespace returns only after all others have ended. Idempotent; bounded by ctx and 10 s.
func (l *Link) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	l.life.send(message{Op: opDestroy})
	select {
	case <-l.gone:
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	if l.seed == nil {
		l.life.conn.Close()
		return nil
	}
	return l.seed.end(ctx)
}
