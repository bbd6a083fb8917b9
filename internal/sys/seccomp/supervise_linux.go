package seccomp

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"golang.org/x/sys/unix"
)

// Supervise answers every call that the filter behind listener reports with EPERM, never with "continue", and reports the
// attempts. It returns nil when the filter's last user is gone, and the context's cause when it is done. It has then
// reported everything it counted, and closed listener.
//
// report is called from Supervise's own goroutine and must not block for long, since no attempt is answered meanwhile. It
// gets, for each kind of attempt (the call, the socket family or namespaces asked for, the process), the first at once and
// the number of further ones at most every 100 ms. There are never more than 257 kinds for one listener: what is too much
// to keep apart by process is counted by call, and then under the name Other.
//
// At most 256 attempts are answered at once, and then 2,000 a second, 32 at a time: under a flood the attempts wait, in the
// order in which they came, which slows nobody who makes no such calls, and takes some five per cent of a core. Whoever gets
// a listener has to call Supervise at once: attempts that nobody answers wait without an end.
//
// The process id is the one that Supervise's own process sees in its pid namespace; 0 when it cannot see it.
func Supervise(ctx context.Context, listener *os.File, report func(rung.Denied)) error {
	s, err := newSupervisor(listener, report)
	_ = listener.Close() // the supervisor has its own descriptor; nothing is buffered in this one
	if err != nil {
		return err
	}
	defer func() { _ = s.file.Close() }() // nothing is buffered; an error could not be acted on
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		if err := s.wait(ctx); err != nil {
			s.tally.flush(time.Now(), true)
			if errors.Is(err, errGone) {
				return nil
			}
			return err
		}
	}
}

// errGone says that nobody uses the filter any more.
var errGone = errors.New("the filter has no more users")

type supervisor struct {
	file   *os.File
	conn   syscall.RawConn
	notes  *notes
	tally  *tally
	bucket bucket
	due    time.Time // when the tally has something to report
	armed  time.Time // until when the current wait lasts
}

func newSupervisor(listener *os.File, report func(rung.Denied)) (*supervisor, error) {
	n, err := newNotes()
	if err != nil {
		return nil, err
	}
	// A descriptor of its own in non-blocking mode, so that waiting is the run-time's poller's and costs no thread.
	fd, err := unix.FcntlInt(listener.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "duplicate the seccomp listener: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, rung.Errorf(rung.KindInternal, "seccomp listener: %w", err)
	}
	s := &supervisor{file: os.NewFile(uintptr(fd), "seccomp listener"), notes: n, tally: newTally(report)}
	s.bucket.tokens, s.bucket.last = answerBurst, time.Now()
	if s.conn, err = s.file.SyscallConn(); err == nil {
		err = s.file.SetReadDeadline(time.Time{}) // fails where the poller does not take the descriptor
	}
	if err != nil {
		_ = s.file.Close()
		return nil, rung.Errorf(rung.KindInternal, "seccomp listener: %w", err)
	}
	return s, nil
}

// wait handles what is there, or waits for something to happen: an attempt, the end, or the time of a report.
func (s *supervisor) wait(ctx context.Context) error {
	s.armed = s.due
	if err := s.file.SetReadDeadline(s.armed); err != nil {
		return rung.Errorf(rung.KindInternal, "seccomp listener: %w", err)
	}
	if ctx.Err() != nil { // looked at after the deadline is set, which may have overwritten the one that stops us
		return context.Cause(ctx)
	}
	var inner error
	err := s.conn.Read(func(fd uintptr) bool {
		var again bool
		again, inner = s.drain(ctx, int(fd))
		return !again
	})
	if inner != nil {
		return inner
	}
	s.due = s.tally.flush(time.Now(), false)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return rung.Errorf(rung.KindInternal, "wait for denied calls: %w", err)
	}
	return nil
}

// drain answers what is there. It asks to be called again once there is more, unless the wait has to end at another time.
func (s *supervisor) drain(ctx context.Context, fd int) (again bool, err error) {
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, 0); err != nil && !errors.Is(err, unix.EINTR) {
			return false, rung.Errorf(rung.KindInternal, "poll the seccomp listener: %w", err)
		}
		switch {
		case p[0].Revents&unix.POLLIN != 0:
			if err := s.one(ctx, fd); err != nil {
				return false, err
			}
		case p[0].Revents != 0: // POLLHUP; nothing is left to be answered
			return false, errGone
		default:
			return s.due.Equal(s.armed), nil
		}
	}
}

// one receives and answers one attempt.
func (s *supervisor) one(ctx context.Context, fd int) error {
	n, err := s.notes.receive(fd)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR):
		return nil // the process was killed or interrupted in between
	case err != nil:
		return rung.Errorf(rung.KindInternal, "receive a denied call: %w", err)
	}
	now := time.Now()
	if err := s.pause(ctx, s.bucket.take(now)); err != nil {
		return err // unanswered; closing the listener answers with ENOSYS
	}
	s.tally.add(attempt{nr: n.nr, args: n.args, tid: n.tid, at: now, process: func() (int, string) { return s.process(fd, n) }})
	if now.After(s.due) {
		s.due = s.tally.flush(now, false)
	}
	// Always an error number, never SECCOMP_USER_NOTIF_FLAG_CONTINUE: the arguments behind pointers could be changed between
	// our look and the kernel's.
	if err := s.notes.answer(fd, n.id, unix.EPERM); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINPROGRESS) {
		return rung.Errorf(rung.KindInternal, "answer a denied call: %w", err)
	}
	return nil
}

// process looks up the process that made the attempt, and its name. While the thread waits for its answer its id cannot be
// given to another; whether it still waited when its status was read is asked afterwards.
func (s *supervisor) process(fd int, n note) (int, string) {
	if n.tid <= 0 {
		return 0, ""
	}
	f, err := os.OpenFile("/proc/"+strconv.Itoa(n.tid)+"/status", os.O_RDONLY, 0)
	if err != nil {
		return n.tid, ""
	}
	defer func() { _ = f.Close() }() // opened for reading
	var b [512]byte                  // Name and Tgid are in the first four lines
	size, _ := f.Read(b[:])
	if !s.notes.valid(fd, n.id) {
		return n.tid, ""
	}
	pid, name := n.tid, ""
	for line := range strings.Lines(string(b[:size])) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":\t")
		if key == "Name" {
			name = clean(value)
		} else if v, err := strconv.Atoi(value); key == "Tgid" && err == nil {
			pid = v
			break
		}
	}
	return pid, name
}

// pause waits before an answer while the bucket is empty.
func (s *supervisor) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
