package framing

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/rung-dev/rung"
)

// read is ReadHead and Parse of a text.
func read(raw string) (Head, *bufio.Reader, error) {
	r := bufio.NewReaderSize(strings.NewReader(raw), 64)
	head, err := ReadHead(r)
	if err != nil {
		return Head{}, r, err
	}
	h, err := Parse(head)
	return h, r, err
}

// lines joins with CR LF and ends the head.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

func TestParse(t *testing.T) {
	for _, test := range []struct {
		raw  string
		want Head
	}{
		{
			lines("GET /a/b?x=1&y HTTP/1.1", "Host: a.example", "Accept: \t*/* "),
			Head{
				Method: "GET", Path: "/a/b", Query: "x=1&y", ForceQuery: true, Minor: 1, Host: "a.example", Length: -1,
				Fields: []Field{{"Host", "a.example"}, {"Accept", "*/*"}},
			},
		},
		{
			lines("POST http://A.example:80?q HTTP/1.1", "host: a.example", "content-length: 3"),
			Head{
				Method: "POST", Scheme: "http", Path: "/", Query: "q", ForceQuery: true, Minor: 1, Host: "a.example", Length: 3,
				Fields: []Field{{"host", "a.example"}, {"content-length", "3"}},
			},
		},
		{
			lines("PUT / HTTP/1.1", "Host: [2001:db8::1]:8080", "Transfer-Encoding: Chunked", "Expect: 100-Continue", "Connection: close"),
			Head{
				Method: "PUT", Path: "/", Minor: 1, Host: "[2001:db8::1]:8080", Length: -1, Chunked: true, Continue: true, Close: true,
				Fields: []Field{{"Host", "[2001:db8::1]:8080"}, {"Transfer-Encoding", "Chunked"}, {"Expect", "100-Continue"}, {"Connection", "close"}},
			},
		},
		{
			lines("OPTIONS * HTTP/1.0", "Host: a"),
			Head{Method: "OPTIONS", Path: "*", Host: "a", Length: -1, Close: true, Fields: []Field{{"Host", "a"}}},
		},
		{
			lines("GET /s HTTP/1.1", "Host: a", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "X_Own: 1"),
			Head{
				Method: "GET", Path: "/s", Minor: 1, Host: "a", Length: -1, WebSocket: true,
				Fields: []Field{{"Host", "a"}, {"Connection", "keep-alive, Upgrade"}, {"Upgrade", "websocket"}, {"X_Own", "1"}},
			},
		},
	} {
		got, _, err := read(test.raw)
		if err != nil {
			t.Errorf("%q: %v", test.raw, err)
		} else if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%q: %s", test.raw, d)
		}
	}
}

// get is a request of those fields behind a good request line and Host.
func get(fields ...string) string {
	return lines(append([]string{"POST /x HTTP/1.1", "Host: a.example"}, fields...)...)
}

