package broker

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync"

	"filippo.io/age"

	"github.com/rung-dev/rung"
)

// atOnce is how many sources are asked at the same time.
const atOnce = 4

// List tells the secrets by name.
func (s *Store) List() ([]Entry, error) {
	names, err := s.dir.Names(valueExt)
	if err != nil {
		return nil, err
	}
	list := []Entry{}
	for _, name := range names {
		if rung.ValidSecretName(name) != nil {
			continue // not ours
		}
		e := Entry{}
		meta, err := s.dir.Read(name+metaExt, maxMeta)
		if err != nil || json.Unmarshal(meta, &e) != nil || e.Name != name {
			e = Entry{Kind: "unknown"} // the value may be fine: check tells
		}
		e.Name = name
		list = append(list, e)
	}
	return list, nil
}

// Remove removes a secret; leases that have its value keep it until they end.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := rung.ValidSecretName(name); err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = s.dir.Remove(name + valueExt)
	if rest := s.dir.Remove(name + metaExt); rest != nil && !errors.Is(rest, fs.ErrNotExist) {
		err = errors.Join(err, rest)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return rung.Errorf(rung.KindNotFound, "no secret %s", name)
	}
	return err
}

// require tells a secret that is missing before anything else is wrong.
func (s *Store) require(name string) error {
	if err := rung.ValidSecretName(name); err != nil {
		return err
	}
	has, err := s.dir.Has(name + valueExt)
	if err == nil && !has {
		return rung.Errorf(rung.KindNotFound, "no secret %s", name).WithHint("rung secret add " + name)
	}
	return err
}

// Check asks a secret as a lease would and forgets the value.
func (s *Store) Check(ctx context.Context, name string) (Entry, error) {
	if err := s.require(name); err != nil {
		return Entry{Name: name}, err
	}
	id, err := s.key(false)
	if err != nil {
		return Entry{Name: name}, err
	}
	secret, err := s.open(id, name)
	if err != nil {
		return Entry{Name: name}, err
	}
	v, err := secret.ask(ctx)
	v.Zero()
	return Entry{Name: name, Kind: secret.Kind}, err
}

func (s sealed) ask(ctx context.Context) (rung.SecretValue, error) {
	if s.Exec == nil {
		return s.Value, nil
	}
	v, err := s.Exec.Run(ctx)
	if err != nil {
		return nil, rung.Errorf(rung.KindOf(err), "secret %s: %w", s.Name, err).WithHint(rung.HintOf(err))
	}
	return v, nil
}

// Values asks several secrets, each once. On an error there are none. The caller overwrites them.
func (s *Store) Values(ctx context.Context, names []string) (map[string]rung.SecretValue, error) {
	if len(names) == 0 {
		return nil, nil
	}
	for _, name := range names {
		if err := s.require(name); err != nil {
			return nil, err
		}
	}
	id, err := s.key(false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := asking{store: s, key: id, values: map[string]rung.SecretValue{}, slots: make(chan struct{}, atOnce)}
	var all sync.WaitGroup
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		all.Go(func() {
			a.slots <- struct{}{}
			defer func() { <-a.slots }()
			if err := a.one(ctx, name); err != nil {
				cancel() // the others' work is for nothing
			}
		})
	}
	all.Wait()
	if a.err != nil {
		for _, v := range a.values {
			v.Zero()
		}
		return nil, a.err
	}
	return a.values, nil
}

type asking struct {
	store *Store
	key   *age.X25519Identity
	slots chan struct{}

	mu     sync.Mutex
	values map[string]rung.SecretValue // guarded by mu
	err    error                       // guarded by mu; the first one
}

func (a *asking) one(ctx context.Context, name string) error {
	err := ctx.Err()
	var v rung.SecretValue
	if err == nil {
		var secret sealed
		if secret, err = a.store.open(a.key, name); err == nil {
			v, err = secret.ask(ctx)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.values[name] = v
	} else if a.err == nil {
		a.err = err
	}
	return err
}
