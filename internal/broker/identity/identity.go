// Package identity signs who a task is: Ed25519 JWTs (RFC 7519, RFC 8037) with the agent and the task as subject, for one
// audience, minutes long. One key per installation signs them all, so its public half is one document that changes never
// (a JWK Set, RFC 7517), and a service needs no connection to rung to verify a token.
//
// The key never leaves the broker. What a gate gets for an audience is a series of tokens, each valid for minutes from a
// time of its own on, that together cover the lease: see Series.
package identity

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/keep"
)

const (
	dirName  = "identity"
	keyName  = "ed25519"
	keyMark  = "rung-identity-key-v1 "
	issuer   = "rung://installation/"
	maxToken = 16 << 10

	// DefaultTTL is how long a token is valid.
	DefaultTTL = 5 * time.Minute
	minTTL     = 2 * time.Minute
	maxTTL     = time.Hour
	// skew is how far the clock of a service may be behind.
	skew = 30 * time.Second
	// overlap is how long a token is still valid when the next one takes over: what is on its way then must arrive.
	overlap = time.Minute
	// MaxAudiences bounds the audiences of one lease, maxSeries the tokens for one.
	MaxAudiences = 16
	maxSeries    = 512
	maxAudience  = 255
)

// Key signs for this installation.
type Key struct {
	private ed25519.PrivateKey
	kid     string
}

// Load reads the key below the state directory, and makes it on first use.
func Load(state string) (*Key, error) {
	d, err := keep.Make(state, dirName)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	text, err := d.Read(keyName, 256)
	if errors.Is(err, fs.ErrNotExist) {
		if err := create(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		text, err = d.Read(keyName, 256)
	}
	if err != nil {
		return nil, err
	}
	defer clear(text)
	seed, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), keyMark)
	raw, err := base64.StdEncoding.Strict().DecodeString(seed)
	if !ok || err != nil || len(raw) != ed25519.SeedSize {
		return nil, rung.Errorf(rung.KindUnavailable, "the identity key %s is damaged", d.Path(keyName)).
			WithHint("restore it from a backup, or move it away: a new one is made, and services need its document (rung agent jwks)")
	}
	defer clear(raw)
	return newKey(ed25519.NewKeyFromSeed(raw))
}

func create(d *keep.Dir) error {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails: it crashes the program instead
	text := []byte(keyMark + base64.StdEncoding.EncodeToString(seed) + "\n")
	defer clear(seed)
	defer clear(text)
	return d.Create(keyName, text)
}

// newKey names the key by its thumbprint (RFC 7638, with RFC 8037 appendix A.3 for this kind of key).
func newKey(private ed25519.PrivateKey) (*Key, error) {
	sum, err := (&jose.JSONWebKey{Key: private.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "name the identity key: %w", err)
	}
	return &Key{private, base64.RawURLEncoding.EncodeToString(sum)}, nil
}

// JWKS is the document by which services verify tokens.
func (k *Key) JWKS() ([]byte, error) {
	public := jose.JSONWebKey{Key: k.private.Public(), KeyID: k.kid, Algorithm: string(jose.EdDSA), Use: "sig"}
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "encode the key document: %w", err)
	}
	return text, nil
}

// Issuer is the tokens' iss: the key's own name, so that two installations never share one.
func (k *Key) Issuer() string { return issuer + k.kid }

// Subject is the tokens' sub.
func Subject(agent, sandbox string) string { return "rung://agent/" + agent + "/task/" + sandbox }

// Mint signs one token that is valid from now on, with an allowance for clocks that are behind.
func (k *Key) Mint(agent, sandbox, audience string, now time.Time, ttl time.Duration) (rung.IdentityToken, error) {
	if err := errors.Join(rung.ValidName(agent), rung.ValidName(sandbox), ValidAudience(audience)); err != nil {
		return rung.IdentityToken{}, err
	}
	if ttl < minTTL || ttl > maxTTL {
		return rung.IdentityToken{}, rung.Errorf(rung.KindInvalid, "a token is valid for %v to %v, not %v", minTTL, maxTTL, ttl)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: k.private, KeyID: k.kid}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return rung.IdentityToken{}, rung.Errorf(rung.KindInternal, "sign an identity: %w", err)
	}
	now = now.Truncate(time.Second)
	// Both a little earlier: a service whose clock is behind refuses what was issued in its future.
	begin := jwt.NewNumericDate(now.Add(-skew))
	text, err := jwt.Signed(s).Claims(jwt.Claims{
		Issuer: k.Issuer(), Subject: Subject(agent, sandbox), Audience: jwt.Audience{audience}, ID: rand.Text(),
		IssuedAt: begin, NotBefore: begin, Expiry: jwt.NewNumericDate(now.Add(ttl)),
	}).Serialize()
	if err != nil {
		return rung.IdentityToken{}, rung.Errorf(rung.KindInternal, "sign an identity: %w", err)
	}
	return rung.IdentityToken{From: now, Until: now.Add(ttl), Token: rung.SecretValue(text)}, nil
}

// Series signs the tokens that cover the time from now to until. Each begins when its forerunner has a minute left.
func (k *Key) Series(agent, sandbox, audience string, now, until time.Time, ttl time.Duration) (rung.LeasedIdentity, error) {
	id := rung.LeasedIdentity{Audience: audience}
	for from := now; from.Before(until); from = from.Add(ttl - overlap) {
		if len(id.Tokens) == maxSeries {
			return id, rung.Errorf(rung.KindInvalid, "an identity of %v in tokens of %v is more than %d tokens", until.Sub(now), ttl, maxSeries)
		}
		t, err := k.Mint(agent, sandbox, audience, from, ttl)
		if err != nil {
			return id, err
		}
		id.Tokens = append(id.Tokens, t)
	}
	return id, nil
}

// ValidAudience takes what a rule may have after identity: one printable word.
func ValidAudience(s string) error {
	if s == "" || len(s) > maxAudience || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return rung.Errorf(rung.KindInvalid, "identity %q: an audience is 1 to %d printable ASCII characters without spaces and quotes", s, maxAudience)
	}
	return nil
}

// Verify does what a service does: it checks a token against the document, and that it is for this audience now.
func Verify(token string, document []byte, audience string, now time.Time) (jwt.Claims, error) {
	var claims jwt.Claims
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(document, &set); err != nil {
		return claims, rung.Errorf(rung.KindInvalid, "key document: %w", err)
	}
	if len(token) > maxToken {
		return claims, rung.Errorf(rung.KindInvalid, "token: too long")
	}
	// The algorithm is the verifier's choice, never the token's.
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err == nil && len(t.Headers) != 1 {
		err = errors.New("not one signature")
	}
	if err == nil {
		keys := set.Key(t.Headers[0].KeyID)
		if len(keys) != 1 {
			return claims, rung.Errorf(rung.KindRefused, "token: signed by a key that is not in the document")
		}
		err = t.Claims(keys[0], &claims)
	}
	if err == nil {
		err = claims.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{audience}, Time: now}, 0)
	}
	if err == nil && (claims.Expiry == nil || claims.NotBefore == nil || !strings.HasPrefix(claims.Subject, "rung://agent/")) {
		err = errors.New("not one of rung's")
	}
	if err != nil {
		return claims, rung.Errorf(rung.KindRefused, "token: %w", err)
	}
	return claims, nil
}
