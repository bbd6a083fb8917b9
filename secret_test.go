package rung_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

func TestParseSecretFlag(t *testing.T) {
	for _, c := range []struct {
		text string
		want rung.SecretBinding
	}{
		{"TOKEN@api.example.com", rung.SecretBinding{Name: "TOKEN", Hosts: []string{"api.example.com"}}},
		{"t.1-x@a.example,*.b.example.net:query,body", rung.SecretBinding{Name: "t.1-x", Hosts: []string{"a.example", "*.b.example.net"}, Query: true, Body: true}},
		{"K@h.example:header=Authorization,format=Bearer {}", rung.SecretBinding{Name: "K", Hosts: []string{"h.example"}, Header: "Authorization", Format: "Bearer {}"}},
		{"K@h.example:format=a=b:{},header=x-api-key", rung.SecretBinding{Name: "K", Hosts: []string{"h.example"}, Header: "x-api-key", Format: "a=b:{}"}},
		{"K@h.example:basic", rung.SecretBinding{Name: "K", Hosts: []string{"h.example"}, Basic: true}},
		{"A@*.s3.example.com:sigv4=s3/eu-central-1", rung.SecretBinding{Name: "A", Hosts: []string{"*.s3.example.com"}, SigV4: &rung.SigV4{Service: "s3", Region: "eu-central-1"}}},
	} {
		got, err := rung.ParseSecretFlag(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.text, d)
		}
	}
}

func TestParseSecretFlagRefuses(t *testing.T) {
	for _, text := range []string{
		"", "TOKEN", "@h.example", "TOKEN@", "TOKEN@,", "TOKEN@a.example,", "-x@h.example", "a b@h.example", strings.Repeat("n", 65) + "@h.example",
		"T@h.example:", "T@h.example:header", "T@h.example:header=", "T@h.example:header=a b", "T@h.example:header=X-A\r\nB",
		"T@h.example:header=Host", "T@h.example:header=Content-Length", "T@h.example:header=x,header=y", "T@h.example:format={}",
		"T@h.example:header=X,format=", "T@h.example:header=X,format=none", "T@h.example:header=X,format={}{}", "T@h.example:header=X,format={}\n",
		"T@h.example:query=1", "T@h.example:basic,header=X", "T@h.example:unknown", "T@h.example:query,query", "T@h.example:sigv4",
		"T@h.example:sigv4=s3", "T@h.example:sigv4=s3/", "T@h.example:sigv4=/r", "T@h.example:sigv4=s3/a/b", "T@h.example:sigv4=s3/r,body",
		"T@h.example:443", "T@H.example", "T@h.example.", "T@h..example", "T@*", "T@*.com", "T@a.*.example", "T@10.0.0.1", "T@0x7f.1", "T@1.0x7f",
		"T@[::1]", "T@h.example,h.example", "T@user:pw@h.example", "T@h/example", "T@bücher.example", "T@h.example\x00", "T@-h.example",
	} {
		if b, err := rung.ParseSecretFlag(text); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%q: %+v, %v", text, b, err)
		}
	}
}

// TestMisplacedValue: what stands where the name belongs may be the value itself, so no error repeats it.
func TestMisplacedValue(t *testing.T) {
	for _, text := range []string{"sk-live-0123456789", "TOKEN=sk-live-0123456789", "TOKEN=sk-live-0123456789@h.example", "sk-live-0123456789+/@h.example"} {
		_, err := rung.ParseSecretFlag(text)
		if err == nil || strings.Contains(fmt.Sprint(err, rung.HintOf(err)), "0123456789") {
			t.Errorf("%v", err)
		}
	}
}

func TestValuesDoNotPrint(t *testing.T) {
	const value = "hunter2-hunter2"
	secret := rung.LeasedSecret{SecretBinding: rung.SecretBinding{Name: "T", Hosts: []string{"h.example"}}, Value: rung.SecretValue(value)}
	lease := rung.Lease{ID: "l", Secrets: []rung.LeasedSecret{secret}, Identity: []rung.LeasedIdentity{{Audience: "a", Tokens: []rung.IdentityToken{{Token: rung.SecretValue(value)}}}}}
	key := rung.AWSCredentials{KeyID: "AK", Secret: rung.SecretValue(value)}
	shapes := []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), fmt.Sprint([]byte(value)), "aHVudGVyMi1odW50ZXIy"}
	for _, v := range []any{secret.Value, secret, &secret, lease, &lease, lease.Secrets, lease.Identity, key, &key} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "% x"} {
			text := fmt.Sprintf(verb, v)
			for _, s := range shapes {
				if strings.Contains(text, s) {
					t.Errorf("%s of %T: %s", verb, v, text)
				}
			}
		}
	}
	raw, err := json.Marshal(lease)
	if err != nil {
		t.Fatal(err)
	}
	var back rung.Lease
	if err := json.Unmarshal(raw, &back); err != nil || string(back.Secrets[0].Value) != value {
		t.Errorf("a lease does not survive its own wire form: %v", err)
	}
	back.Zero()
	if strings.Trim(string(back.Secrets[0].Value), "\x00") != "" {
		t.Error("Zero left the value")
	}
}

func TestCurrentToken(t *testing.T) {
	t0 := time.Unix(1000, 0)
	id := rung.LeasedIdentity{Tokens: []rung.IdentityToken{
		{From: t0, Until: t0.Add(5 * time.Minute), Token: rung.SecretValue("a")},
		{From: t0.Add(4 * time.Minute), Until: t0.Add(9 * time.Minute), Token: rung.SecretValue("b")},
	}}
	for after, want := range map[time.Duration]string{-time.Second: "", 0: "a", 4*time.Minute - 1: "a", 4 * time.Minute: "b", 9 * time.Minute: ""} {
		if got := string(id.Current(t0.Add(after))); got != want {
			t.Errorf("after %v: %q, not %q", after, got, want)
		}
	}
}

func TestParseAWSCredentials(t *testing.T) {
	for text, want := range map[string]string{
		"AKID:sec/ret+=": "AKID|sec/ret+=|", "AKID:s:to:ken\n": "AKID|s|to:ken",
		`{"Version":1,"AccessKeyId":"AKID","SecretAccessKey":"s","SessionToken":"t"}`: "AKID|s|t",
		"": "", "AKID": "", "AKID:": "", "AK ID:s": "", "AKID:s\nx": "", "{": "", `{"AccessKeyId":"A"}`: "", "A,B:s": "",
	} {
		c, err := rung.ParseAWSCredentials(rung.SecretValue(text))
		got := ""
		if err == nil {
			got = c.KeyID + "|" + string(c.Secret) + "|" + string(c.Session)
		}
		if got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}

func FuzzParseSecretFlag(f *testing.F) {
	for _, s := range []string{"TOKEN@api.example.com", "K@h.example,*.x.example.net:header=Authorization,format=Bearer {}", "A@h.example:sigv4=s3/eu-1", "T@h.example:basic,query,body"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := rung.ParseSecretFlag(text)
		if err != nil {
			if rung.KindOf(err) != rung.KindInvalid {
				t.Errorf("%v", err)
			}
			return
		}
		if err := b.Validate(); err != nil {
			t.Errorf("parsed but not valid: %v", err)
		}
		again := b.Name + "@" + strings.Join(b.Hosts, ",")
		if !strings.HasPrefix(text, again) {
			t.Errorf("%q names other hosts than it says: %v", text, b.Hosts)
		}
	})
}
