// Package broker keeps secrets for sandboxes that never see them. A value is encrypted at rest, or is asked from its owner's
// own program each time; it leaves the broker in a lease only, which goes to the gate and to nobody else. What the sandbox
// gets is a placeholder.
//
// Everything lies below the state directory, private to its user:
//
//	secrets/key        the age identity that opens the rest, made on first use
//	secrets/NAME.age   where the value comes from, or the value itself, encrypted (X25519)
//	secrets/NAME.json  what a list may show: kind and time
//	identity/ed25519   see package identity
//	agents/NAME.json   see package agent
//
// Whoever reads the key and the files has the values: encryption at rest is for backups, images and disks that leave the
// host, not against this user's own processes. That is why no sandbox has this user's id.
package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"time"

	"filippo.io/age"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/keep"
	"github.com/rung-dev/rung/internal/broker/source"
)

const (
	dirName    = "secrets"
	keyName    = "key"
	keyMark    = "rung-secrets-key-v1 "
	valueExt   = ".age"
	metaExt    = ".json"
	maxMeta    = 4 << 10
	maxSealed  = 192 << 10 // a value of 64 KiB in base64, its source and age's own
	maxSecrets = 4096
	lockWait   = 10 * time.Second
	sealedForm = 1
)

// Kinds of sources.
const (
	FromStdin    = "stdin"
	FromTerminal = "terminal"
	FromEnv      = "env"
	FromFile     = "file"
	FromExec     = "exec"
)

// Entry is what is told about a secret.
type Entry struct {
	Name    string    `json:"name"`
	Kind    string    `json:"source"`         // FromStdin …; "unknown" when its description is damaged
	From    string    `json:"from,omitempty"` // the program of FromExec
	Created time.Time `json:"created,omitzero"`
}

// sealed is the text that is encrypted. The name is inside as well, so that a file under another's name is noticed.
type sealed struct {
	Form  int              `json:"form"`
	Name  string           `json:"name"`
	Kind  string           `json:"kind"`
	Value rung.SecretValue `json:"value,omitempty"`
	Exec  *source.Exec     `json:"exec,omitempty"`
}

// Store is the secrets of one state directory. Its methods may be called from several processes at once.
type Store struct{ dir *keep.Dir }

// Open opens the secrets below the state directory and makes their directory where it is missing.
func Open(state string) (*Store, error) {
	d, err := keep.Make(state, dirName)
	if err != nil {
		return nil, err
	}
	return &Store{d}, nil
}

// Close releases the directory.
func (s *Store) Close() error { return s.dir.Close() }

// Add stores a value, which it overwrites afterwards.
func (s *Store) Add(ctx context.Context, name, kind string, value rung.SecretValue, replace bool) error {
	defer value.Zero()
	return s.put(ctx, sealed{Form: sealedForm, Name: name, Kind: kind, Value: value}, "", replace)
}

// AddExec stores a source that is asked at each lease.
func (s *Store) AddExec(ctx context.Context, name string, e source.Exec, replace bool) error {
	return s.put(ctx, sealed{Form: sealedForm, Name: name, Kind: FromExec, Exec: &e}, e.Shown(), replace)
}

func (s *Store) put(ctx context.Context, secret sealed, from string, replace bool) error {
	if err := rung.ValidSecretName(secret.Name); err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.dir.Sweep()
	known, err := s.dir.Names(valueExt)
	if err != nil {
		return err
	}
	if len(known) >= maxSecrets {
		return rung.Errorf(rung.KindExhausted, "there are %d secrets, which is all there can be", maxSecrets)
	}
	if has, err := s.dir.Has(secret.Name + valueExt); err != nil {
		return err
	} else if has && !replace {
		return rung.Errorf(rung.KindExists, "secret %s exists", secret.Name).WithHint("--replace, or rung secret rm " + secret.Name)
	}
	id, err := s.key(len(known) == 0)
	if err != nil {
		return err
	}
	text, err := seal(id, secret)
	if err != nil {
		return err
	}
	meta, err := json.Marshal(Entry{Name: secret.Name, Kind: secret.Kind, From: from, Created: time.Now().UTC()})
	if err != nil {
		return rung.Errorf(rung.KindInternal, "describe the secret: %w", err)
	}
	// The value first: what has one is a secret, a description alone is nothing.
	return errors.Join(s.dir.Write(secret.Name+valueExt, text), s.dir.Write(secret.Name+metaExt, meta))
}

