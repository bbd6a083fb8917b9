//go:build linux

package guest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/internal/guest/confine"
	"github.com/rung-dev/rung/internal/guest/fsys"
	"github.com/rung-dev/rung/internal/guest/harden"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/proc"
	"github.com/rung-dev/rung/internal/sys/mux"
)

// grace is how long processes may take to end after SIGTERM before this program ends, and they with it.
const grace = 2 * time.Second

// Serve is the whole life of rung-guest. It returns when the control channel has ended or a signal asked it to end; as
// PID 1 the end of the program then ends everything else.
func Serve(c *Config) error {
	debug.SetTraceback("single") // what ends up in an error text must start with the reason
	// User ids of single threads change (see ident.As), never the main thread's: it is what the kernel shows of a program. It
	// is the thread that forks (see proc.Forker).
	runtime.LockOSThread()
	if err := harden.Descriptors(); err != nil {
		return err
	}
	var report *confine.Report
	if len(c.Confine) > 0 && string(c.Confine) != "null" {
		done, err := confine.Apply(c.Confine)
		if err != nil {
			return err
		}
		report = &done
	}
	score := proc.OpenScoreAdj()
	if c.DropCaps {
		if err := drop(); err != nil {
			return err
		}
	}
	unix.Umask(0o022)
	if !c.Init {
		// Orphans of user code come to us instead of to the host's init, so that they can be found and killed.
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // fails nowhere that matters: killing by session remains
	}
	ln, err := listen(c)
	if err != nil {
		return err
	}
	files, err := fsys.New(c.Root)
	if err != nil {
		return err
	}
	forker := proc.NewForker()
	s := &server{cfg: c, files: files, confined: report, procs: proc.NewTable(proc.Config{Output: c.Output, Init: c.Init, OOM: score, Forker: forker})}
	s.measure.start(s)
	if c.Spare {
		spareThreads()
	}
	http := &http1.Server{Handler: s.handle}
	ended := make(chan error, 1)
	go func() { ended <- http.Serve(ln) }()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		err = s.wait(ended)
	}()
	forker.Run(stop)
	return err
}

// spare is how many threads are made ahead: what streaming, signals and the end of processes need at once.
const spare = 6

// spareThreads makes threads while there still are some to have: a fork bomb takes all that the control group allows, and
// the Go runtime ends a program that needs a thread and gets none. Threads once made stay.
func spareThreads() {
	var all sync.WaitGroup
	all.Add(spare)
	for range spare {
		go func() {
			runtime.LockOSThread() // each its own thread, until all have one
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		}()
	}
}

// drop gives up what the program must not keep: on the calling thread, which is the one that will fork, the bounding set,
// and then on all threads the capability to change it. It comes early: there are only two or three threads yet, and each
// that is made later is born without.
func drop() error {
	return errors.Join(harden.EmptyBounding(), harden.Private(), harden.Drop())
}

// wait ends the program in order.
func (s *server) wait(ended <-chan error) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-ended:
		if !s.cfg.Init {
			s.procs.KillAll() // no namespace ends with this program
		}
		return channelEnd(err)
	case <-signals:
	}
	s.procs.TerminateAll()
	limit := time.NewTimer(grace)
	defer limit.Stop()
	for _, p := range s.procs.List() {
		select {
		case <-p.Done():
		case <-ended:
			return nil
		case <-limit.C:
			return nil
		}
	}
	return nil
}

// channelEnd is nil for the ordinary end: the holder is gone.
func channelEnd(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err == nil || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "shutdown") {
		return nil
	}
	return fmt.Errorf("control channel: %w", err)
}

func listen(c *Config) (net.Listener, error) {
	if c.Listen != "" {
		ln, err := net.Listen("unix", c.Listen)
		if err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		return ln, nil
	}
	if err := unix.SetNonblock(c.ControlFD, true); err != nil {
		return nil, fmt.Errorf("control_fd %d: %w", c.ControlFD, err)
	}
	return mux.Listen(os.NewFile(uintptr(c.ControlFD), "control"))
}
