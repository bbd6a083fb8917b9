package holder

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/child"
	"github.com/rung-dev/rung/internal/sys/mount"
	"github.com/rung-dev/rung/internal/sys/mux"
)

// Main is the holder's life; it never returns. builds are the walls this program knows.
func Main(builds map[string]Build) {
	begin := time.Now()
	if os.Getenv(unmapped) != "" {
		becomeMapped()
	}
	// Whoever started rung may have left descriptors open; they end here at the latest, before any program is started.
	_ = unix.CloseRange(lifelineFD, 1<<31, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11; older kernels rely on the runtimes' own sweep
	h := &held{tail: &tail{}}
	conn, err := net.FileConn(os.NewFile(lifelineFD, "lifeline"))
	if err != nil {
		os.Exit(rung.ExitError)
	}
	h.life = newPeer(conn)
	if err := h.start(builds, begin); err != nil {
		h.life.send(message{Failed: rung.Fail(err)})
		os.Exit(rung.ExitError)
	}
	h.end(h.wait())
}

// becomeMapped waits until the client has written the id maps, and starts this program again as root of its namespace. The
// client's death ends the wait.
func becomeMapped() {
	var b [1]byte
	if n, err := unix.Read(lifelineFD, b[:]); n != 1 || err != nil {
		os.Exit(rung.ExitError)
	}
	os.Unsetenv(unmapped)
	_ = unix.Exec("/proc/self/exe", os.Args, os.Environ()) // returns only when it failed
	os.Exit(rung.ExitError)
}

// held is the state of a running holder.
type held struct {
	order   Order
	life    *peer
	runtime *child.Child
	guest   *mux.Session
	tail    *tail
	group   *cgroup.Group // nil without limits
	keep    []*os.File    // the client's locks: held by being open
	tap     *os.File      // made ahead, until link takes it
	asked   sync.Once     // guards ahead and its error
	ahead   Prepared
	refused error
	mu      sync.Mutex
	peers   []*peer // 'H' connections; guarded by mu
	destroy chan struct{}
	once    sync.Once
	watched sync.WaitGroup // the seccomp supervisor
	stop    func()         // ends the supervisor
	log     deniedLog
}

func (h *held) start(builds map[string]Build, begin time.Time) error {
	h.destroy = make(chan struct{})
	h.stop = func() {}
	own := os.Getenv(settled) != ""
	if own { // while the client makes up its mind
		if err := settle(); err != nil {
			return err
		}
		h.linkAhead()
	}
	if err := h.receiveOrder(); err != nil {
		return err
	}
	build := builds[h.order.Kind]
	if build == nil || h.order.Namespaces != own {
		return rung.Errorf(rung.KindInternal, "holder: no build of kind %q", h.order.Kind)
	}
	if own {
		if err := unix.Sethostname([]byte(h.order.ID)); err != nil {
			return rung.Errorf(rung.KindUnavailable, "holder: hostname: %w", err)
		}
	}
	if err := h.link(); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(h.order.Dir, socketName), Net: "unix"})
	if err != nil {
		return rung.Errorf(rung.KindInternal, "holder: listen: %w", err)
	}
	if err := os.Chmod(filepath.Join(h.order.Dir, socketName), 0o600); err != nil { // whatever the caller's umask says
		return rung.Errorf(rung.KindInternal, "holder: listen: %w", err)
	}
	mine, theirs, err := socketpair()
	if err != nil {
		return err
	}
	wall, err := build(&Workshop{Order: h.order, Control: theirs, Prepared: h.prepared})
	if err != nil {
		return err
	}
	if err := h.join(); err != nil {
		return err
	}
	if err := h.launch(wall); err != nil {
		return err
	}
	theirs.Close()
	// The client prepares while we give up privileges; nothing of the guest is read before.
	h.life.send(message{Ready: &ready{Millis: rung.Millis(time.Since(begin).Seconds() * 1e3)}})
	if err := drop(h.order.DropUID); err != nil {
		return err
	}
	if err := h.connect(mine); err != nil {
		return err
	}
	h.supervise(wall)
	go h.serve(listener)
	go h.listenToClient(h.life, h.order.Owned)
	return nil
}

// join opens the sandbox's control group, and then hides what crun must not see of the layout.
func (h *held) join() error {
	if _, err := h.prepared(); err != nil { // a Build without use for it has not waited
		return err
	}
	if h.ahead.Cgroup {
		layout, err := cgroup.Detect()
		if err != nil {
			return err
		}
		if len(h.order.UIDs) > 0 {
			layout = layout.For(int(h.order.UIDs[0].Host))
		}
		if h.group, err = layout.Open(h.order.ID); err != nil {
			return err
		}
	}
	if !h.order.HideV2 {
		return nil
	}
	// In this namespace only; the host keeps its mount. Covering it is a tenth of the price of an unmount, which waits until
	// every processor has noticed. What shows there instead does not matter, as long as it is not a cgroup v2 file system.
	if err := mount.BindRO(h.order.Dir, "/sys/fs/cgroup/unified", mount.BindOptions{Noexec: true}); err == nil {
		return nil
	}
	if err := mount.Tmpfs("/sys/fs/cgroup", mount.TmpfsOptions{Size: 4096, Inodes: 8}); err != nil {
		return rung.Errorf(rung.KindUnavailable, "hide the cgroup v2 mount of this hybrid layout: %w", err)
	}
	return nil
}

// settle makes the fresh mount namespace private and gives it a /proc of the fresh pid namespace: without it the runtime
// would write id maps of whatever host process has the same number.
func settle() error {
	if err := mount.Private("/"); err != nil {
		return err
	}
	if err := mount.Proc("/proc"); err != nil {
		return err
	}
	return loopback()
}

