// Package lease lends values to the gate of one sandbox. A lease is asked for by `rung run`, which gets what is no secret:
// the placeholders, the lease's name and its end. The values go to the gate by a socket that was handed over for this one
// delivery, and are on no disk, in no argument and in no environment on their way.
//
// On the socket goes one message: four bytes of length, big-endian, and rung.Lease as JSON. Whoever handed the socket over
// has told the gate before whose lease comes, and reads the gate's answer after.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker"
	"github.com/rung-dev/rung/internal/broker/agent"
	"github.com/rung-dev/rung/internal/broker/identity"
)

const (
	// MaxRequest bounds what is read on standard input.
	MaxRequest = 1 << 20
	// MaxTTL bounds a lease: a sandbox lives no longer.
	MaxTTL = rung.MaxTimeout + time.Hour
	// maxMessage is the gate's own bound.
	maxMessage = 8 << 20
	// asking bounds how long all sources together may take, delivery how long the gate may take to read. A revocation waits
	// for a delivery.
	asking   = 50 * time.Second
	delivery = 3 * time.Second
)

// Request is what `rung run` asks for, as JSON.
type Request struct {
	Sandbox   string               `json:"sandbox"`
	Agent     string               `json:"agent"`          // "" = rung.DefaultAgent
	Task      string               `json:"task,omitempty"` // in the caller's words, for the record
	Bindings  []rung.SecretBinding `json:"bindings,omitempty"`
	Audiences []string             `json:"audiences,omitempty"` // of tokens of the task's identity
	TTL       time.Duration        `json:"ttl_ns"`
	// Placeholders, if set, are kept instead of new ones: of a sandbox that has them already.
	Placeholders map[string]string `json:"placeholders,omitempty"`
}

// Answer is what `rung run` gets.
type Answer struct {
	Lease    string        `json:"lease"`
	Expires  time.Time     `json:"expires"`
	Secrets  []Placeholder `json:"secrets"`
	Identity []string      `json:"identity"`
}

// Placeholder is what the sandbox gets for a secret.
type Placeholder struct {
	Name        string `json:"name"`
	Placeholder string `json:"placeholder"`
}

// Parse reads a request strictly.
func Parse(r io.Reader) (Request, error) {
	var q Request
	text, err := io.ReadAll(io.LimitReader(r, MaxRequest+1))
	if err != nil || len(text) > MaxRequest {
		return q, rung.Errorf(rung.KindInvalid, "lease request: longer than %s or unreadable", rung.FormatBytes(MaxRequest))
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return q, rung.Errorf(rung.KindInvalid, "lease request: %w", err)
	}
	if q.Agent == "" {
		q.Agent = rung.DefaultAgent
	}
	if dec.More() {
		return q, rung.Errorf(rung.KindInvalid, "lease request: more than one")
	}
	return q, q.validate()
}

func (q Request) validate() error {
	errs := []error{rung.ValidName(q.Sandbox), rung.ValidName(q.Agent)}
	if len(q.Bindings) > rung.MaxSecretBindings || len(q.Audiences) > identity.MaxAudiences {
		errs = append(errs, rung.Errorf(rung.KindInvalid, "more than %d secrets or %d identities", rung.MaxSecretBindings, identity.MaxAudiences))
	}
	if q.TTL <= 0 || q.TTL > MaxTTL {
		errs = append(errs, rung.Errorf(rung.KindInvalid, "lease of %v: not between 0 and %v", q.TTL, MaxTTL))
	}
	sent := map[string]bool{}
	for _, b := range q.Bindings {
		errs = append(errs, b.Validate())
		if b.SigV4 != nil {
			continue // one key pair signs for several services
		}
		if sent[b.Name] {
			errs = append(errs, rung.Errorf(rung.KindInvalid, "secret %s is bound twice", b.Name).WithHint("name all its hosts in one binding: --secret "+b.Name+"@HOST,HOST"))
		}
		sent[b.Name] = true
	}
	for _, a := range q.Audiences {
		errs = append(errs, identity.ValidAudience(a))
	}
	for _, p := range q.Placeholders {
		if !rung.IsPlaceholder(p) {
			errs = append(errs, rung.Errorf(rung.KindInvalid, "a placeholder that is none"))
		}
	}
	return errors.Join(errs...)
}

// Grant asks the sources, and delivers the lease to the gate at the other end of conn. A revoked agent gets nothing, also
// when it is revoked while the sources are asked.
func Grant(ctx context.Context, state string, q Request, conn net.Conn) (Answer, error) {
	if err := agent.Permit(state, q.Agent); err != nil {
		return Answer{}, err
	}
	now := time.Now().UTC()
	l := rung.Lease{ID: "l" + random(10), Sandbox: q.Sandbox, Agent: q.Agent, Task: q.Task, Issued: now, Expires: now.Add(q.TTL)}
	defer l.Zero()
	if err := fill(ctx, state, q, &l); err != nil {
		return Answer{}, err
	}
	message, err := frame(&l)
	if err != nil {
		return Answer{}, err
	}
	defer clear(message)
	if err := agent.Deliver(ctx, state, q.Agent, func() error { return send(conn, message) }); err != nil {
		return Answer{}, err
	}
	return answer(&l), nil
}

