package audit

import (
	"crypto/ed25519"
	"errors"
	"io/fs"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

// Entry is one event to append: one cause, with how often it happened in the field "count".
type Entry = log.Entry

// Kinds of events. Each has its class in package ocsf; one that is not listed there is exported as a base event.
const (
	EventRun           = "run"            // the end of a run
	EventAcceptedLower = "accepted_lower" // a run below its threat's list, accepted by name
	EventRefused       = "refused"        // policy said no before anything ran
	EventDenied        = "denied"         // a denied system call
	EventNet           = "net"            // a use of the network; its layer is a field
	EventSecret        = "secret"         // a secret was added, leased, removed, or seen where it must not be
	EventAgent         = "agent"          // an agent was revoked or let in again
)

const logDir = "log"

// Append appends events to the log, as one piece. See log.Append for what it costs and bounds.
func (s *Store) Append(entries ...Entry) error {
	l, err := s.openLog(true)
	if err != nil {
		return err
	}
	return l.Append(entries...)
}

// Log returns the event log; KindNotFound when no event was ever written.
func (s *Store) Log() (*log.Log, error) { return s.openLog(false) }

// MakeLog is Log that makes an empty one if there is none.
func (s *Store) MakeLog() (*log.Log, error) { return s.openLog(true) }

// LogKey is PublicKey that makes none: a log without its key cannot be verified, and a new key would only look like proof
// that somebody else wrote it.
func (s *Store) LogKey() (ed25519.PublicKey, error) {
	if _, err := s.root.Lstat(keyFile); errors.Is(err, fs.ErrNotExist) {
		return nil, rung.Errorf(rung.KindNotFound, "the key that signed the event log is not there, so nothing can be verified").
			WithHint("restore keys/record.ed25519 in the state directory from a backup")
	}
	return s.PublicKey()
}

func (s *Store) openLog(make bool) (*log.Log, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	if s.log != nil {
		return s.log, nil
	}
	dir, err := s.root.OpenRoot(logDir)
	if errors.Is(err, fs.ErrNotExist) {
		if !make {
			return nil, rung.Errorf(rung.KindNotFound, "there is no event log yet").WithHint("the first run makes it")
		}
		// The modes of what is inside do not matter: nobody else gets in here.
		if err := s.root.Mkdir(logDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, stateError("make the log directory", err)
		}
		dir, err = s.root.OpenRoot(logDir)
	}
	if err != nil {
		return nil, stateError("open the log directory", err)
	}
	s.log = log.Open(dir, func() (ed25519.PrivateKey, error) {
		k, err := s.loadKey()
		if err != nil {
			return nil, err
		}
		return ed25519.NewKeyFromSeed(k.seed), nil
	})
	return s.log, nil
}
