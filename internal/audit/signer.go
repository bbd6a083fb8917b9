package audit

import (
	"crypto/ed25519"
	"crypto/sha512"

	"filippo.io/edwards25519"
)

// signer signs as crypto/ed25519 does, byte for byte (RFC 8032, 5.1.5 and 5.1.6), for programs that sign once: the standard
// library first computes a table of multiples of the base point, two milliseconds that pay off after some thirty
// signatures and that a run, which makes one, has no use for. The multiplication used instead takes a twentieth of that and
// is constant in time as well.
type signer struct {
	scalar *edwards25519.Scalar
	prefix [32]byte
	public ed25519.PublicKey
}

// newSigner takes a seed of ed25519.SeedSize bytes.
func newSigner(seed []byte) *signer {
	h := sha512.Sum512(seed)
	s := &signer{prefix: [32]byte(h[32:])}
	var err error
	if s.scalar, err = edwards25519.NewScalar().SetBytesWithClamping(h[:32]); err != nil {
		panic(err) // it takes any 32 bytes
	}
	s.public = timesBase(s.scalar)
	return s
}

func (s *signer) sign(message []byte) []byte {
	r := reduced(s.prefix[:], message)
	point := timesBase(r)
	k := reduced(point, s.public, message)
	return append(point, edwards25519.NewScalar().MultiplyAdd(k, s.scalar, r).Bytes()...)
}

// timesBase encodes the multiple of the base point. It must stay ScalarMult: ScalarBaseMult computes the table.
func timesBase(s *edwards25519.Scalar) []byte {
	return new(edwards25519.Point).ScalarMult(s, edwards25519.NewGeneratorPoint()).Bytes()
}

// reduced is the hash of the parts as a scalar.
func reduced(parts ...[]byte) *edwards25519.Scalar {
	h := sha512.New()
	for _, p := range parts {
		h.Write(p) // never fails (hash.Hash)
	}
	s, err := edwards25519.NewScalar().SetUniformBytes(h.Sum(nil))
	if err != nil {
		panic(err) // it takes any 64 bytes
	}
	return s
}
