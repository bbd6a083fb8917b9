// Package audit signs and stores the records of runs, and appends to the event log what happened: runs, accepted exceptions,
// refusals, denied calls and connections.
//
// Everything lives below one state directory:
//
//	keys/record.ed25519            the signing key, made on first use, 0600
//	records/<YYYY-MM-DD>/<id>.json one signed record, 0600
//	log/                           the tamper-evident event log, 0700; see package log
//
// A record is worth what its key is: whoever can read the key can sign anything, so a record proves itself only to somebody
// who trusts this key and this machine. The event log has each record's signature in it, and can be held against a
// checkpoint that was exported before.
//
// Records and events are written without fsync: a run must not wait for the disk, and a power cut may lose the newest. Only
// the key, which cannot be made again, and the log's checkpoints are synced. Writing is atomic, so a crash never leaves half
// a record behind.
package audit

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

// Caps of the store: the newest records are kept up to these, see Prune.
const (
	MaxRecords     = 10_000
	MaxRecordBytes = 256 << 20
	maxOneRecord   = 64 << 20
)

// Store is the state directory. Its methods may be called from several goroutines and several processes at once.
type Store struct {
	dir  string
	root *os.Root

	mu  sync.Mutex
	key *key // once loaded

	logMu sync.Mutex // not mu: the log asks for the key
	log   *log.Log   // once opened
}

// Open opens the store below the state directory, making the directory if needed. Nothing else is made before its first use.
func Open(dir string) (*Store, error) {
	// 0755: templates live there too, and the ids of a sandbox must reach those. What is secret has its own modes.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, stateError("make the state directory", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, stateError("open the state directory", err)
	}
	return &Store{dir: dir, root: root}, nil
}

// Close releases the directories.
func (s *Store) Close() error {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	err := s.root.Close()
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	return err
}

// stateError names what failed, with the kind and the remedy where the cause tells.
func stateError(what string, err error) *rung.Error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return rung.Errorf(rung.KindExhausted, "%s: %w", what, err).
			WithHint("free disk space or set RUNG_STATE_DIR to another place; the run itself is not affected")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return rung.Errorf(rung.KindUnavailable, "%s: %w", what, err).WithHint("set RUNG_STATE_DIR to a directory you may write to")
	}
	return rung.Errorf(rung.KindInternal, "%s: %w", what, err)
}
