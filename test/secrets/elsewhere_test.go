//go:build linux

package secrets

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const elsewhere = `
version: 1
egress:
  mode: deny
  rules:
    - {host: api.example, secrets: [KEY]}
    - {host: "api.example:8080"}
    - {host: other.example, websocket: true}
    - {host: "*.wild.example"}
    - {host: "raw.example:7000", protocol: tcp}
`

// event is a line of the log.
type event struct {
	Seq      int            `json:"seq"`
	Kind     string         `json:"kind"`
	Sandbox  string         `json:"sandbox"`
	Agent    string         `json:"agent"`
	Decision string         `json:"decision"`
	Severity string         `json:"severity"`
	Reason   string         `json:"reason"`
	Fields   map[string]any `json:"fields"`
}

// events are all of a kind, oldest first.
func (h *house) events(kind string) (list []event) {
	h.Helper()
	lines := bufio.NewScanner(strings.NewReader(h.must("", "log", "--json", "--kind", kind)))
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			h.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// TestElsewhere: a placeholder on its way to anywhere but its host, in any place, is refused, does not arrive whole, and is
// an event of high severity.
func TestElsewhere(t *testing.T) {
	on(t, func(t *testing.T, h *house, wall string) {
		h.add("KEY", value())
		if err := os.WriteFile(h.file("policy.yaml"), []byte(elsewhere), 0o644); err != nil {
			t.Fatal(err)
		}
		bearer := map[string]string{"Authorization": "Bearer ${KEY}"}
		steps := map[string]step{
			"header to another host":     {"do": "http", "url": "https://other.example/one", "header": bearer},
			"the same by HTTP/2":         {"do": "http", "url": "https://other.example/two", "header": bearer, "two": true},
			"user agent":                 {"do": "http", "url": "https://other.example/", "header": map[string]string{"User-Agent": "x ${KEY}"}},
			"cookie":                     {"do": "http", "url": "https://other.example/", "header": map[string]string{"Cookie": "a=${KEY}; b=c"}},
			"basic authentication":       {"do": "http", "url": "https://other.example/basic", "user": "${KEY}", "pass": "x"},
			"path":                       {"do": "http", "url": "https://other.example/a/${KEY}"},
			"path of its own host":       {"do": "http", "url": "https://api.example/a/${KEY}"},
			"query":                      {"do": "http", "url": "https://other.example/?k=${KEY}"},
			"query of its own host":      {"do": "http", "url": "https://api.example/?k=${KEY}"},
			"body":                       {"do": "http", "url": "https://other.example/", "method": "POST", "body": "x ${KEY} y"},
			"body of its own host":       {"do": "http", "url": "https://api.example/", "method": "POST", "body": "x ${KEY} y"},
			"plain HTTP":                 {"do": "http", "url": "http://other.example/", "header": bearer},
			"plain HTTP to its own host": {"do": "http", "url": "http://api.example:8080/", "header": bearer},
			"websocket message":          {"do": "socket", "host": "other.example", "port": 443, "body": "hello ${KEY}"},
			"websocket handshake":        {"do": "socket", "host": "other.example", "port": 443, "header": bearer},
			"label of a name":            {"do": "lookup", "host": "${KEY}.wild.example"},
			"label of no name":           {"do": "lookup", "host": "${KEY}.nowhere.example"},
			"server name of TLS":         {"do": "sni", "host": "other.example", "port": 443, "name": "${KEY}.example"},
			"connection of protocol tcp": {"do": "tcp", "host": "raw.example", "port": 7000, "body": "AUTH ${KEY}\r\n"},
		}
		order := slices.Sorted(maps.Keys(steps))
		var list []step
		for _, name := range order {
			list = append(list, steps[name])
		}
		world.take()
		world.takeRaw()
		results := h.inside(wall, list, "--policy", h.file("policy.yaml"), "--secret", "KEY@api.example")
		for i, r := range results {
			if do := list[i]["do"]; do == "http" && r.Status != 403 || (do == "lookup" || do == "sni") && r.Err == "" {
				t.Errorf("%s: answered %d %s%s", order[i], r.Status, r.Body, r.Err)
			}
		}
		arrived := world.takeRaw()
		for _, got := range world.take() {
			arrived = append(arrived, all(got))
		}
		world.mu.Lock()
		arrived = append(arrived, world.asked...)
		world.mu.Unlock()
		for _, text := range arrived {
			if at := strings.Index(text, "rung-secret-"); at >= 0 && len(text) > at+40 {
				t.Errorf("it arrived: %q", text)
			}
		}
		high := h.high()
		for _, e := range high {
			if e.Decision != "deny" || e.Reason == "" || e.Agent != "default" || e.Sandbox == "" {
				t.Errorf("%+v", e)
			}
		}
		if len(high) < len(steps) { // each has a cause of its own
			t.Errorf("%d events of high severity of %d: %+v", len(high), len(steps), high)
		}
	})
}

func (h *house) high() (list []event) {
	h.Helper()
	for _, e := range h.events("net") {
		if e.Severity == "high" {
			list = append(list, e)
		}
	}
	return list
}

// TestRefusals: what could never work is said before the start, with what would help, and nothing runs.
func TestRefusals(t *testing.T) {
	h := newHouse(t)
	h.add("KEY", value())
	h.add("SHORT", "seven77")
	h.must("", "secret", "add", "BROKEN", "--exec", "false")
	for name, c := range map[string]struct {
		code int
		args []string
		says []string
	}{
		"no rule":          {125, []string{"--allow", "other.example", "--secret", "KEY@api.example"}, []string{"KEY is bound to api.example", "--allow api.example"}},
		"no rule at all":   {125, []string{"--secret", "KEY@api.example"}, []string{"--allow api.example"}},
		"no such secret":   {125, []string{"--allow", "api.example", "--secret", "NONE@api.example"}, []string{"no secret NONE", "rung secret add NONE"}},
		"too short":        {125, []string{"--allow", "api.example", "--secret", "SHORT@api.example"}, []string{"SHORT is not of 8 to"}},
		"a source fails":   {125, []string{"--allow", "api.example", "--secret", "BROKEN@api.example"}, []string{"false", "exit status 1"}},
		"no keys for AWS":  {125, []string{"--allow", "api.example", "--secret", "KEY@api.example:sigv4=s3/eu-central-1"}, []string{"no AWS key pair"}},
		"no network":       {125, []string{"--egress", "none", "--secret", "KEY@api.example"}, []string{"--egress none"}},
		"rung none":        {125, []string{"--rung", "none", "--i-know-this-is-not-a-sandbox", "--allow", "api.example", "--secret", "KEY@api.example"}, []string{"rung none"}},
		"bound twice":      {125, []string{"--allow", "api.example", "--secret", "KEY@api.example", "--secret", "KEY@api.example:query"}, []string{"bound twice"}},
		"tcp only":         {125, []string{"--allow", "raw.example:7000/tcp", "--secret", "KEY@raw.example"}, []string{"--allow raw.example"}},
		"value on the way": {125, []string{"--allow", "api.example", "--secret", "KEY=some-value@api.example"}, []string{"secret's name"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			h := &house{T: t, dir: h.dir, env: h.env}
			out, errs, code := h.rung("", append(append([]string{"run", "--threat", "trusted"}, c.args...), "--", "echo", "it ran")...)
			if code != c.code || strings.Contains(out, "it ran") || strings.Contains(errs, "some-value") {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			for _, text := range c.says {
				if !strings.Contains(errs, text) {
					t.Errorf("it does not say %q: %s", text, errs)
				}
			}
		})
	}
	if list := h.events("secret"); len(list) != 3 {
		t.Errorf("events: %+v", list)
	}
}
