package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rung-dev/rung"
)

const token = `sk-Live/+a"b\c d%41&e=f~{}?<>xyz`

var (
	api   = Target{Host: "api.example", TLS: true}
	other = Target{Host: "other.example", TLS: true}
)

// swap returns a Swap with the token bound to api.example and what change makes of the binding.
func swap(t testing.TB, change func(*Binding)) (*Swap, string) {
	t.Helper()
	s := New()
	t.Cleanup(s.Close)
	b := Binding{Name: "KEY", Value: Value(token), Hosts: []string{"api.example", "*.wild.example"}}
	if change != nil {
		change(&b)
	}
	p, err := s.Add(b)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func header(name, value string) http.Header { return http.Header{name: {value}} }

func TestHeaderIsSwapped(t *testing.T) {
	s, p := swap(t, nil)
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for in, want := range map[string]string{
		p:                     token,
		"Bearer " + p:         "Bearer " + token,
		p + "," + p:           token + "," + token,
		basic("user:" + p):    basic("user:" + token),
		basic(p + ":x"):       basic(token + ":x"),
		basic("user:pass"):    basic("user:pass"),
		"nothing":             "nothing",
		"rung-secret-unknown": "rung-secret-unknown",
	} {
		for _, target := range []Target{api, {Host: "a.wild.example", TLS: true}} {
			h := header("Authorization", in)
			if err := s.Request(target, &Parts{Header: h, Path: "/"}); err != nil || h.Get("Authorization") != want {
				t.Errorf("%q to %s: %q, %v", in, target.Host, h.Get("Authorization"), err)
			}
		}
	}
}

// encodings of a text that are found and masked.
func encodings(text string) map[string]string {
	all, some := "", ""
	for i := range len(text) {
		all += fmt.Sprintf("%%%02X", text[i])
		if i%3 == 0 {
			some += fmt.Sprintf("%%%02x", text[i])
		} else {
			some += url.QueryEscape(text[i : i+1])
		}
	}
	quoted, _ := json.Marshal(text)
	hex := ""
	for _, r := range text {
		hex += fmt.Sprintf(`\u%04X`, r)
	}
	out := map[string]string{
		"plain": text, "percent": all, "some percent": some, "query": url.QueryEscape(text), "path": url.PathEscape(text),
		"json": string(quoted), "json slash": strings.ReplaceAll(string(quoted), "/", `\/`), "json unicode": hex,
	}
	for _, front := range []string{"", "x", "xy", "user:"} {
		for _, back := range []string{"", "z", "zz"} {
			out["base64 "+front+back] = base64.StdEncoding.EncodeToString([]byte(front + text + back))
			out["base64url "+front+back] = base64.RawURLEncoding.EncodeToString([]byte(front + text + back))
		}
	}
	return out
}

func TestPain07_11_PlaceholderGoesNowhereElse(t *testing.T) {
	s, p := swap(t, nil)
	good := func() *Parts { return &Parts{Header: http.Header{}, Path: "/"} }
	for kind, text := range encodings(p) {
		for where, target := range map[string]Target{"other": other, "plain HTTP": {Host: "api.example"}, "subdomain": {Host: "x.api.example", TLS: true}, "suffix itself": {Host: "wild.example", TLS: true}} {
			parts := good()
			parts.Header.Set("X-Any", "a "+text)
			if err := s.Request(target, parts); !IsRefused(err) || rung.HintOf(err) == "" {
				t.Errorf("%s in a header to %s: %v", kind, where, err)
			}
		}
		for _, target := range []Target{api, other} {
			for where, parts := range map[string]*Parts{
				"path":         {Path: "/a/" + text},
				"query":        {Path: "/", Query: "a=" + text},
				"escaped path": {Path: "/" + url.PathEscape(text)}, "escaped query": {Query: url.QueryEscape(text)},
			} {
				if err := s.Request(target, parts); !IsRefused(err) {
					t.Errorf("%s in the %s to %s: %v", kind, where, target.Host, err)
				}
			}
			body, changes := s.Body(target, "", iotest.OneByteReader(strings.NewReader("a "+text+" b")))
			if got, err := io.ReadAll(body); !IsRefused(err) || changes || len(got) > 9 {
				t.Errorf("%s in a body to %s: %q, %v", kind, target.Host, got, err)
			}
			if _, err := io.Copy(s.Scan(target, "a message"), iotest.OneByteReader(strings.NewReader("a "+text+" b"))); !IsRefused(err) {
				t.Errorf("%s in a message to %s: %v", kind, target.Host, err)
			}
		}
		if strings.Contains(text, p) {
			continue
		}
		parts := good()
		parts.Header.Set("X-Any", text)
		if err := s.Request(api, parts); !IsRefused(err) {
			t.Errorf("%s in a header to its own host: %v", kind, err)
		}
	}
	for host, ok := range map[string]bool{p + ".evil.example": false, "x." + strings.ToUpper(p) + ".example": false, "api.example": true} {
		if err := s.Name(host); IsRefused(err) == ok {
			t.Errorf("the host name %s: %v", host, err)
		}
	}
	for name, h := range map[string]http.Header{
		"header's name":  {http.CanonicalHeaderKey(p): {"x"}},
		"upper case":     header("X", strings.ToUpper(p)),
		"Basic to other": header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:"+p))),
	} {
		if err := s.Request(other, &Parts{Header: h}); !IsRefused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeaderOfABindingIsTheOnlyOne(t *testing.T) {
	s, p := swap(t, func(b *Binding) { b.Header, b.Format = "X-Api-Key", "Key {}" })
	h := http.Header{}
	if err := s.Request(api, &Parts{Header: h}); err != nil || h.Get("X-Api-Key") != "Key "+token {
		t.Errorf("set: %v, %v", h, err)
	}
	h = header("X-Api-Key", p)
	if err := s.Request(api, &Parts{Header: h}); err != nil || h.Get("X-Api-Key") != token {
		t.Errorf("swapped: %v, %v", h, err)
	}
	if err := s.Request(api, &Parts{Header: header("Authorization", p)}); !IsRefused(err) {
		t.Errorf("another header: %v", err)
	}
	h = http.Header{}
	if err := s.Request(other, &Parts{Header: h}); err != nil || len(h) != 0 {
		t.Errorf("another host: %v, %v", h, err)
	}
}

func TestQueryAndBodyAreOptional(t *testing.T) {
	s, p := swap(t, func(b *Binding) { b.Query, b.Body = true, true })
	parts := &Parts{Header: http.Header{}, Query: "key=" + p + "&x=%41"}
	if err := s.Request(api, parts); err != nil || parts.Query != "key="+url.QueryEscape(token)+"&x=%41" {
		t.Errorf("%q, %v", parts.Query, err)
	}
	quoted, _ := json.Marshal(map[string]string{"k": p})
	for kind, test := range map[string]struct {
		in     string
		decode func([]byte) string
	}{
		"application/json; charset=utf-8": {string(quoted), func(b []byte) string {
			var m map[string]string
			_ = json.Unmarshal(b, &m) // leaves the map empty
			return m["k"]
		}},
		"application/x-www-form-urlencoded": {"k=" + p + "&l=1", func(b []byte) string {
			v, _ := url.ParseQuery(string(b))
			return v.Get("k")
		}},
		"text/plain": {p, func(b []byte) string { return string(b) }},
	} {
		body, changes := s.Body(api, kind, iotest.OneByteReader(strings.NewReader(test.in)))
		got, err := io.ReadAll(body)
		if err != nil || !changes || test.decode(got) != token {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
}

func TestValuesAreMasked(t *testing.T) {
	s, p := swap(t, nil)
	for kind, text := range encodings(token) {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
		} {
			got, err := io.ReadAll(s.Mask(wrap(strings.NewReader("<" + text + ">" + text + "!"))))
			if err != nil {
				t.Fatal(err)
			}
			out := string(got)
			if len(out) > 120 && kind != "json unicode" || strings.Count(out, p)+strings.Count(out, "***") != 2 {
				t.Errorf("%s, %s: %q", kind, name, out)
			}
			if strings.Contains(kind, "base64") == strings.Contains(out, p) {
				t.Errorf("%s, %s: %q", kind, name, out)
			}
		}
		h := http.Header{"Location": {"https://x/?" + text}, "X-" + token: {"1"}}
		if err := s.MaskHeader(h); err != nil || strings.Contains(fmt.Sprint(h), text) || len(h) != 1 {
			t.Errorf("%s: %v, %v", kind, h, err)
		}
		b := []byte("a" + text + "b")
		if err := s.Blank(b); err != nil || len(b) != len(text)+2 || bytes.Contains(b, []byte(text)) {
			t.Errorf("%s: %q, %v", kind, b, err)
		}
	}
}

func TestBase64LeavesNothing(t *testing.T) {
	s, _ := swap(t, nil)
	for front := range 4 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", front) + token + "yyy"))
		got, _ := io.ReadAll(s.Mask(strings.NewReader(encoded)))
		before, after, _ := strings.Cut(string(got), "***")
		if len(before) > front*8/6 || len(after) > 6 {
			t.Errorf("%d in front: %q of %q", front, got, encoded)
		}
	}
}

func TestMaskPassesEventsAtOnce(t *testing.T) {
	s, _ := swap(t, nil)
	r, w := io.Pipe()
	masked := s.Mask(r)
	buf := make([]byte, 100)
	for i := range 3 {
		event := fmt.Sprintf("data: %d\n\n", i)
		go func() { _, _ = w.Write([]byte(event)) }()
		n, err := masked.Read(buf)
		if err != nil || string(buf[:n]) != event {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	_ = w.Close()
	if _, err := masked.Read(buf); err != io.EOF {
		t.Error(err)
	}
}

func TestOnlyHostsWithASecretAreMasked(t *testing.T) {
	s, _ := swap(t, nil)
	if !s.Masks("api.example") || !s.Masks("x.wild.example") || s.Masks("other.example") || s.Masks("wild.example") {
		t.Error("the wrong hosts are masked")
	}
	if (*Swap)(nil).Masks("api.example") || !(*Swap)(nil).Empty() || (*Swap)(nil).Request(api, &Parts{}) != nil {
		t.Error("a nil Swap holds something")
	}
}

func TestAddRefuses(t *testing.T) {
	for name, change := range map[string]func(*Binding){
		"line break":    func(b *Binding) { b.Value = Value("secret-value\n") },
		"CR":            func(b *Binding) { b.Value = Value("secret\rvalue") },
		"NUL":           func(b *Binding) { b.Value = Value("secret\x00value") },
		"not ASCII":     func(b *Binding) { b.Value = Value("sécret-value") },
		"short":         func(b *Binding) { b.Value = Value("sh0rt") },
		"long":          func(b *Binding) { b.Value = bytes.Repeat(Value("x"), maxValue+1) },
		"placeholder":   func(b *Binding) { b.Value = Value("x rung-secret-0 y") },
		"no name":       func(b *Binding) { b.Name = "" },
		"no host":       func(b *Binding) { b.Hosts = nil },
		"upper case":    func(b *Binding) { b.Hosts = []string{"API.example"} },
		"bare wildcard": func(b *Binding) { b.Hosts = []string{"*"} },
		"port":          func(b *Binding) { b.Hosts = []string{"api.example:443"} },
		"lone format":   func(b *Binding) { b.Format = "{}" },
		"no braces":     func(b *Binding) { b.Header, b.Format = "X", "x" },
		"bad format":    func(b *Binding) { b.Header, b.Format = "X", "x\n{}" },
	} {
		b := Binding{Name: "KEY", Value: Value(token), Hosts: []string{"api.example"}}
		change(&b)
		_, err := New().Add(b)
		if rung.KindOf(err) != rung.KindInvalid || strings.Contains(err.Error(), string(b.Value)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, _ := swap(t, nil)
	if _, err := s.Add(Binding{Name: "KEY", Value: Value(token), Hosts: []string{"b.example"}}); rung.KindOf(err) != rung.KindExists {
		t.Errorf("again: %v", err)
	}
	for i := 1; i < maxSecrets; i++ {
		if _, err := s.Add(Binding{Name: fmt.Sprint(i), Value: Value(token), Hosts: []string{"b.example"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Add(Binding{Name: "more", Value: Value(token), Hosts: []string{"b.example"}}); rung.KindOf(err) != rung.KindExhausted {
		t.Errorf("too many: %v", err)
	}
}

func TestValueIsNeverPrinted(t *testing.T) {
	b := Binding{Name: "KEY", Value: Value(token), Hosts: []string{"api.example"}}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "b", b, "v", b.Value)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "b", b, "v", b.Value)
	asJSON, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	text := logged.String() + string(asJSON) + fmt.Sprintf("%v %+v %#v %s %q %x %X %d", b, b, b, b.Value, b.Value, b.Value, b.Value, b.Value)
	for kind, spelled := range encodings(token) {
		if strings.Contains(text, spelled) {
			t.Errorf("%s: %s", kind, text)
		}
	}
	if strings.Contains(text, fmt.Sprintf("%x", token)) || strings.Contains(text, "115 107 45") {
		t.Error(text)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s, p := swap(t, nil)
	value := s.tab.entries[0].Value
	masked := s.Mask(io.MultiReader(strings.NewReader("before"), iotest.ErrReader(errors.New("never read"))))
	s.Close()
	if !bytes.Equal(value, make([]byte, len(value))) {
		t.Error("the value is still there")
	}
	if got, err := io.ReadAll(masked); rung.KindOf(err) != rung.KindConflict || len(got) != 0 {
		t.Errorf("a masked stream goes on: %q, %v", got, err)
	}
	h := header("Authorization", p)
	if err := s.Request(api, &Parts{Header: h}); rung.KindOf(err) != rung.KindConflict {
		t.Errorf("a request: %v", err)
	}
	body, _ := s.Body(api, "", strings.NewReader("x"))
	if _, err := io.ReadAll(body); rung.KindOf(err) != rung.KindConflict {
		t.Errorf("a body: %v", err)
	}
}

// FuzzStream: however a stream is cut, what comes out is what the whole would have become.
func FuzzStream(f *testing.F) {
	for _, text := range encodings("aaab-aaac") {
		f.Add([]byte(text+text), []byte{1, 2, 3})
	}
	f.Add([]byte("aaaaaab-aaac%61\\u0061"), []byte{0})
	s := New()
	for i, v := range []string{"aaab-aaac", "aaacaaab%\\", "b-aaacbbb", `%25%25\u\`} {
		if _, err := s.Add(Binding{Name: fmt.Sprint(i), Value: Value(v), Hosts: []string{"api.example"}, Body: true}); err != nil {
			f.Fatal(err)
		}
	}
	first := s.tab.entries[0]
	f.Add([]byte("x"+first.placeholder+"y"), []byte{5})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		got, err := io.ReadAll(s.Mask(&cutter{data, cuts}))
		if err != nil || string(got) != s.tab.masked(string(data)) {
			t.Fatalf("%q became %q, and whole %q, %v", data, got, s.tab.masked(string(data)), err)
		}
		if again := s.tab.masked(string(got)); again != string(got) && !bytes.Contains(got, []byte("***")) && !bytes.Contains(got, []byte(Prefix)) {
			t.Fatalf("%q still holds a value", got)
		}
		// A placeholder stands in for the letter p, so that the fuzzer can write it.
		data = bytes.ReplaceAll(data, []byte("p"), []byte(first.placeholder))
		body, _ := s.Body(api, "", &cutter{data, cuts})
		got, err = io.ReadAll(body)
		whole, wholeErr := s.tab.replace(string(data), func(e *entry, m match, text string) (string, error) {
			if !m.plain || text != e.placeholder {
				return "", e.refuse(api, "the body")
			}
			return string(e.Value), nil
		})
		if (err != nil) != (wholeErr != nil) || err == nil && string(got) != whole {
			t.Fatalf("%q became %q, %v, and whole %q, %v", data, got, err, whole, wholeErr)
		}
	})
}

// cutter hands data out in pieces of the sizes given.
type cutter struct{ data, cuts []byte }

func (c *cutter) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := len(c.data)
	if len(c.cuts) > 0 {
		n = min(n, int(c.cuts[0])%40+1)
		c.cuts = c.cuts[1:]
	}
	n = copy(p, c.data[:n])
	c.data = c.data[n:]
	return n, nil
}

func BenchmarkMask(b *testing.B) {
	s, _ := swap(b, nil)
	for name, text := range map[string]string{
		"json":   strings.Repeat(`{"id":12345,"name":"some name","url":"https:\/\/example.com\/a","text":"the quick brown fox"},`, 1000),
		"base64": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("some \x00 bytes \xff\xfe"), 5000)),
		"zeroes": strings.Repeat("\x00", 100_000),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, s.Mask(strings.NewReader(text))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