// loopback brings up the only interface of the fresh network namespace: programs talk to themselves over it.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "holder: loopback: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err == nil {
		ifr.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	}
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "holder: loopback: %w", err)
	}
	return nil
}

// launch starts the runtime, inside the sandbox's control group. What it writes goes to the tail, unless it has files.
func (h *held) launch(wall *Wall) (err error) {
	cmd := wall.Cmd
	if cmd.Stdout == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return rung.Errorf(rung.KindInternal, "start %s: %w", cmd.Path, err)
		}
		defer w.Close()
		cmd.Stdout, cmd.Stderr = w, w
		h.tail.follow(r)
	}
	start := func() (err error) { h.runtime, err = child.Start(cmd); return err }
	if h.group != nil {
		err = h.group.StartWith(cmd, start)
	} else {
		err = start()
	}
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "start %s: %w", cmd.Path, err)
	}
	return nil
}

// connect opens our end of the control channel.
func (h *held) connect(mine *os.File) error {
	conn, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		return rung.Errorf(rung.KindInternal, "holder: control channel: %w", err)
	}
	h.guest, err = mux.Open(conn)
	if err != nil {
		return rung.Errorf(rung.KindInternal, "holder: control channel: %w", err)
	}
	return nil
}

// drop becomes an unprivileged user for good. The runtime, a child that is root, stays what it is; it needs no signal from
// us, since our end is its end.
func drop(uid int) error {
	if uid == 0 {
		return nil
	}
	// Each call stops all threads until each has done it. What the process was started without is not given up again.
	groups, err := syscall.Getgroups()
	if err == nil && len(groups) > 0 {
		err = syscall.Setgroups(nil)
	}
	if err = errors.Join(err, syscall.Setresgid(uid, uid, uid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return rung.Errorf(rung.KindInternal, "holder: drop privileges: %w", err)
	}
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if e != 0 {
		return rung.Errorf(rung.KindInternal, "holder: no_new_privs: %w", e)
	}
	return nil
}

// wait blocks until the sandbox ends by itself, by its clock, by its client or by its client's death.
func (h *held) wait() Ended {
	exited := make(chan error, 1)
	go func() { exited <- h.runtime.Wait() }()
	var clock <-chan time.Time
	if h.order.WallClock > 0 {
		clock = time.After(h.order.WallClock)
	}
	select {
	case err := <-exited:
		return h.exited(err)
	case <-h.guest.Done():
		// The guest closed its channel or broke the protocol. Give the runtime a moment to tell why it ended.
		select {
		case err := <-exited:
			return h.exited(err)
		case <-time.After(500 * time.Millisecond):
			return Ended{Reason: rung.Failed, Detail: "the guest broke its control channel"}
		}
	case <-clock:
		return Ended{Reason: rung.TimedOut, Detail: "wall clock of " + h.order.WallClock.String() + " ran out"}
	case <-h.destroy:
		return Ended{Reason: rung.Killed, Detail: "destroyed by its owner"}
	}
}

func (h *held) exited(err error) Ended {
	h.tail.settle()
	detail := h.tail.String()
	if err != nil {
		detail = err.Error() + "\n" + detail
	}
	return Ended{Reason: rung.Exited, Detail: detail}
}

// end tells everybody how it ended and ends; the kernel does the rest.
func (h *held) end(e Ended) {
	h.stop()
	done := make(chan struct{})
	go func() { h.watched.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(200 * time.Millisecond): // the supervisor only flushes counts; the end does not wait for them
	}
	if e.OOM = h.oomKills() > 0; e.OOM && e.Reason == rung.Exited {
		e.Reason = rung.OOM
	}
	h.tell(message{Ended: &e})
	if !h.order.Namespaces {
		h.endWithout()
	}
	os.Exit(0)
}

// endWithout ends a sandbox of rung none, which has no namespace to die with: its guest ends what it started when its channel
// closes, and the control group has the rest.
func (h *held) endWithout() {
	h.guest.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil && unix.Kill(h.runtime.PID, 0) == nil {
		time.Sleep(time.Millisecond) // reaped by wait's goroutine
	}
	_ = unix.Kill(-h.runtime.PID, unix.SIGKILL)
	if h.group != nil {
		_ = h.group.Kill(context.WithoutCancel(ctx)) // what it cannot end, the next sweep finds
	}
}

func (h *held) oomKills() int64 {
	if h.group == nil {
		return 0
	}
	n, _ := h.group.OOMKills() // a kernel that does not count cannot tell; the limits say so
	return n
}

// socketpair makes the control channel: a connected pair, since gVisor takes a connected socket from outside but not an
// accept on one.
func socketpair() (mine, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, rung.Errorf(rung.KindInternal, "holder: socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control-guest"), nil
}

// tail keeps the last output of the runtime for error texts.
type tail struct {
	mu    sync.Mutex
	buf   []byte
	from  *os.File      // the pipe that is followed; nil if none
	ended chan struct{} // closed when it has ended
}

// follow takes what comes through a pipe until all who could write to it have gone.
func (t *tail) follow(r *os.File) {
	t.from, t.ended = r, make(chan struct{})
	go func() {
		defer close(t.ended)
		buf := make([]byte, 1<<10)
		for {
			n, err := r.Read(buf)
			_, _ = t.Write(buf[:n]) // never fails
			if err != nil {
				r.Close()
				return
			}
		}
	}()
}

// settle waits a moment for output that is on its way: others than the runtime, which has ended, may hold the pipe open.
func (t *tail) settle() {
	if t.from == nil {
		return
	}
	_ = t.from.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // fails when it is closed, which is what it is for
	<-t.ended
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(bytes.TrimSpace(t.buf), []byte("?")))
}
