//go:build linux

package secrets

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const identified = `
version: 1
egress:
  mode: deny
  rules:
    - {host: who.example, identity: "https://who.example"}
`

// TestIdentity: a service gets a token that the published document verifies, and its echo does not give it to the sandbox.
func TestIdentity(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		if err := os.WriteFile(h.file("policy.yaml"), []byte(identified), 0o644); err != nil {
			t.Fatal(err)
		}
		steps := []step{
			{"do": "http", "url": "https://who.example/body", "two": true},
			{"do": "http", "url": "https://who.example/headers", "header": map[string]string{"Authorization": "Bearer of the sandbox's own"}},
			{"do": "http", "url": "http://who.example/"},
		}
		world.take()
		results := h.inside(wall, steps, "--policy", h.file("policy.yaml"), "--agent", "builder")
		got := world.take()
		if len(got) != 2 || results[2].Status == 200 {
			t.Fatalf("%d requests arrived: %+v", len(got), results)
		}
		var keys jose.JSONWebKeySet
		if err := json.Unmarshal([]byte(h.must("", "agent", "jwks")), &keys); err != nil {
			t.Fatal(err)
		}
		leases := h.events("secret")
		if len(leases) != 1 || leases[0].Fields["action"] != "lease" || leases[0].Fields["name"] != "https://who.example" || leases[0].Agent != "builder" {
			t.Fatalf("%+v", leases)
		}
		for i, r := range got {
			text := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA})
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			var claims jwt.Claims
			if err := token.Claims(keys, &claims); err != nil {
				t.Fatal(err)
			}
			want := "rung://agent/builder/task/" + leases[0].Sandbox
			if err := claims.Validate(jwt.Expected{AnyAudience: jwt.Audience{"https://who.example"}, Subject: want, Time: time.Now()}); err != nil {
				t.Errorf("%+v: %v", claims, err)
			}
			if life := claims.Expiry.Time().Sub(claims.NotBefore.Time()); life > 10*time.Minute {
				t.Errorf("valid for %v", life)
			}
			signature := text[strings.LastIndexByte(text, '.')+1:]
			whole, _ := json.Marshal(results[i]) // it was read from JSON
			if in := append(holds(whole, signature), holds([]byte(results[i].Body), signature)...); len(in) > 0 {
				t.Errorf("the sandbox saw its token (%v): %s", in, whole)
			}
		}
	})
}

// TestSigned: requests to AWS carry a signature that the key pair makes, whatever the sandbox signed with its placeholder,
// and neither the key nor its session is inside.
func TestSigned(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		key, session := rand.Text()+"/+"+rand.Text(), "session-"+rand.Text()
		h.add("AWS", "AKIDEXAMPLE:"+key+":"+session)
		claims := map[string]string{
			"Authorization": "AWS4-HMAC-SHA256 Credential=${AWS}/20260101/eu-central-1/queue/aws4_request, SignedHeaders=host, Signature=00",
			"X-Amz-Date":    "20260101T000000Z", "X-Amz-Security-Token": "${AWS}", "Content-Type": "application/json", "X-Amz-Target": "Queue.Send",
		}
		steps := []step{
			{"do": "http", "url": "https://aws.example/body?b=2&a=1", "method": "POST", "body": `{"a":1}`, "header": claims},
			{"do": "http", "url": "https://aws.example/headers", "two": true},
			{"do": "http", "url": "https://other.example/", "header": claims},
		}
		world.take()
		results := h.inside(wall, steps, "--allow", "aws.example", "--secret", "AWS@aws.example:sigv4=queue/eu-central-1", "--policy", h.policy("other.example"))
		got := world.take()
		if len(got) != 2 {
			t.Fatalf("%d requests arrived: %+v", len(got), results)
		}
		for i, r := range got {
			verify(t, r, key, session)
			whole, _ := json.Marshal(results[i]) // it was read from JSON
			for _, v := range []string{key, session} {
				if in := append(holds(whole, v), holds([]byte(results[i].Body), v)...); len(in) > 0 || strings.Contains(all(r), key) {
					t.Errorf("seen (%v): %s", in, whole)
				}
			}
		}
		if results[2].Status != 403 || len(h.high()) != 1 {
			t.Errorf("the placeholder elsewhere: %+v, %+v", results[2], h.high())
		}
	})
}

// policy is a file with a rule that has a condition, so that its requests are looked at.
func (h *house) policy(host string) string {
	h.Helper()
	name := h.file("other.yaml")
	if err := os.WriteFile(name, []byte("version: 1\negress:\n  rules:\n    - {host: "+host+", methods: [GET, POST]}\n"), 0o644); err != nil {
		h.Fatal(err)
	}
	return name
}

// verify checks a signature as AWS does, by its own description.
func verify(t *testing.T, r seen, key, session string) {
	t.Helper()
	mac := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	auth, date := r.Header.Get("Authorization"), r.Header.Get("X-Amz-Date")
	_, rest, _ := strings.Cut(auth, "SignedHeaders=")
	signed, signature, ok := strings.Cut(rest, ", Signature=")
	at, err := time.Parse("20060102T150405Z", date)
	if !ok || err != nil || time.Since(at).Abs() > time.Minute || r.Header.Get("X-Amz-Security-Token") != session {
		t.Fatalf("%+v", r.Header)
	}
	names := strings.Split(signed, ";")
	if !slices.Contains(names, "host") || !slices.Contains(names, "x-amz-security-token") {
		t.Errorf("signed is only %v", names)
	}
	query := strings.Split(r.Query, "&")
	slices.Sort(query)
	canonical := r.Method + "\n" + r.Path + "\n" + strings.Join(query, "&") + "\n"
	for _, name := range names {
		v := r.Header.Get(name)
		switch name {
		case "host":
			v = r.Host
		case "content-length":
			v = r.Header.Get("Content-Length")
		}
		canonical += name + ":" + v + "\n"
	}
	canonical += "\n" + signed + "\n" + sum(r.Body)
	scope := date[:8] + "/eu-central-1/queue/aws4_request"
	k := mac(mac(mac(mac([]byte("AWS4"+key), date[:8]), "eu-central-1"), "queue"), "aws4_request")
	want := hex.EncodeToString(mac(k, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+sum(canonical)))
	if signature != want || !strings.Contains(auth, "Credential=AKIDEXAMPLE/"+scope) {
		t.Errorf("%s %s: signed as %s, not %s", r.Method, r.Path, auth, want)
	}
}
