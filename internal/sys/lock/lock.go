// Package lock says who owns what in rung's runtime directory: ownership is a held flock, never a pid file, because a lock
// ends with the last process that holds it, whatever kills that process, and a pid may be somebody else's by then.
//
//	<runtime>/sandboxes/<id>/lock   held while the sandbox lives; the holder inherits the descriptor
//	<runtime>/slots/<n>             held while a sandbox uses the n-th range of ids; its text is the last user's id
//	<runtime>/reap.lock             shared: a directory is being made; exclusive: a directory without a lock is being judged
//
// A lock file appears under its name already locked (made under another name, locked, renamed), so whoever can lock a
// file named "lock" has found a dead sandbox. Only a directory in which there is no lock file yet, or no longer, is
// ambiguous; its maker holds reap.lock shared meanwhile, so a reaper that gets it exclusively knows that the maker is
// gone. Hence a reaper delays no start, and starts do not starve a reaper.
//
// Locks belong to the open file: a descriptor passed to another process keeps it held. Nothing here ever unlocks but by
// closing, since an explicit unlock would take it from every process that shares the file.
package lock

import (
	"os"

	"github.com/rung-dev/rung"
)

// Slots is the number of id ranges: host ids from 0x70000000 on in steps of 65536, below 2^31.
const Slots = 4093

// maxDead bounds the descriptors one sweep holds; the next sweep takes the rest.
const maxDead = 256

// Sandbox is a sandbox directory whose lock this process holds.
type Sandbox struct {
	ID   string
	Dir  string
	Lock *os.File
}

// Close gives the lock up without removing anything: unless another process holds the same file, the sandbox is dead from
// now on.
func (s *Sandbox) Close() error { return s.Lock.Close() }

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if known := rung.KindOf(err); known != rung.KindInternal {
		return err
	}
	kind := rung.KindInternal
	if full(err) {
		kind = rung.KindExhausted
	}
	return rung.Errorf(kind, format+": %w", append(args, err)...)
}
