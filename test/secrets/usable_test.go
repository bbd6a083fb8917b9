//go:build linux

package secrets

import (
	"crypto/rand"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// TestUsable: each way to use a secret reaches its host with the value, by HTTP/1.1 and by HTTP/2, and the answer's echo of
// it, in every spelling, has none.
func TestUsable(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		v := value()
		h.add("KEY", v)
		token := "auto-" + rand.Text()
		h.add("AUTO", token)
		steps := uses()
		world.take()
		results := h.inside(wall, steps, "--allow", "api.example", "--allow", "h1.example", "--secret", "KEY@api.example,h1.example:query,body",
			"--secret", "AUTO@api.example,h1.example:header=X-Auto,format=Token {}")
		got := world.take()
		if len(got) != len(steps) {
			t.Errorf("%d requests of %d arrived", len(got), len(steps))
		}
		for i, r := range got {
			if !has(r, v) || r.Header.Get("X-Auto") != "Token "+token || strings.Contains(all(r), "rung-secret-") {
				t.Errorf("request %d arrived as %+v", i, r)
			}
		}
		for i, r := range results {
			text, _ := json.Marshal(r) // it was read from JSON
			whole := r.Body + r.Err
			for k, v := range r.Header {
				whole += "\n" + k + ": " + strings.Join(v, "\n")
			}
			if in := append(holds(text, v), holds([]byte(whole), v)...); len(in) > 0 {
				t.Errorf("%v: the sandbox saw the value (%v): %s", steps[i], in, whole)
			}
			if strings.Contains(strings.ToLower(whole), strings.ToLower(token)) {
				t.Errorf("%v: the sandbox saw the token: %s", steps[i], whole)
			}
			wanted := map[string]int{"/headers": 302, "/gzip": 502, "/encoding": 502, "/malformed": 502, "/field": 502, "/length": 502}
			u, _ := url.Parse(steps[i]["url"].(string))
			want := wanted[u.Path]
			if want == 0 || r.Body == "no HTTP/1.1" {
				want = 200
			}
			if r.Status != want {
				t.Errorf("%v: status %d: %s%s", steps[i], r.Status, r.Body, r.Err)
			}
		}
		if t.Failed() {
			t.Logf("gate: %s", h.gateLog())
		}
	})
}

// uses are all ways to send the secret, each asking for its echo in headers, body and chunks, and one of them for the rest.
func uses() (steps []step) {
	for i, path := range []string{"/headers", "/body", "/chunks", "/trailer", "/name", "/early", "/gzip", "/encoding", "/malformed", "/status", "/field", "/length"} {
		for _, host := range []string{"api.example", "h1.example"} {
			for _, two := range []bool{false, true} {
				at := "https://" + host + path
				ways := []step{
					{"header": map[string]string{"X-Api-Key": "${KEY}"}},
					{"header": map[string]string{"Authorization": "Bearer ${KEY}"}},
					{"user": "me", "pass": "${KEY}"},
					{"url": at + "?key=${KEY}"},
					{"method": "POST", "body": "${KEY}", "header": map[string]string{"Content-Type": "text/plain"}},
					{"method": "POST", "body": `{"key":"${KEY}"}`, "header": map[string]string{"Content-Type": "application/json"}},
				}
				if i > 2 {
					ways = ways[:1]
				}
				for _, s := range ways {
					s["do"], s["two"] = "http", two
					if s["url"] == nil {
						s["url"] = at
					}
					steps = append(steps, s)
				}
			}
		}
	}
	return steps
}

// has tells whether a request carries the value as its server understands it.
func has(r seen, v string) bool {
	var doc struct{ Key string }
	query, _ := url.ParseQuery(r.Query)
	_ = json.Unmarshal([]byte(r.Body), &doc) // only one kind of request has JSON
	basic := ""
	if text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic "); ok {
		basic = decode(text)
	}
	return r.Header.Get("X-Api-Key") == v || r.Header.Get("Authorization") == "Bearer "+v || basic == "me:"+v || query.Get("key") == v ||
		r.Body == v || doc.Key == v
}

func all(r seen) string {
	text, _ := json.Marshal(r) // strings always encode
	return string(text)
}
