package audit

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
)

// Kinds of events.
const (
	EventAcceptedLower = "accepted_lower" // a run below its threat's list, accepted by name
	EventRefused       = "refused"        // policy said no
	EventDenied        = "denied"         // summary of a run's denied system calls
)

const (
	eventFile    = "events.jsonl"
	eventLock    = "events.lock"
	eventFiles   = 4        // the current one and three older
	maxEventFile = 16 << 20 // then it is rotated
	maxEventLine = 64 << 10
)

type event struct {
	Time   time.Time      `json:"time"`
	Kind   string         `json:"kind"`
	Fields map[string]any `json:"fields,omitempty"`
	Cut    bool           `json:"cut,omitempty"` // the fields were too long to keep
}

// Event appends one line. Each is one write to a file opened for appending, so lines of several processes never mix.
func (s *Store) Event(kind string, fields map[string]any) error {
	now := time.Now().UTC()
	line, err := json.Marshal(event{Time: now, Kind: kind, Fields: fields})
	if err != nil {
		return rung.Errorf(rung.KindInternal, "encode an event: %w", err)
	}
	if len(line) > maxEventLine {
		if line, err = json.Marshal(event{Time: now, Kind: kind[:min(len(kind), 64)], Cut: true}); err != nil {
			return rung.Errorf(rung.KindInternal, "encode an event: %w", err)
		}
	}
	f, err := s.root.OpenFile(eventFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return stateError("open the event file", err)
	}
	n, err := f.Write(append(line, '\n'))
	if err != nil && n > 0 {
		_, _ = f.Write([]byte{'\n'}) // keep what was cut off from swallowing the next line; the disk is full anyway
	}
	info, statErr := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return stateError("write an event", err)
	}
	if statErr == nil && info.Size() >= maxEventFile {
		return s.rotate(maxEventFile)
	}
	return nil
}

// rotate renames under a lock, and only if the file is still too long: another process may just have done it. A process that
// cannot have the lock leaves it to the one that has.
func (s *Store) rotate(limit int64) error {
	lock, err := s.root.OpenFile(eventLock, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return stateError("lock the events", err)
	}
	defer lock.Close() // gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil
	}
	info, err := s.root.Lstat(eventFile)
	if err != nil || info.Size() < limit {
		return nil
	}
	for n := eventFiles - 1; n > 0; n-- {
		if err := s.root.Rename(eventName(n-1), eventName(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return stateError("rotate the events", err)
		}
	}
	return nil
}

func eventName(n int) string {
	if n == 0 {
		return eventFile
	}
	return eventFile + "." + strconv.Itoa(n)
}
