package gate

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/secret"
)

// leases are the values lent to one session.
type leases struct {
	mu      sync.Mutex
	pending bool // values are expected: nothing passes before; guarded by mu
	ended   bool // nothing passes any more, and no lease is taken; guarded by mu
	expires time.Time
	lent    []rung.Lease // for identities and signatures; guarded by mu
	timer   *time.Timer  // ends all when the first of them expires; guarded by mu
}

func (l *leases) expect(secrets []rung.SecretBinding, e rung.Egress) {
	l.pending = len(secrets) > 0
	for _, r := range e.Rules {
		l.pending = l.pending || r.Identity != ""
	}
}

// ready says why nothing may pass yet, or any more.
func (l *leases) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended || !l.expires.IsZero() && time.Now().After(l.expires):
		return rung.Errorf(rung.KindRefused, "the lease of this sandbox's secrets has ended")
	case l.pending:
		return rung.Errorf(rung.KindRefused, "this sandbox's secrets have not come yet")
	}
	return nil
}

// token returns a copy of the task's identity for an audience: what is lent may be overwritten at any time.
func (l *leases) token(audience string) (rung.SecretValue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lease := range l.lent {
		for _, id := range lease.Identity {
			if id.Audience == audience {
				if t := id.Current(time.Now()); t != nil {
					return slices.Clone(t), nil
				}
			}
		}
	}
	return nil, rung.Errorf(rung.KindRefused, "this task has no valid identity token for %s", audience)
}

// signer returns a copy of the credentials for signing requests to a host, nil if there are none.
func (l *leases) signer(host string) *rung.LeasedSecret {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.pair(host)
	if s == nil {
		return nil
	}
	one := *s
	one.Value = slices.Clone(s.Value)
	return &one
}

// signs is whether requests to a host are signed.
func (l *leases) signs(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pair(host) != nil
}

// pair returns the key pair for a host, nil if there is none. The caller holds mu for as long as it looks at it.
func (l *leases) pair(host string) *rung.LeasedSecret {
	for i := range l.lent {
		for j := range l.lent[i].Secrets {
			if s := &l.lent[i].Secrets[j]; s.SigV4 != nil && secret.Covers(s.Hosts, host) {
				return s
			}
		}
	}
	return nil
}

// end overwrites the values. had is whether there ever were any.
func (l *leases) end() (had bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lent {
		l.lent[i].Zero()
	}
	l.lent, l.ended = nil, true
	if l.timer != nil {
		l.timer.Stop()
	}
	return l.timer != nil
}

// drop ends the session's leases, for good: the sandbox, its agent's right or their time is over. Whatever still uses a
// value fails. It may be called again, when less is left that holds copies.
func (s *session) drop() {
	s.swap.Close()
	if s.leases.end() {
		s.forgets.soon()
	}
}

// lend takes a lease: from here on the session's requests may use its values.
func (s *session) lend(l rung.Lease) error {
	if l.Sandbox != s.id {
		l.Zero()
		return rung.Errorf(rung.KindInvalid, "the lease is for another sandbox")
	}
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	if s.leases.ended {
		l.Zero()
		return rung.Errorf(rung.KindConflict, "the sandbox has ended")
	}
	for i := range l.Secrets {
		if err := s.bindOne(&l.Secrets[i]); err != nil {
			l.Zero()
			return err
		}
	}
	s.leases.lent, s.leases.pending, s.leases.expires = append(s.leases.lent, l), false, l.Expires
	if s.leases.timer == nil {
		s.leases.timer = time.AfterFunc(time.Until(l.Expires), s.drop)
	}
	return nil
}

// bindOne gives one leased secret to those who look at requests. What only they need is not kept a second time.
func (s *session) bindOne(one *rung.LeasedSecret) error {
	if one.SigV4 != nil {
		if err := s.hideSession(one); err != nil {
			return err
		}
		return s.swap.Watch(one.Name, one.Placeholder, one.Hosts)
	}
	b := secret.Binding{
		Name: one.Name, Value: secret.Value(one.Value), Hosts: one.Hosts, Header: one.Header, Format: one.SecretBinding.Format,
		Query: one.Query, Body: one.Body, Placeholder: one.Placeholder,
	}
	if one.Basic {
		b.Header, b.Format = "Authorization", ""
	}
	_, err := s.swap.Add(b)
	one.Value.Zero()
	return err
}

// hideSession masks the one part of a key pair that requests carry as it is.
func (s *session) hideSession(one *rung.LeasedSecret) error {
	c, err := rung.ParseAWSCredentials(one.Value)
	if err != nil {
		return err
	}
	for _, host := range one.Hosts {
		if err := s.swap.Hide(one.Name+" (session)", secret.Value(c.Session), host); err != nil {
			return err
		}
	}
	return nil
}

// identity returns the token for an audience, and sees to it that the host cannot tell it to the sandbox: its signature,
// without which it is nothing, is masked in answers.
func (s *session) identity(audience, host string) (rung.SecretValue, error) {
	token, err := s.leases.token(audience)
	if err != nil {
		return nil, err
	}
	if err := s.swap.Hide("identity "+strconv.Quote(audience), secret.Value(token[bytes.LastIndexByte(token, '.')+1:]), host); err != nil {
		return nil, err
	}
	return token, nil
}