// smuggling is every shape that has to be refused before anything parses it.
var smuggling = map[string]string{
	"two lengths":                get("Content-Length: 5", "Content-Length: 6"),
	"two equal lengths":          get("Content-Length: 5", "Content-Length: 5"),
	"list of lengths":            get("Content-Length: 5, 5"),
	"signed length":              get("Content-Length: +5"),
	"negative length":            get("Content-Length: -1"),
	"hexadecimal length":         get("Content-Length: 0x5"),
	"length with leading zero":   get("Content-Length: 05"),
	"length with underscores":    get("Content-Length: 1_0"),
	"empty length":               get("Content-Length:"),
	"enormous length":            get("Content-Length: 18446744073709551617"),
	"length and encoding":        get("Content-Length: 5", "Transfer-Encoding: chunked"),
	"encoding and length":        get("Transfer-Encoding: chunked", "Content-Length: 5"),
	"two encodings":              get("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
	"list of encodings":          get("Transfer-Encoding: gzip, chunked"),
	"chunked twice":              get("Transfer-Encoding: chunked, chunked"),
	"identity":                   get("Transfer-Encoding: identity"),
	"xchunked":                   get("Transfer-Encoding: xchunked"),
	"quoted chunked":             get(`Transfer-Encoding: "chunked"`),
	"chunked with vertical tab":  get("Transfer-Encoding: \x0bchunked"),
	"chunked with parameter":     get("Transfer-Encoding: chunked;q=1"),
	"encoding in 1.0":            lines("POST / HTTP/1.0", "Host: a", "Transfer-Encoding: chunked"),
	"space before colon":         get("Content-Length : 5"),
	"tab before colon":           get("Transfer-Encoding\t: chunked"),
	"space before field":         lines("GET / HTTP/1.1", " Host: a"),
	"obs-fold":                   get("X: a", " Transfer-Encoding: chunked"),
	"obs-fold with tab":          get("Transfer-Encoding:", "\tchunked"),
	"bare LF":                    "GET / HTTP/1.1\nHost: a\n\n",
	"bare LF in fields":          "GET / HTTP/1.1\r\nHost: a\nContent-Length: 5\r\n\r\n",
	"bare LF at the end":         "GET / HTTP/1.1\r\nHost: a\r\n\n",
	"bare CR":                    get("X: a\rContent-Length: 5"),
	"bare CR in name":            get("X\rContent-Length: 5"),
	"CR CR LF":                   get("X: a\r"),
	"NUL in value":               get("X: a\x00b"),
	"NUL in name":                get("X\x00: a"),
	"control byte":               get("X: a\x01b"),
	"DEL":                        get("X: a\x7fb"),
	"not ASCII in value":         get("X: \xff"),
	"not ASCII in name":          get("Content-Length\xc2\xa0: 5"),
	"no colon":                   get("Content-Length 5"),
	"empty name":                 get(": 5"),
	"underscored length":         get("Content_Length: 5"),
	"underscored encoding":       get("Transfer_Encoding: chunked"),
	"underscored host":           get("HOST_: b", "host-: c"),
	"underscored twin":           get("X-User: a", "X_User: b"),
	"two hosts":                  get("Host: b.example"),
	"two equal hosts":            get("Host: a.example"),
	"no host":                    lines("GET / HTTP/1.1", "Accept: */*"),
	"1.0 without host":           lines("GET / HTTP/1.0"),
	"empty host":                 lines("GET / HTTP/1.1", "Host:"),
	"host list":                  lines("GET / HTTP/1.1", "Host: a.example, b.example"),
	"host with userinfo":         lines("GET / HTTP/1.1", "Host: a.example@b.example"),
	"host with path":             lines("GET / HTTP/1.1", "Host: a.example/b"),
	"host with space":            lines("GET / HTTP/1.1", "Host: a.example b.example"),
	"host with percent":          lines("GET / HTTP/1.1", "Host: a%2eexample"),
	"host with port 0":           lines("GET / HTTP/1.1", "Host: a.example:0"),
	"host with port 65536":       lines("GET / HTTP/1.1", "Host: a.example:65536"),
	"host with empty port":       lines("GET / HTTP/1.1", "Host: a.example:"),
	"host with two ports":        lines("GET / HTTP/1.1", "Host: a.example:80:80"),
	"host with signed port":      lines("GET / HTTP/1.1", "Host: a.example:+80"),
	"open bracket":               lines("GET / HTTP/1.1", "Host: [::1"),
	"zone":                       lines("GET / HTTP/1.1", "Host: [fe80::1%25eth0]"),
	"absolute of another host":   lines("GET http://b.example/ HTTP/1.1", "Host: a.example"),
	"absolute of another port":   lines("GET http://a.example:81/ HTTP/1.1", "Host: a.example"),
	"absolute with userinfo":     lines("GET http://u@a.example/ HTTP/1.1", "Host: a.example"),
	"absolute without host":      lines("GET http:///x HTTP/1.1", "Host: a.example"),
	"absolute of another scheme": lines("GET ftp://a.example/ HTTP/1.1", "Host: a.example"),
	"absolute without Host":      lines("GET http://a.example/ HTTP/1.1"),
	"authority form":             lines("GET a.example:443 HTTP/1.1", "Host: a.example"),
	"CONNECT":                    lines("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443"),
	"CONNECT with a path":        lines("CONNECT /x HTTP/1.1", "Host: a.example"),
	"asterisk for GET":           lines("GET * HTTP/1.1", "Host: a.example"),
	"relative path":              lines("GET x HTTP/1.1", "Host: a.example"),
	"fragment":                   lines("GET /x#y HTTP/1.1", "Host: a.example"),
	"space in target":            lines("GET /x y HTTP/1.1", "Host: a.example"),
	"tab in target":              lines("GET /x\ty HTTP/1.1", "Host: a.example"),
	"NUL in target":              lines("GET /x\x00y HTTP/1.1", "Host: a.example"),
	"not ASCII in target":        lines("GET /\xff HTTP/1.1", "Host: a.example"),
	"two spaces":                 lines("GET  / HTTP/1.1", "Host: a.example"),
	"space behind the version":   lines("GET / HTTP/1.1 ", "Host: a.example"),
	"empty line first":           "\r\n" + get(),
	"0.9":                        "GET /\r\n\r\n",
	"1.2":                        lines("GET / HTTP/1.2", "Host: a.example"),
	"2.0":                        lines("PRI * HTTP/2.0"),
	"01.1":                       lines("GET / HTTP/01.1", "Host: a.example"),
	"lower-case version":         lines("GET / http/1.1", "Host: a.example"),
	"lower-case method":          lines("get / HTTP/1.1", "Host: a.example"),
	"method with control byte":   lines("G\x01T / HTTP/1.1", "Host: a.example"),
	"overlong method":            lines(strings.Repeat("A", 33)+" / HTTP/1.1", "Host: a.example"),
	"h2c":                        get("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__"),
	"h2c by list":                get("Upgrade: websocket, h2c", "Connection: Upgrade"),
	"http2-settings alone":       get("HTTP2-Settings: AAMAAABkAAQAAP__"),
	"upgrade to TLS":             get("Upgrade: TLS/1.0", "Connection: Upgrade"),
	"websocket by POST":          get("Upgrade: websocket", "Connection: Upgrade"),
	"websocket with a body":      lines("GET / HTTP/1.1", "Host: a", "Upgrade: websocket", "Connection: Upgrade", "Content-Length: 1"),
	"websocket by half":          lines("GET / HTTP/1.1", "Host: a", "Upgrade: websocket"),
	"expects something else":     get("Expect: 200-ok", "Content-Length: 1"),
	"connection names length":    get("Connection: content-length", "Content-Length: 1"),
	"connection names host":      get("Connection: close, Host"),
	"too many fields":            get(strings.Split(strings.Repeat("X: y\n", MaxFields), "\n")[:MaxFields]...),
	"head too large":             get("X: " + strings.Repeat("y", MaxHead)),
}

func TestPain05_SmugglingShapesAreRefused(t *testing.T) {
	for name, raw := range smuggling {
		if h, _, err := read(raw); !IsMalformed(err) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func TestPain03_NoTunnelInsideARequest(t *testing.T) {
	for _, name := range []string{"h2c", "h2c by list", "http2-settings alone", "CONNECT", "upgrade to TLS", "2.0"} {
		if _, _, err := read(smuggling[name]); !IsMalformed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadHeadLeavesTheRest(t *testing.T) {
	raw := get("Content-Length: 4") + "body" + get()
	r := bufio.NewReader(iotest.OneByteReader(strings.NewReader(raw)))
	head, err := ReadHead(r)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Parse(head)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(h.Body(r)); string(body) != "body" || err != nil {
		t.Errorf("body %q, %v", body, err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != get() {
		t.Errorf("left %q", rest)
	}
	_, err = ReadHead(bufio.NewReader(strings.NewReader("GET / HT")))
	if err != io.EOF {
		t.Errorf("cut short: %v", err)
	}
}

func TestBodyThatEndsEarly(t *testing.T) {
	for _, raw := range []string{
		get("Content-Length: 5") + "four", get("Transfer-Encoding: chunked") + "5\r\nfour",
		get("Transfer-Encoding: chunked") + "4\r\nfour\r\n", get("Transfer-Encoding: chunked"),
		get("Transfer-Encoding: chunked") + "0\r\n",
	} {
		h, r, err := read(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(h.Body(r)); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestChunked(t *testing.T) {
	for raw, want := range map[string]string{
		"0\r\n\r\n":                                       "",
		"4\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\n":            "Wikipedia",
		"a\r\n0123456789\r\nA\r\nabcdefghij\r\n0\r\n\r\n": "0123456789abcdefghij",
		"00000001\r\nx\r\n000\r\n\r\n":                    "x",
		"1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n":             "x",
	} {
		r := bufio.NewReader(strings.NewReader(raw + "GET"))
		got, err := io.ReadAll(iotest.OneByteReader(NewChunked(r)))
		if string(got) != want || err != nil {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "GET" {
			t.Errorf("%q: left %q", raw, rest)
		}
	}
}

// badChunks is every malformed chunked body.
func badChunks() []string {
	return []string{
		"5;ext\r\nhello\r\n0\r\n\r\n", "5;ext=\"\r\n\"\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n",
		"5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhelloo\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n",
		"5\r\nhello\r\n0\r\n\n", "0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n",
		"\r\n5\r\nhello\r\n0\r\n\r\n", "5_0\r\nhello\r\n0\r\n\r\n", "100000000\r\n", "fffffffffffffffff\r\n", "000000005\r\nhello\r\n0\r\n\r\n",
		"0\r\nbad trailer\r\n\r\n", "0\r\n X: a\r\n\r\n", "0\r\nX : a\r\n\r\n", "0\r\nX: a\x00\r\n\r\n",
		"0\r\nX: " + strings.Repeat("a", maxTrailer) + "\r\n\r\n", "0\r\n" + strings.Repeat("X: a\r\n", maxTrailer) + "\r\n",
		"5\rhello\r\n0\r\n\r\n", "5\r\r\nhello\r\n0\r\n\r\n", "G\r\n",
	}
}

func TestPain05_MalformedChunksAreRefused(t *testing.T) {
	for _, raw := range badChunks() {
		if got, err := io.ReadAll(NewChunked(bufio.NewReader(strings.NewReader(raw)))); !IsMalformed(err) {
			t.Errorf("%q: %q, %v", raw[:min(len(raw), 40)], got, err)
		}
	}
}

// FuzzHead: what is let through net/http reads too, and reads alike.
func FuzzHead(f *testing.F) {
	f.Add([]byte(get("Content-Length: 4", "Connection: close") + "body"))
	f.Add([]byte(get("Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\n"))
	f.Add([]byte(lines("GET http://a.example/x?y HTTP/1.1", "Host: a.example")))
	for _, raw := range smuggling {
		f.Add([]byte(raw[:min(len(raw), 512)]))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(raw), 16)
		head, err := ReadHead(r)
		if err != nil {
			return
		}
		h, err := Parse(head)
		if err != nil {
			if !IsMalformed(err) {
				t.Fatal(err)
			}
			return
		}
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			if strings.Contains(err.Error(), "parse") { // net/url is stricter about percent signs and IPv6 literals
				return
			}
			t.Fatalf("%q passes here, and net/http says %v", raw, err)
		}
		compare(t, h, theirs)
		ours, err := io.ReadAll(h.Body(r))
		if err == nil {
			body, err := io.ReadAll(theirs.Body)
			if err != nil || !bytes.Equal(ours, body) {
				t.Fatalf("%q: body %q here, %q there, %v", raw, ours, body, err)
			}
		}
	})
}

func compare(t *testing.T, h Head, theirs *http.Request) {
	t.Helper()
	length := h.Length
	if !h.Chunked && length < 0 {
		length = 0
	}
	chunked := len(theirs.TransferEncoding) == 1 && theirs.TransferEncoding[0] == "chunked"
	if theirs.Method != h.Method || theirs.ContentLength != length || chunked != h.Chunked || theirs.ProtoMinor != h.Minor {
		t.Fatalf("here %+v, there %+v", h, theirs)
	}
	if h.Scheme == "" && theirs.Host != h.Host || theirs.URL.RawQuery != h.Query {
		t.Fatalf("here %+v, there %+v", h, theirs)
	}
	n := 0
	for _, v := range theirs.Header {
		n += len(v)
	}
	if diff := len(h.Fields) - n; diff < 0 || diff > 4 { // net/http takes Host, the framing fields and hop-by-hop ones out
		t.Fatalf("%d fields here, %d there", len(h.Fields), n)
	}
}

// FuzzChunked: what is let through net/http's reader decodes alike, and nothing behind the end is touched.
func FuzzChunked(f *testing.F) {
	f.Add([]byte("4\r\nWiki\r\n5\r\npedia\r\n0\r\nA: b\r\n\r\nrest"))
	for _, raw := range badChunks() {
		f.Add([]byte(raw[:min(len(raw), 256)]))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(raw), 16)
		got, err := io.ReadAll(NewChunked(r))
		if err != nil {
			if err != io.ErrUnexpectedEOF && rung.KindOf(err) != rung.KindInvalid {
				t.Fatal(err)
			}
			return
		}
		whole := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", raw)
		in := bufio.NewReader(bytes.NewReader(whole))
		theirs, err := http.ReadRequest(in)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(theirs.Body)
		if err != nil || !bytes.Equal(body, got) {
			t.Fatalf("%q: %q here, %q there, %v", raw, got, body, err)
		}
		ours, _ := io.ReadAll(r)
		left, _ := io.ReadAll(in)
		if !bytes.Equal(ours, left) {
			t.Fatalf("%q: %q is left here, %q there", raw, ours, left)
		}
	})
}

func BenchmarkHead(b *testing.B) {
	raw := get("User-Agent: x", "Accept: */*", "Content-Type: application/json", "Authorization: Bearer abcdefgh", "Content-Length: 0")
	var r bufio.Reader
	for b.Loop() {
		r.Reset(strings.NewReader(raw))
		head, err := ReadHead(&r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Parse(head); err != nil {
			b.Fatal(err)
		}
	}
}
