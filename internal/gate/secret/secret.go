// Package secret keeps secrets out of a sandbox and lets it use them. Inside there is only a placeholder
// (rung-secret-<random>); on its way to a host that the secret is bound to, the gate swaps it for the value. On its way
// anywhere else it is refused. In what that host answers, the value is masked again.
//
// Swapped are header values, the user and password inside Basic credentials (RFC 7617), and, where the binding says so,
// the query and the body. Found, in any case and any spelling of the kinds below, are placeholders in header names and
// values, path, query, body and websocket messages.
//
// Masked are the spellings: as it is, base64 (both alphabets, padded or not, at any of the three alignments), percent
// encoding (of any subset of characters, + for a space), and JSON escapes (\uXXXX, \/, \n and their like). Not masked is
// any other transformation: hexadecimal, reversal, encryption, compression, base64 broken into lines, one value cut in
// two by the other end. A host that wants to tell the sandbox a secret it was given can do so; a binding is trust.
//
// Values are held in byte slices that Close overwrites. Go copies memory where it likes, headers are strings, and TLS
// has buffers of its own: Close makes a value rarer in memory, and cannot promise that none is left. No error and no
// formatting of this package's types contains a value.
package secret

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/hello"
)

const (
	// Prefix begins every placeholder.
	Prefix = "rung-secret-"
	// minValue keeps masking from hitting ordinary text: fewer bytes occur by chance.
	minValue = 8
	// maxValue bounds the look-behind of masking (six bytes for one at most) and the header a value goes into.
	maxValue = 8 << 10
	// maxSecrets caps the secrets of one sandbox.
	maxSecrets = 64
)

// Value is a secret's bytes. However it is printed, it says only that it is one.
type Value []byte

const redacted = "[secret]"

func (Value) String() string               { return redacted }
func (Value) GoString() string             { return redacted }
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Value) LogValue() slog.Value         { return slog.StringValue(redacted) }

// Format keeps %x, %q and %v of the bytes away.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) } // the printer keeps its own errors

// Binding says where one secret may go.
type Binding struct {
	Name  string
	Value Value
	Hosts []string // exact names, or *.suffix; in lower case, ASCII
	// Header names the one header field the placeholder may be in; "" means any.
	Header string
	// Format, with Header, makes the gate set that field itself on every request to the hosts that does not carry it:
	// "{}" in it stands for the value. The sandbox then needs no placeholder at all.
	Format string
	Query  bool // swapped in the query as well
	Body   bool // swapped in the body as well
	Plain  bool // also over plain HTTP; without it only over TLS
	// Placeholder is what the sandbox has already; "" has Add make one.
	Placeholder string
}

// Target is where a request goes.
type Target struct {
	Host string // normal form
	TLS  bool
}

// Swap holds the secrets of one sandbox. It is safe for concurrent use. A nil Swap holds none.
type Swap struct {
	mu     sync.RWMutex // read-locked while bytes are looked at, so that Close never wipes a value that is being masked
	tab    *table
	closed bool
}

// entry is one bound secret.
type entry struct {
	Binding
	placeholder string
	signed      bool   // see Watch
	group       string // see Hide
	find, mask  []pattern
	names       []pattern // the value in any case, as a header's name has it
}

// table does not change once it is made.
type table struct {
	entries []*entry
	find    *engine // placeholders in any spelling
	mask    *engine // values in any spelling
	names   *engine // values in any case
}

// New returns an empty Swap.
func New() *Swap { return &Swap{tab: newTable(nil)} }

// with runs f on the current table, unless the sandbox's secrets have ended: then nothing passes, since nothing would be
// found or masked any more.
func (s *Swap) with(f func(*table) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return rung.Errorf(rung.KindConflict, "the sandbox's secrets have ended")
	}
	return f(s.tab)
}

// Add binds a secret and returns its placeholder.
func (s *Swap) Add(b Binding) (string, error) {
	if err := check(b); err != nil {
		return "", err
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand
	e := &entry{Binding: b, placeholder: Prefix + hex.EncodeToString(random[:])}
	if b.Placeholder != "" {
		e.placeholder = b.Placeholder
	}
	e.Value = append(Value(nil), b.Value...)
	e.Hosts = append([]string(nil), b.Hosts...)
	e.find = spellings([]byte(e.placeholder), e.placeholder, true)
	e.hide(e.placeholder)
	return e.placeholder, s.add(e)
}

// hide has the value masked.
func (e *entry) hide(replacement string) {
	e.mask = spellings(e.Value, replacement, false)
	e.names = []pattern{{units: escapes(e.Value, true), plain: true}}
}

// add puts an entry into the table.
func (s *Swap) add(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return rung.Errorf(rung.KindConflict, "the sandbox's secrets have ended")
	}
	n := 0
	for _, o := range s.tab.entries {
		if o.group != "" {
			continue
		}
		n++
		if o.Name == e.Name {
			return rung.Errorf(rung.KindExists, "the secret %q is bound already", e.Name)
		}
	}
	if n >= maxSecrets {
		return rung.Errorf(rung.KindExhausted, "a sandbox has at most %d secrets", maxSecrets)
	}
	s.tab = newTable(append(slices.Clip(s.tab.entries), e))
	return nil
}

