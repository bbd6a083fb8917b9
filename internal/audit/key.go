package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
	"github.com/rung-dev/rung/internal/sys/below"
)

const (
	keyDir  = "keys"
	keyFile = keyDir + "/record.ed25519"
	// keyMark begins the file, so that nothing else is ever taken for a key.
	keyMark = "rung-record-key-v1 "
)

var encoding = base64.StdEncoding.Strict()

type key struct {
	*signer
	seed []byte
	text string // the public key as in rung.Signature.Key
}

// PublicKey returns the key that verifies this store's records, making it on first use.
func (s *Store) PublicKey() (ed25519.PublicKey, error) {
	k, err := s.loadKey()
	if err != nil {
		return nil, err
	}
	return k.public, nil
}

// loadKey reads the key once per process. A failure is not remembered, since the next call may find a freed disk.
func (s *Store) loadKey() (*key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	k, err := s.readKey()
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.makeKey(); err == nil {
			k, err = s.readKey()
		}
	}
	if err != nil {
		return nil, err
	}
	s.key = k
	return k, nil
}

func (s *Store) readKey() (*key, error) {
	f, err := log.OpenFile(s.root, keyFile, os.O_RDONLY)
	if rung.KindOf(err) == rung.KindUnavailable {
		return nil, err
	} else if err != nil {
		return nil, stateError("open the record key", err)
	}
	defer f.Close()
	if err := private(f); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return nil, stateError("read the record key", err)
	}
	seed, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), keyMark)
	raw, err := encoding.DecodeString(seed)
	if !ok || err != nil || len(raw) != ed25519.SeedSize {
		return nil, rung.Errorf(rung.KindInternal, "the record key %s is damaged", f.Name()).
			WithHint("restore it from a backup, or move it away: a new one is made, and old records verify with the old one only")
	}
	k := &key{signer: newSigner(raw), seed: raw}
	k.text = encoding.EncodeToString(k.public)
	return k, nil
}

// private refuses a key that somebody else could read or has put there.
func private(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return stateError("look at the record key", err)
	}
	if !info.Mode().IsRegular() || !below.Private(info) {
		return rung.Errorf(rung.KindUnavailable, "the record key %s is not a private file of user %d", f.Name(), os.Geteuid()).
			WithHint("it must be a regular file of mode 0600; if others could read it, move it away so that a new one is made")
	}
	return nil
}

// makeKey writes a whole synced key under a name of its own and links it to its place. Of several processes doing so at
// once exactly one link succeeds, nobody sees half a key, and every loser reads the winner's.
func (s *Store) makeKey() error {
	if err := s.root.Mkdir(keyDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return stateError("make the key directory", err)
	}
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails: it crashes the program instead
	name := keyDir + "/.new-" + rand.Text()
	defer s.root.Remove(name) // not there after a failed write, which is fine
	if err := s.writeSynced(name, keyMark+encoding.EncodeToString(seed)+"\n"); err != nil {
		return stateError("write the record key", err)
	}
	if err := s.root.Link(name, keyFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return stateError("put the record key in place", err)
	}
	dir, err := s.root.Open(keyDir)
	if err != nil {
		return stateError("sync the key directory", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return stateError("sync the key directory", err)
	}
	return nil
}

func (s *Store) writeSynced(name, text string) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
