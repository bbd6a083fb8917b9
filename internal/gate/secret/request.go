package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/rung-dev/rung"
)

// Parts are what of a request comes before its body. Header is changed in place.
type Parts struct {
	Header http.Header
	Path   string // as it is sent
	Query  string // as it is sent, without "?"
}

// Request swaps the placeholders that may go to the target and refuses (KindRefused) any other. After an error the parts
// are half done and must not be sent.
func (s *Swap) Request(t Target, p *Parts) error {
	if s == nil {
		return nil
	}
	return s.with(func(tab *table) error {
		if len(tab.entries) == 0 {
			return nil
		}
		if err := tab.line(t, p); err != nil {
			return err
		}
		for name, values := range p.Header {
			if _, err := tab.replace(name, func(e *entry, _ match, _ string) (string, error) {
				return "", e.refuse(t, "a header's name")
			}); err != nil {
				return err
			}
			for i, v := range values {
				next, err := tab.value(t, name, v)
				if err != nil {
					return err
				}
				values[i] = next
			}
		}
		tab.set(t, p.Header)
		return nil
	})
}

// line does the path and the query.
func (tab *table) line(t Target, p *Parts) error {
	refuse := func(where string) func(*entry, match, string) (string, error) {
		return func(e *entry, _ match, _ string) (string, error) { return "", e.refuse(t, where) }
	}
	for _, text := range []string{p.Path, decoded(p.Path)} {
		if _, err := tab.replace(text, refuse("the path")); err != nil {
			return err
		}
	}
	query, err := tab.replace(p.Query, func(e *entry, m match, text string) (string, error) {
		if e.signed && e.bound(t) { // of a presigned URL, whose signature is made anew
			return text, nil
		}
		if !m.plain || !e.Query || !e.bound(t) {
			return "", e.refuse(t, "the query")
		}
		return url.QueryEscape(string(e.Value)), nil
	})
	if err != nil {
		return err
	}
	if query == p.Query { // nothing was swapped, so what is found in the decoded text is a spelling in a spelling
		if _, err := tab.replace(decoded(query), refuse("the query")); err != nil {
			return err
		}
	}
	p.Query = query
	return nil
}

// decoded resolves one layer of percent encoding; what is no such encoding stays.
func decoded(s string) string {
	if !strings.Contains(s, "%") {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// value does one header value.
func (tab *table) value(t Target, name, v string) (string, error) {
	swap := func(e *entry, m match, text string) (string, error) {
		if e.signed && e.bound(t) && carriesSignature(name) {
			return text, nil
		}
		if e.signed || !m.plain || text != e.placeholder || !e.bound(t) || e.Header != "" && !strings.EqualFold(e.Header, name) {
			return "", e.refuse(t, "the header "+name)
		}
		return string(e.Value), nil
	}
	if scheme, rest, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			next, err := tab.replace(string(plain), swap)
			if err != nil || next == string(plain) {
				return v, err
			}
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(next)), nil
		}
	}
	return tab.replace(v, swap)
}

// carriesSignature is whether a header is one that a client signs by, which the gate does anew.
func carriesSignature(name string) bool {
	return strings.EqualFold(name, "Authorization") || strings.EqualFold(name, "X-Amz-Security-Token")
}

// set writes the headers that the gate adds itself.
func (tab *table) set(t Target, h http.Header) {
	for _, e := range tab.entries {
		if e.Format != "" && e.bound(t) && len(h.Values(e.Header)) == 0 {
			h.Set(e.Header, strings.Replace(e.Format, "{}", string(e.Value), 1))
		}
	}
}

// replace puts decide's text in the place of every placeholder.
func (tab *table) replace(text string, decide func(e *entry, m match, text string) (string, error)) (string, error) {
	b := []byte(text)
	var out []byte
	for {
		at, m, found := tab.find.next(b, true)
		if !found {
			if out == nil {
				return text, nil
			}
			return string(append(out, b...)), nil
		}
		next, err := decide(tab.entries[m.id], m, string(b[at:at+m.length]))
		if err != nil {
			return "", err
		}
		out = append(append(out, b[:at]...), next...)
		b = b[at+m.length:]
	}
}

// Body swaps and refuses in a body while it is read. It reports whether the length may change; when it does not, it is
// kept to the byte. A compressed body (Content-Encoding) is looked at as it is: nothing in it is found.
func (s *Swap) Body(t Target, contentType string, r io.Reader) (out io.Reader, changes bool) {
	if s.Empty() {
		return r, false
	}
	_ = s.with(func(tab *table) error { // a closed Swap fails at the first Read
		for _, e := range tab.entries {
			changes = changes || e.Body && e.bound(t)
		}
		return nil
	})
	escape := escaper(contentType)
	return &filter{s: s, src: r, find: true, decide: func(e *entry, m match, text []byte) ([]byte, error) {
		if !m.plain || !e.Body || !e.bound(t) || string(text) != e.placeholder {
			return nil, e.refuse(t, "the body")
		}
		return escape(e.Value), nil
	}}, changes
}

// escaper spells a value so that it stays one value in a body of that type.
func escaper(contentType string) func(Value) []byte {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return func(v Value) []byte {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if enc.Encode(string(v)) != nil { // a string always encodes
				return nil
			}
			return bytes.Trim(b.Bytes(), "\n")[1 : b.Len()-2]
		}
	case err == nil && kind == "application/x-www-form-urlencoded":
		return func(v Value) []byte { return []byte(url.QueryEscape(string(v))) }
	}
	return func(v Value) []byte { return v }
}

// Name refuses a host name that holds a placeholder: asking for it, or opening a connection to it, would carry it out.
func (s *Swap) Name(host string) error {
	if s.Empty() {
		return nil
	}
	return s.with(func(tab *table) error {
		_, err := tab.replace(host, func(e *entry, _ match, _ string) (string, error) {
			return "", rung.Errorf(rung.KindRefused, "the placeholder of the secret %q is in a host name", e.Name)
		})
		return err
	})
}

// Scanner looks for placeholders in a stream that nothing may be swapped in, such as websocket messages.
type Scanner struct {
	s     *Swap
	t     Target
	where string
	tail  []byte
}

// Scan starts one. where is said in the error.
func (s *Swap) Scan(t Target, where string) *Scanner { return &Scanner{s: s, t: t, where: where} }

// Write looks at the next bytes. The error is of KindRefused for a placeholder.
func (c *Scanner) Write(p []byte) (int, error) {
	if c.s.Empty() {
		return len(p), nil
	}
	c.tail = append(c.tail, p...)
	err := c.s.with(func(tab *table) error {
		at, m, found := tab.find.next(c.tail, false)
		if found {
			return tab.entries[m.id].refuse(c.t, c.where)
		}
		c.tail = append(c.tail[:0], c.tail[at:]...)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// IsRefused says whether err is the refusal of a placeholder, which is of high severity.
func IsRefused(err error) bool { return rung.KindOf(err) == rung.KindRefused }