// check refuses what could not be sent or masked.
func check(b Binding) error {
	switch {
	case b.Placeholder != "" && !rung.IsPlaceholder(b.Placeholder):
		return rung.Errorf(rung.KindInvalid, "the secret %q comes with a placeholder that is none", b.Name)
	case b.Name == "" || len(b.Name) > 128:
		return rung.Errorf(rung.KindInvalid, "a secret needs a name of at most 128 bytes")
	case len(b.Value) < minValue:
		return rung.Errorf(rung.KindInvalid, "the value of the secret %q is shorter than %d bytes: it could not be masked in answers", b.Name, minValue)
	case len(b.Value) > maxValue:
		return rung.Errorf(rung.KindInvalid, "the value of the secret %q is longer than %d bytes", b.Name, maxValue)
	case strings.Contains(strings.ToLower(string(b.Value)), Prefix):
		return rung.Errorf(rung.KindInvalid, "the value of the secret %q holds a placeholder", b.Name)
	case len(b.Hosts) == 0:
		return rung.Errorf(rung.KindInvalid, "the secret %q is bound to no host", b.Name)
	case b.Format != "" && (b.Header == "" || strings.Count(b.Format, "{}") != 1):
		return rung.Errorf(rung.KindInvalid, "the format of the secret %q needs a header, and {} once", b.Name)
	}
	for _, c := range b.Value {
		if c < ' ' || c >= 0x7f {
			return rung.Errorf(rung.KindInvalid, "the value of the secret %q holds a line break, a control byte or a byte beyond ASCII: no header may carry it", b.Name).
				WithHint("remove the line break at its end, or encode it (base64)")
		}
	}
	for i := range len(b.Format) {
		if b.Format[i] < ' ' || b.Format[i] >= 0x7f {
			return rung.Errorf(rung.KindInvalid, "the format of the secret %q holds a byte no header may carry", b.Name)
		}
	}
	for _, h := range b.Hosts {
		if name := strings.TrimPrefix(h, "*."); !hello.ValidName(name) || h != strings.ToLower(h) {
			return rung.Errorf(rung.KindInvalid, "the secret %q is bound to %.64q, which is no host name in lower case", b.Name, h)
		}
	}
	return nil
}

func newTable(entries []*entry) *table {
	t := &table{entries: entries}
	var find, mask, names []pattern
	for i, e := range entries {
		find = append(find, numbered(e.find, i)...)
		mask = append(mask, numbered(e.mask, i)...)
		names = append(names, numbered(e.names, i)...)
	}
	t.find, t.mask, t.names = newEngine(find), newEngine(mask), newEngine(names)
	return t
}

// Close overwrites the values. What is still under way fails.
func (s *Swap) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.tab.entries {
		e.wipe()
	}
	s.tab, s.closed = newTable(nil), true
}

// Masks says whether what the host answers has to be masked: whether a secret is bound to it. All secrets are masked
// there then, not only that one. Of a closed Swap everything has to be, and cannot: an answer that is still on its way may
// hold a value that is known no more.
func (s *Swap) Masks(host string) bool {
	if s == nil {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return true
	}
	for _, e := range s.tab.entries {
		if e.named(host) {
			return true
		}
	}
	return false
}

// Empty says whether there is nothing to swap, find or mask.
func (s *Swap) Empty() bool {
	if s == nil {
		return true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.tab.entries) == 0 && !s.closed
}

// bound says whether the secret may go to the target.
func (e *entry) bound(t Target) bool {
	if !t.TLS && !e.Plain {
		return false
	}
	return e.named(t.Host)
}

func (e *entry) named(host string) bool { return Covers(e.Hosts, host) }

// Covers reports whether a binding's hosts, exact names or *.suffix, mean a host.
func Covers(hosts []string, host string) bool {
	for _, h := range hosts {
		suffix, wild := strings.CutPrefix(h, "*")
		if h == host || wild && len(host) > len(suffix) && strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// refuse is the error for a placeholder where it must not be.
func (e *entry) refuse(t Target, where string) error {
	name := e.Name
	switch {
	case !e.named(t.Host):
		return rung.Errorf(rung.KindRefused, "the placeholder of the secret %q is on its way to %s (%s), and the secret is not bound to it", name, t.Host, where).
			WithHint(fmt.Sprintf("if that host may have it: --secret %s@%s", name, t.Host))
	case !t.TLS && !e.Plain:
		return rung.Errorf(rung.KindRefused, "the placeholder of the secret %q is on its way to %s over plain HTTP", name, t.Host).
			WithHint("use https")
	}
	return rung.Errorf(rung.KindRefused, "the placeholder of the secret %q is in %s of a request to %s, where it is not swapped", name, where, t.Host).
		WithHint("send it, spelled as it is, in a header" + e.places())
}

func (e *entry) places() string {
	s := ""
	if e.Header != "" {
		s = " (" + e.Header + ")"
	}
	if !e.Query {
		s += "; swapping in the query has to be asked for in the binding (query)"
	}
	if !e.Body {
		s += "; swapping in the body has to be asked for in the binding (body)"
	}
	return s
}
