package holder

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/userns"
)

// Link is a client's end of a holder.
type Link struct {
	dir    string
	cmd    *exec.Cmd // nil when adopted
	life   *peer
	events func(denied *rung.Denied, notice string)
	first  chan message  // Ready or Failed
	gone   chan struct{} // closed when the holder's connection has ended
	mu     sync.Mutex
	ended  *Ended // guarded by mu
	reaped chan struct{}
}

// startTimeout bounds the time from the holder's start to Ready where the caller's context does not.
const startTimeout = 60 * time.Second

// Start starts a holder and waits until its wall stands. On an error nothing of the holder is left.
func Start(ctx context.Context, req Request) (*Link, error) {
	order := req.Order
	order.Prepared = req.Prepare != nil
	mine, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	conn, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "start holder: %w", err)
	}
	spec, err := orderFile(order)
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer spec.Close()
	l := newLink(order.Dir, conn, req.Events)
	if err := l.spawn(order, append([]*os.File{theirs, spec}, req.Keep...)); err != nil {
		conn.Close()
		return nil, err
	}
	if order.Prepared {
		if err := l.prepare(ctx, req.Prepare); err != nil {
			l.kill()
			return nil, err
		}
	}
	go l.read()
	if err := l.await(ctx); err != nil {
		l.kill()
		return nil, err
	}
	return l, nil
}

// prepare does the client's part and gives the holder the go-ahead with what came of it.
func (l *Link) prepare(ctx context.Context, f func(context.Context) (*os.File, error)) error {
	file, err := f(ctx)
	if err != nil {
		return err
	}
	conn, ok := l.life.conn.(*net.UnixConn)
	if !ok {
		return rung.Errorf(rung.KindInternal, "start holder: not a Unix socket")
	}
	var rights []byte
	if file != nil {
		defer file.Close()
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix([]byte{'p'}, rights, nil); err != nil {
		return rung.Errorf(rung.KindInternal, "start holder: %w: %s", err, l.log())
	}
	return nil
}

func newLink(dir string, conn net.Conn, events func(*rung.Denied, string)) *Link {
	if events == nil {
		events = func(*rung.Denied, string) {}
	}
	return &Link{dir: dir, life: newPeer(conn), events: events,
		first: make(chan message, 1), gone: make(chan struct{}), reaped: make(chan struct{})}
}

// orderFile puts the order where only the holder reads it: not in argv, which everybody can see.
func orderFile(order Order) (*os.File, error) {
	raw, err := json.Marshal(order)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "holder order: %w", err)
	}
	fd, err := unix.MemfdCreate("rung-order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "holder order: %w", err)
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err := f.Write(raw); err != nil {
		f.Close()
		return nil, rung.Errorf(rung.KindInternal, "holder order: %w", err)
	}
	return f, nil
}

func (l *Link) spawn(order Order, files []*os.File) error {
	log, err := os.OpenFile(filepath.Join(order.Dir, "holder.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return rung.Errorf(rung.KindInternal, "start holder: %w", err)
	}
	defer log.Close()
	l.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{Name}, Dir: "/", ExtraFiles: files, Stderr: log,
		// A small heap target: the holder's live data is a few hundred KiB.
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOGC=50", "GOMAXPROCS=1"},
		// A session of its own: the terminal's signals are for the client.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if order.Namespaces {
		l.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
		if len(order.UIDs) > 0 {
			l.cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			l.cmd.Env = append(l.cmd.Env, unmapped+"=1")
		}
	}
	if err := l.cmd.Start(); err != nil {
		return rung.Errorf(rung.KindUnavailable, "start holder: %w", err).
			WithHint("user, pid and mount namespaces must be allowed here; see `rung ladder`")
	}
	go func() { _ = l.cmd.Wait(); close(l.reaped) }()
	if len(order.UIDs) == 0 || !order.Namespaces {
		return nil
	}
	if err := l.mapIDs(order); err != nil {
		l.kill()
		return err
	}
	return nil
}

// unmapped, in a holder's environment, says that it is in a user namespace whose id maps are not written yet.
const unmapped = "RUNG_HOLDER_UNMAPPED"

// mapIDs makes an ordinary user root of the holder's user namespace, the only way it may mount anything, and then lets the
// holder go on: it executes itself again, since a program started by an unmapped id has no capabilities.
func (l *Link) mapIDs(order Order) error {
	var err error
	if pid := l.cmd.Process.Pid; len(order.UIDs) == 1 {
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
			return m.Failed.err()
		}
		return nil
	case <-l.gone:
		select {
		case m := <-l.first:
			if m.Failed != nil {
				return m.Failed.err()
			}
		default:
		}
		return rung.Errorf(rung.KindInternal, "the holder ended before the sandbox started: %s", l.log())
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

func (l *Link) log() string {
	raw, _ := os.ReadFile(filepath.Join(l.dir, "holder.log"))
	if len(raw) > 2000 {
		raw = raw[:2000]
	}
	return string(raw)
}

// read takes the holder's messages until its end.
func (l *Link) read() {
	defer close(l.gone)
	dec := json.NewDecoder(l.life.conn)
	for {
		var m message
		if dec.Decode(&m) != nil {
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
	close(l.reaped)
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
	if l.cmd == nil {
		return 0
	}
	return l.cmd.Process.Pid
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
	l.life.send(message{Op: "destroy"})
	select {
	case <-l.gone:
	case <-time.After(2 * time.Second):
		l.kill()
	case <-ctx.Done():
		l.kill()
	}
	l.life.conn.Close()
	select {
	case <-l.reaped:
		return nil
	case <-ctx.Done():
		return rung.Errorf(rung.KindTimeout, "the holder of %s does not end: %w", filepath.Base(l.dir), ctx.Err())
	}
}

// kill ends a holder that does not listen. Its process is our child, so the number cannot have been reused.
func (l *Link) kill() {
	if l.cmd != nil {
		_ = l.cmd.Process.Kill()
	}
	l.life.conn.Close()
	select {
	case <-l.reaped:
	case <-time.After(5 * time.Second):
	}
}
