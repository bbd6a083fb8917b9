package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func loaded(t *testing.T) (*Key, []byte, string) {
	t.Helper()
	state := t.TempDir()
	k, err := Load(state)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := k.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	return k, doc, state
}

func TestMintAndVerify(t *testing.T) {
	k, doc, _ := loaded(t)
	token, err := k.Mint("builder", "r1", "https://api.example.com", t0, DefaultTTL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Verify(string(token.Token), doc, "https://api.example.com", t0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Subject != "rung://agent/builder/task/r1" || c.Issuer != k.Issuer() || c.ID == "" || !c.IssuedAt.Time().Equal(t0.Add(-skew)) {
		t.Errorf("%+v", c)
	}
	if !c.Expiry.Time().Equal(t0.Add(DefaultTTL)) {
		t.Errorf("expires %v", c.Expiry.Time())
	}
	for after, ok := range map[time.Duration]bool{-31 * time.Second: false, -30 * time.Second: true, 5*time.Minute - time.Second: true, 5*time.Minute + time.Second: false} {
		if _, err := Verify(string(token.Token), doc, "https://api.example.com", t0.Add(after)); (err == nil) != ok {
			t.Errorf("after %v: %v", after, err)
		}
	}
	if strings.Contains(string(doc), `"d"`) {
		t.Error("the document has the private key")
	}
}

// TestByHand verifies without the library that signed: the signature, and the thumbprint of RFC 8037 appendix A.3's form.
func TestByHand(t *testing.T) {
	k, doc, _ := loaded(t)
	token, err := k.Mint("a", "r1", "aud", t0, DefaultTTL)
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Keys []struct{ Kty, Crv, X, Kid, Alg, Use string }
	}
	if err := json.Unmarshal(doc, &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("%s: %v", doc, err)
	}
	jwk := set.Keys[0]
	public, err := base64.RawURLEncoding.DecodeString(jwk.X)
	if err != nil || jwk.Kty != "OKP" || jwk.Crv != "Ed25519" || jwk.Alg != "EdDSA" || jwk.Use != "sig" || jwk.Kid != k.kid {
		t.Errorf("%s: %v", doc, err)
	}
	parts := strings.Split(string(token.Token), ".")
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), sig) {
		t.Errorf("the signature does not verify: %v", err)
	}
}

// TestThumbprint is the vector of RFC 8037, appendices A.1 and A.3.
func TestThumbprint(t *testing.T) {
	seed, err := base64.RawURLEncoding.DecodeString("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
	if err != nil {
		t.Fatal(err)
	}
	k, err := newKey(ed25519.NewKeyFromSeed(seed))
	if err != nil || k.kid != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("%v, %v", k.kid, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	k, doc, _ := loaded(t)
	other, otherDoc, _ := loaded(t)
	token, err := k.Mint("a", "r1", "aud", t0, DefaultTTL)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(token.Token), ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"`+k.kid+`"}`)) + "." + parts[1] + "."
	claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(claims), "agent/a/", "agent/b/", 1))) + "." + parts[2]
	for name, c := range map[string]struct {
		token, aud string
		doc        []byte
	}{
		"other audience": {string(token.Token), "else", doc},
		"other key":      {string(token.Token), "aud", otherDoc},
		"no algorithm":   {none, "aud", doc},
		"other claims":   {forged, "aud", doc},
		"cut":            {parts[0] + "." + parts[1], "aud", doc},
		"nothing":        {"", "aud", doc},
		"long":           {strings.Repeat("a", maxToken+1), "aud", doc},
	} {
		if _, err := Verify(c.token, c.doc, c.aud, t0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if k.Issuer() == other.Issuer() {
		t.Error("two installations share an issuer")
	}
}

func TestMintRefuses(t *testing.T) {
	k, _, _ := loaded(t)
	for _, c := range []struct {
		agent, sandbox, aud string
		ttl                 time.Duration
	}{
		{"", "r1", "aud", DefaultTTL},
		{"a/task/b", "r1", "aud", DefaultTTL},
		{"a", "../r", "aud", DefaultTTL},
		{"a", "r1", "", DefaultTTL},
		{"a", "r1", "a b", DefaultTTL},
		{"a", "r1", "a\r\nb", DefaultTTL},
		{"a", "r1", "aud", time.Second},
		{"a", "r1", "aud", 24 * time.Hour},
	} {
		if _, err := k.Mint(c.agent, c.sandbox, c.aud, t0, c.ttl); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestSeries: at every moment of a lease there is a token that verifies then and has a minute left.
func TestSeries(t *testing.T) {
	k, doc, _ := loaded(t)
	for _, length := range []time.Duration{time.Second, 5 * time.Minute, 24 * time.Hour} {
		id, err := k.Series("a", "r1", "aud", t0, t0.Add(length), DefaultTTL)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for now := t0; now.Before(t0.Add(length)); now = now.Add(max(length/97, time.Second)) {
			for _, at := range []time.Time{now, now.Add(overlap - time.Second)} {
				if c, err := Verify(string(id.Current(now)), doc, "aud", at); err != nil {
					t.Fatalf("%v, after %v: %v", length, now.Sub(t0), err)
				} else {
					ids[c.ID] = true
				}
			}
		}
		if len(ids) > len(id.Tokens) {
			t.Errorf("%d ids of %d tokens", len(ids), len(id.Tokens))
		}
	}
	if _, err := k.Series("a", "r1", "aud", t0, t0.Add(24*365*time.Hour), DefaultTTL); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("a year: %v", err)
	}
}

func TestKeyFile(t *testing.T) {
	k, _, state := loaded(t)
	path := filepath.Join(state, dirName, keyName)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if again, err := Load(state); err != nil || again.kid != k.kid {
		t.Errorf("another key: %v", err)
	}
	for name, spoil := range map[string]func() error{
		"damaged":  func() error { return os.WriteFile(path, []byte(keyMark+"AAAA\n"), 0o600) },
		"empty":    func() error { return os.Truncate(path, 0) },
		"huge":     func() error { return os.Truncate(path, 1<<30) },
		"readable": func() error { return os.Chmod(path, 0o644) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(state); rung.KindOf(err) != rung.KindUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneKeyOfMany(t *testing.T) {
	state := t.TempDir()
	var mu sync.Mutex
	var kids []string
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			k, err := Load(state)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			kids = append(kids, k.kid)
		})
	}
	all.Wait()
	slices.Sort(kids)
	if len(slices.Compact(kids)) != 1 {
		t.Errorf("%v", kids)
	}
}
