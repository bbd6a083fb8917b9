package holder

import (
	"context"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/child"
)

// Seed is a holder without an order: a process in its own namespaces that waits for one. A client that knows it
// will need a sandbox starts it first of all (Ahead), so that the holder's start, which takes as long as the client's, is
// done when the order is. It ends with its client.
type Seed struct {
	conn   *net.UnixConn
	holder *child.Child
	errors *os.File // its standard error: a memory file
	mu     sync.Mutex
	taken  bool // guarded by mu
}

// settled, in a holder's environment, says that it has namespaces of its own.
const settled = "RUNG_HOLDER_NAMESPACES"

// linkAhead, in a holder's environment, says that its sandbox will most likely have a TAP.
const linkAhead = "RUNG_HOLDER_TAP"

// Ahead starts a holder for a sandbox with namespaces. Only root can: an ordinary user's id maps are part of the order. link
// is a guess: what it says is made ahead too, and removed where the order says otherwise.
func Ahead(link LinkKind) (*Seed, error) {
	if os.Geteuid() != 0 {
		return nil, rung.Errorf(rung.KindUnsupported, "an ordinary user's holder needs its order first")
	}
	return sow(true, false, link)
}

// fit returns the seed if it fits the order and nobody has taken it, and a new one otherwise.
func (s *Seed) fit(order Order) (*Seed, error) {
	if s != nil && order.Namespaces && len(order.UIDs) == 0 && s.take() {
		return s, nil
	}
	return sow(order.Namespaces, order.Namespaces && len(order.UIDs) > 0, NoLink)
}

func (s *Seed) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.taken
	s.taken = true
	return !was
}

// sow starts a holder.
func sow(namespaces, user bool, link LinkKind) (*Seed, error) {
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
	fd, err := unix.MemfdCreate("rung-holder-errors", unix.MFD_CLOEXEC)
	if err != nil {
		conn.Close()
		return nil, rung.Errorf(rung.KindInternal, "start holder: %w", err)
	}
	s := &Seed{conn: conn.(*net.UnixConn), errors: os.NewFile(uintptr(fd), "errors")}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{Name}, Dir: "/", ExtraFiles: []*os.File{theirs}, Stderr: s.errors,
		// A small heap target: the holder's live data is a few hundred KiB.
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOGC=50", "GOMAXPROCS=1"},
		// A session of its own: the terminal's signals are for the client.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if namespaces {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		cmd.Env = append(cmd.Env, settled+"=1")
		if !user && os.Geteuid() == 0 {
			// It gives up its groups later anyway (see drop), which is cheaper before it has threads.
			cmd.SysProcAttr.Credential = &syscall.Credential{Gid: uint32(os.Getegid())}
		}
	}
	if link == TAPLink {
		cmd.Env = append(cmd.Env, linkAhead+"=1")
	}
	if user {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.Env = append(cmd.Env, unmapped+"=1")
	}
	if s.holder, err = child.Start(cmd); err != nil {
		conn.Close()
		s.errors.Close()
		return nil, rung.Errorf(rung.KindUnavailable, "start holder: %w", err).
			WithHint("user, pid and mount namespaces must be allowed here; see `rung ladder`")
	}
	return s, nil
}

// End ends a holder, with or without an order, by force.
func (s *Seed) End() {
	if s == nil {
		return
	}
	_ = s.holder.Kill()
	_ = s.end(context.Background())
}

// EndUnused ends a seed that nobody has taken.
func (s *Seed) EndUnused() {
	if s != nil && s.take() {
		s.End()
	}
}

// end closes the lifeline and waits until the holder's process, and with it its whole pid namespace, is gone.
func (s *Seed) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.conn.Close()
	defer s.errors.Close()
	reaped := make(chan struct{})
	go func() { _ = s.holder.Wait(); close(reaped) }()
	soon := time.NewTimer(2 * time.Second)
	defer soon.Stop()
	for {
		select {
		case <-reaped:
			return nil
		case <-soon.C:
			_ = s.holder.Kill()
		case <-ctx.Done():
			_ = s.holder.Kill()
			return rung.Errorf(rung.KindTimeout, "a holder does not end: %w", ctx.Err())
		}
	}
}

// log is what the holder wrote to its standard error: a panic of ours.
func (s *Seed) log() string {
	if s == nil { // adopted
		return ""
	}
	buf := make([]byte, 2000)
	n, _ := s.errors.ReadAt(buf, 0)
	return string(buf[:n])
}
