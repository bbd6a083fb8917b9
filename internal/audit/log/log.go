// Package log is the tamper-evident event log: JSON lines in segments, each line naming the SHA-256 of the one before, with
// signed checkpoints in between.
//
//	log/0000000000000001.jsonl  a segment, named by the number of its first line; the chain goes on across segments
//	log/lock                    whoever appends holds a flock on it
//	log/head                    where the last line is and what it hashes to: a cache, and evidence when it is not true
//
// What it proves: whoever changes, removes, inserts or reorders lines without the key breaks the chain or a signature; up
// to MaxUnsigned of the newest lines are chained but not signed yet. Whoever has the key, or cuts the end off and mends
// the head file, is found only with a checkpoint that was exported before and kept elsewhere: Verify says "not anchored"
// without one.
//
// Lines are not synced, checkpoints are: a run must not wait for the disk, and a power cut may lose the newest lines. A
// line that a crash or a full disk tore in two is replaced by one that says so.
package log

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/lock"
)

// Caps of the log. The number of segments has none: only Prune removes old ones, and leaves a signed line about it.
const (
	MaxSegment  = 16 << 20        // bytes after which a new segment begins
	MaxLine     = 64 << 10        // bytes of one line with its end; fields that do not fit are left out
	MaxUnsigned = 256             // lines between two signatures
	MaxEntries  = 1024            // of one Append; the rest becomes one entry with their number
	maxBatch    = 4 << 20         // bytes of one Append
	lockWait    = 5 * time.Second // for other appenders, which need less than a millisecond each
)

const (
	lockFile = "lock"
	headFile = "head"
	suffix   = ".jsonl"
	digits   = 16 // of a segment's name
)

// Log is a log's directory. Its methods may be called from several goroutines and several processes at once.
type Log struct {
	root *os.Root
	key  func() (ed25519.PrivateKey, error) // asked only when something is to be signed

	segment  int64 // MaxSegment, less in tests
	unsigned int64 // MaxUnsigned, less in tests
	now      func() time.Time
	sync     func(*os.File) error
	wait     time.Duration // lockWait, less in tests
}

// Open returns the log in the directory, which it takes over; Close releases it. The key is asked for at the first line
// of a log and at checkpoints.
func Open(dir *os.Root, key func() (ed25519.PrivateKey, error)) *Log {
	return &Log{root: dir, key: key, segment: MaxSegment, unsigned: MaxUnsigned, now: time.Now, sync: (*os.File).Sync, wait: lockWait}
}

// Close releases the directory.
func (l *Log) Close() error { return l.root.Close() }

func (l *Log) time() time.Time { return l.now().UTC() }

// segmentName of the segment that begins with that line.
func segmentName(first int64) string { return fmt.Sprintf("%0*d%s", digits, first, suffix) }

// segments returns the first line's number of each segment, oldest first.
func (l *Log) segments() ([]int64, error) {
	dir, err := l.root.Open(".")
	if err != nil {
		return nil, failed("list the log", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, failed("list the log", err)
	}
	var list []int64
	for _, name := range names {
		text, ok := strings.CutSuffix(name, suffix)
		if n, err := strconv.ParseInt(text, 10, 64); ok && err == nil && n > 0 && segmentName(n) == name {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// open opens a file of the log, which must be a regular one.
func (l *Log) open(name string, flags int) (*os.File, error) { return OpenFile(l.root, name, flags) }

// lock takes the log's lock, for as long as the file is open. Waiting is bounded: a stopped holder must not stop everybody.
func (l *Log) lock(exclusive bool, flags int) (*os.File, error) {
	f, err := l.open(lockFile, flags)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.wait)
	defer cancel()
	if err = lock.Wait(ctx, f, exclusive); err == nil {
		return f, nil
	}
	f.Close() // nothing was written
	if errors.Is(err, lock.ErrHeld) {
		return nil, rung.Errorf(rung.KindTimeout, "another process has held the event log's lock for %s", l.wait)
	}
	return nil, err
}

// failed names what failed, with the kind and the remedy where the cause tells.
func failed(what string, err error) error {
	if e, ok := errors.AsType[*rung.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return rung.Errorf(rung.KindExhausted, "%s: %w", what, err).WithHint("free disk space; rung log prune --before 30d removes old events")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return rung.Errorf(rung.KindUnavailable, "%s: %w", what, err).WithHint("set RUNG_STATE_DIR to a directory you may write to")
	}
	return rung.Errorf(rung.KindInternal, "%s: %w", what, err)
}