func (s *Store) lock(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return s.dir.Lock(ctx, true)
}

// key returns the key, and makes it where nothing is encrypted yet.
func (s *Store) key(fresh bool) (*age.X25519Identity, error) {
	text, err := s.dir.Read(keyName, 1024)
	if errors.Is(err, fs.ErrNotExist) {
		if !fresh {
			return nil, rung.Errorf(rung.KindUnavailable, "the key %s is missing, and the secrets beside it open with nothing else", s.dir.Path(keyName)).
				WithHint("restore it from a backup, or remove the secrets (rung secret rm) and add them again")
		}
		return s.makeKey()
	}
	if err != nil {
		return nil, err
	}
	defer clear(text)
	line, ok := bytes.CutPrefix(bytes.TrimSuffix(text, []byte("\n")), []byte(keyMark))
	id, err := age.ParseX25519Identity(string(line))
	if !ok || err != nil { // the error is not shown: it may quote the key
		return nil, rung.Errorf(rung.KindUnavailable, "the key %s is damaged", s.dir.Path(keyName)).
			WithHint("restore it from a backup, or move it away, remove the secrets (rung secret rm) and add them again")
	}
	return id, nil
}

func (s *Store) makeKey() (*age.X25519Identity, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "make the key of the secrets: %w", err)
	}
	text := []byte(keyMark + id.String() + "\n")
	defer clear(text)
	if err := s.dir.Create(keyName, text); err != nil {
		return nil, err
	}
	return id, nil
}

func seal(id *age.X25519Identity, secret sealed) ([]byte, error) {
	plain, err := json.Marshal(secret)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "encode the secret: %w", err)
	}
	defer clear(plain)
	var out bytes.Buffer
	w, err := age.Encrypt(&out, id.Recipient())
	if err == nil {
		_, err = w.Write(plain)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "encrypt the secret: %w", err)
	}
	return out.Bytes(), nil
}

// open returns what is stored of a secret. Its value is the caller's to overwrite.
func (s *Store) open(id *age.X25519Identity, name string) (sealed, error) {
	text, err := s.dir.Read(name+valueExt, maxSealed)
	if err != nil {
		return sealed{}, err
	}
	plain := make([]byte, maxSealed) // one allocation: growing would leave copies behind
	defer clear(plain)
	n := 0
	r, err := age.Decrypt(bytes.NewReader(text), id)
	if err == nil {
		n, err = fill(plain, r)
	}
	var secret sealed
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(plain[:n]))
		dec.DisallowUnknownFields()
		err = dec.Decode(&secret)
	}
	if err != nil || secret.Form != sealedForm || secret.Name != name || (secret.Exec == nil) == (len(secret.Value) == 0) {
		secret.Value.Zero()
		return sealed{}, rung.Errorf(rung.KindUnavailable, "secret %s is damaged or was encrypted for another key", name).
			WithHint("rung secret add --replace " + name)
	}
	return secret, nil
}

// fill reads r to its end. Only io.EOF proves that nothing is missing: age's reader tells a truncated file by
// io.ErrUnexpectedEOF, which io.ReadFull would say of a whole one, too.
func fill(buf []byte, r io.Reader) (n int, err error) {
	for n < len(buf) {
		var m int
		m, err = r.Read(buf[n:])
		n += m
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, errors.New("longer than any secret")
}
