package gate

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/secret"
)

// leases are the values lent to one session.
type leases struct {
	mu      sync.Mutex
	pending bool // values are expected: nothing passes before; guarded by mu
	expires time.Time
	lent    []rung.Lease // for identities and signatures; guarded by mu
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
	if l.pending {
		return rung.Errorf(rung.KindRefused, "this sandbox's secrets have not come yet")
	}
	if !l.expires.IsZero() && time.Now().After(l.expires) {
		return rung.Errorf(rung.KindRefused, "the lease of this sandbox's secrets has ended")
	}
	return nil
}

// token returns the task's identity for an audience.
func (l *leases) token(audience string) (rung.SecretValue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lease := range l.lent {
		for _, id := range lease.Identity {
			if id.Audience == audience {
				if t := id.Current(time.Now()); t != nil {
					return t, nil
				}
			}
		}
	}
	return nil, rung.Errorf(rung.KindRefused, "this task has no valid identity token for %s", audience)
}

// signer returns the credentials for signing requests to a host, nil if there are none.
func (l *leases) signer(host string) *rung.LeasedSecret {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lent {
		for j := range l.lent[i].Secrets {
			if s := &l.lent[i].Secrets[j]; s.SigV4 != nil && covers(s.Hosts, host) {
				return s
			}
		}
	}
	return nil
}

// covers reports whether a binding's hosts, exact names or *.suffix, mean a host.
func covers(hosts []string, host string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		return h == host || strings.HasPrefix(h, "*.") && strings.HasSuffix(host, h[1:])
	})
}

func (l *leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lent {
		l.lent[i].Zero()
	}
	l.lent, l.pending = nil, true
}

// lend takes a lease: from here on the session's requests may use its values.
func (s *session) lend(l rung.Lease) error {
	if l.Sandbox != s.id {
		l.Zero()
		return rung.Errorf(rung.KindInvalid, "the lease is for another sandbox")
	}
	for _, one := range l.Secrets {
		if one.SigV4 != nil {
			continue
		}
		b := secret.Binding{
			Name: one.Name, Value: secret.Value(one.Value), Hosts: one.Hosts, Header: one.Header, Format: one.SecretBinding.Format,
			Query: one.Query, Body: one.Body, Placeholder: one.Placeholder,
		}
		if one.Basic {
			b.Header, b.Format = "Authorization", ""
		}
		if _, err := s.swap.Add(b); err != nil {
			l.Zero()
			return err
		}
	}
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	s.leases.lent, s.leases.pending, s.leases.expires = append(s.leases.lent, l), false, l.Expires
	return nil
}
