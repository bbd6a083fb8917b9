package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"

	"github.com/rung-dev/rung"
)

// Encode writes a record as it is stored: one line of JSON without HTML escapes. Any other JSON writer does too as far as
// the signature goes, if it keeps the order of members and the digits of numbers.
func Encode(rec *rung.Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(rec); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "encode the record: %w", err)
	}
	return b.Bytes(), nil
}

// Sign sets rec.Signature over everything else in the record, making the key on first use.
func (s *Store) Sign(rec *rung.Record) error {
	k, err := s.loadKey()
	if err != nil {
		return err
	}
	rec.Signature = nil
	text, err := Encode(rec)
	if err != nil {
		return err
	}
	signed, _, err := canonical(text)
	if err != nil {
		return err
	}
	rec.Signature = &rung.Signature{Key: k.text, Value: encoding.EncodeToString(k.sign(signed))}
	return nil
}

// Verify checks a record's text against this store's key.
func (s *Store) Verify(record []byte) error {
	public, err := s.PublicKey()
	if err != nil {
		return err
	}
	return Verify(record, public)
}

// Verify checks that the text is a record that the key signed and nobody changed since: a KindUnverified error otherwise. Members
// it does not know are covered by the signature like all others. The key in the record only serves to say that another key
// signed: it is never trusted.
func Verify(record []byte, public ed25519.PublicKey) error {
	if len(record) > maxOneRecord {
		return rung.Errorf(rung.KindExhausted, "the record is larger than %s", rung.FormatBytes(maxOneRecord))
	}
	signed, member, err := canonical(record)
	if err != nil {
		return err
	}
	if member == nil {
		return rung.Errorf(rung.KindUnverified, "the record has no signature")
	}
	var sig rung.Signature
	if err := json.Unmarshal(member, &sig); err != nil {
		return rung.Errorf(rung.KindUnverified, "the record's signature is malformed")
	}
	// The signature does not cover itself, so its own text must be exactly what Sign writes: nothing to add, nothing to respell.
	if exact, err := json.Marshal(sig); err != nil || !bytes.Equal(exact, member) {
		return rung.Errorf(rung.KindUnverified, "the record's signature is malformed")
	}
	if sig.Key != encoding.EncodeToString(public) {
		return rung.Errorf(rung.KindUnverified, "the record is signed by another key: %.64q", sig.Key).
			WithHint("it was made by another installation or user, or its key was replaced")
	}
	value, err := encoding.DecodeString(sig.Value)
	if err != nil || encoding.EncodeToString(value) != sig.Value || !ed25519.Verify(public, signed, value) {
		return rung.Errorf(rung.KindUnverified, "the record was changed after it was signed")
	}
	return nil
}