// fill puts values and tokens into a lease. On an error the caller overwrites what is there.
func fill(ctx context.Context, state string, q Request, l *rung.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	if len(q.Bindings) > 0 {
		store, err := broker.Open(state)
		if err != nil {
			return err
		}
		defer store.Close()
		if err := bind(ctx, store, q, l); err != nil {
			return err
		}
	}
	if len(q.Audiences) == 0 {
		return nil
	}
	key, err := identity.Load(state)
	if err != nil {
		return err
	}
	for _, audience := range q.Audiences {
		id, err := key.Series(q.Agent, q.Sandbox, audience, l.Issued, l.Expires, identity.DefaultTTL)
		if err != nil {
			return err
		}
		l.Identity = append(l.Identity, id)
	}
	return nil
}

// bind gives each binding the value of its secret. Bindings of one secret share its placeholder and the memory of its value.
func bind(ctx context.Context, store *broker.Store, q Request, l *rung.Lease) error {
	var names []string
	for _, b := range q.Bindings {
		names = append(names, b.Name)
	}
	values, err := store.Values(ctx, names)
	if err != nil {
		return err
	}
	placeholders := map[string]string{}
	for _, b := range q.Bindings {
		if placeholders[b.Name] == "" {
			placeholders[b.Name] = q.Placeholders[b.Name]
		}
		if placeholders[b.Name] == "" {
			placeholders[b.Name] = rung.PlaceholderPrefix + random(20)
		}
		l.Secrets = append(l.Secrets, rung.LeasedSecret{SecretBinding: b, Placeholder: placeholders[b.Name], Value: values[b.Name]})
	}
	for _, s := range l.Secrets { // after all are in the lease, so that all are overwritten
		if err := fits(s); err != nil {
			return err
		}
	}
	return nil
}

// fits refuses a value that the places of its binding cannot carry: RFC 9110, section 5.5.
func fits(s rung.LeasedSecret) error {
	if s.SigV4 != nil {
		if _, err := rung.ParseAWSCredentials(s.Value); err != nil {
			return rung.Errorf(rung.KindInvalid, "secret %s: %w", s.Name, err).WithHint(rung.HintOf(err))
		}
		return nil
	}
	if n := len(s.Value); n < rung.MinSecretSent || n > rung.MaxSecretSent {
		return rung.Errorf(rung.KindInvalid, "secret %s is not of %d to %d bytes, so no request can carry it and no answer be searched for it",
			s.Name, rung.MinSecretSent, rung.MaxSecretSent)
	}
	for _, c := range s.Value {
		if c < ' ' || c >= 0x7f {
			return rung.Errorf(rung.KindInvalid, "secret %s has a line end, a control character or a byte beyond ASCII, which no header can carry", s.Name).
				WithHint("store it without, or in an encoding such as base64")
		}
	}
	return nil
}

// random is n random bytes as a-z2-7.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: it crashes the program instead
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

func answer(l *rung.Lease) Answer {
	a := Answer{Lease: l.ID, Expires: l.Expires, Secrets: []Placeholder{}, Identity: []string{}}
	seen := map[string]bool{}
	for _, s := range l.Secrets {
		if !seen[s.Name] {
			a.Secrets = append(a.Secrets, Placeholder{s.Name, s.Placeholder})
		}
		seen[s.Name] = true
	}
	for _, id := range l.Identity {
		a.Identity = append(a.Identity, id.Audience)
	}
	return a
}

// frame is the message to the gate.
func frame(l *rung.Lease) ([]byte, error) {
	text, err := json.Marshal(l)
	defer clear(text)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "encode the lease: %w", err)
	}
	if len(text) > maxMessage {
		return nil, rung.Errorf(rung.KindExhausted, "the secrets of one sandbox are %s in all, more than a lease may have", rung.FormatBytes(int64(len(text))))
	}
	message := make([]byte, 0, 4+len(text))
	return append(binary.BigEndian.AppendUint32(message, uint32(len(text))), text...), nil
}

func send(conn net.Conn, message []byte) error {
	err := conn.SetWriteDeadline(time.Now().Add(delivery))
	if err == nil {
		_, err = conn.Write(message)
	}
	if err == nil {
		return nil
	}
	kind := rung.KindUnavailable
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		kind = rung.KindTimeout
	}
	return rung.Errorf(kind, "the gate did not take the lease: %w", err)
}
