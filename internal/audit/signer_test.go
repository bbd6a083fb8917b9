package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"testing"
)

// FuzzSigner compares with the standard library.
func FuzzSigner(f *testing.F) {
	// RFC 8032, 7.1: tests 1 to 3 and SHA(abc).
	for _, v := range []struct{ seed, message string }{
		{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", ""},
		{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "72"},
		{"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "af82"},
		{"833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42", "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"},
	} {
		seed, _ := hex.DecodeString(v.seed)
		message, _ := hex.DecodeString(v.message)
		f.Add(seed, message)
	}
	f.Add(make([]byte, ed25519.SeedSize), []byte("zero"))
	f.Add(bytes.Repeat([]byte{0xff}, ed25519.SeedSize), bytes.Repeat([]byte{0xff}, 4096))
	f.Fuzz(func(t *testing.T, seed, message []byte) {
		if len(seed) != ed25519.SeedSize {
			return
		}
		sameAsStandard(t, seed, message)
	})
}

func TestSignerRandom(t *testing.T) {
	for i := range 500 {
		seed, message := make([]byte, ed25519.SeedSize), make([]byte, i)
		rand.Read(seed)
		rand.Read(message)
		sameAsStandard(t, seed, message)
	}
}

func sameAsStandard(t *testing.T, seed, message []byte) {
	t.Helper()
	standard, s := ed25519.NewKeyFromSeed(seed), newSigner(seed)
	if !s.public.Equal(standard.Public()) {
		t.Fatalf("seed %x: public key %x, not %x", seed, s.public, standard.Public())
	}
	if got, want := s.sign(message), ed25519.Sign(standard, message); !bytes.Equal(got, want) {
		t.Fatalf("seed %x, message %x: signature %x, not %x", seed, message, got, want)
	}
	if !ed25519.Verify(s.public, message, s.sign(message)) {
		t.Fatalf("seed %x, message %x: the signature does not verify", seed, message)
	}
}

func BenchmarkSigner(b *testing.B) {
	seed := make([]byte, ed25519.SeedSize)
	for b.Loop() {
		newSigner(seed).sign(seed)
	}
}
