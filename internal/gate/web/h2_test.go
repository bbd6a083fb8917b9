package web

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
)

// frame types and flags: RFC 9113 6.
const (
	h2Data, h2Headers, h2Reset, h2Settings, h2GoAway, h2Continuation = 0, 1, 3, 4, 7, 9

	endStream, endHeaders = 1, 4
)

func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// fields is a header block of name and value pairs.
func fields(pairs ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for p := range slices.Chunk(pairs, 2) {
		_ = e.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]}) // a buffer takes everything
	}
	return b.Bytes()
}

// pseudo is a request's usual pseudo-fields and more.
func pseudo(more ...string) []byte {
	return fields(append([]string{":method", "POST", ":scheme", "https", ":authority", name, ":path", "/a"}, more...)...)
}

// h2Conn opens HTTP/2 through the gate by hand.
func (g *gate) h2Conn(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	tc := tls.Client(c, &tls.Config{ServerName: name, RootCAs: g.roots(), NextProtos: []string{"h2"}})
	if _, err := tc.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2Frame(h2Settings, 0, 0, nil)...)); err != nil {
		t.Fatal(err)
	}
	return tc
}

// outcome is what stream 1 ends with: its status, "reset", or "gone" for the connection.
func outcome(c net.Conn) string {
	dec := hpack.NewDecoder(4096, nil)
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return "gone"
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return "gone"
		}
		switch head[3] {
		case h2Reset:
			return "reset"
		case h2GoAway:
			return "gone"
		case h2Headers:
			all, err := dec.DecodeFull(payload)
			if err != nil {
				return "gone"
			}
			return all[0].Value
		}
	}
}

func TestHostileHTTP2NeverReachesHTTP1(t *testing.T) {
	body := "0\r\n\r\n" + lines("GET /hidden HTTP/1.1", "Host: api.example")
	for name, test := range map[string]struct {
		block []byte
		data  string
		want  string // statuses and ends that are fine
	}{
		"good":                     {pseudo(), "x", "200"},
		"good with length":         {pseudo("content-length", "1"), "x", "200"},
		"transfer-encoding":        {pseudo("transfer-encoding", "chunked"), body, "400 reset"},
		"connection":               {pseudo("connection", "transfer-encoding"), body, "400 reset"},
		"upgrade":                  {pseudo("upgrade", "h2c"), "", "400 reset"},
		"CR LF in a value":         {pseudo("x", "y\r\ntransfer-encoding: chunked"), body, "400 reset gone"},
		"LF in a value":            {pseudo("x", "y\ntransfer-encoding: chunked"), body, "400 reset gone"},
		"NUL in a value":           {pseudo("x", "y\x00"), "", "400 reset gone"},
		"CR LF in a name":          {pseudo("x\r\ntransfer-encoding", "chunked"), body, "400 reset gone"},
		"colon in a name":          {pseudo("transfer-encoding: x", "chunked"), body, "400 reset gone"},
		"upper case":               {pseudo("Transfer-Encoding", "chunked"), body, "400 reset gone"},
		"underscore":               {pseudo("transfer_encoding", "chunked"), body, "400"},
		"short length":             {pseudo("content-length", "1"), body, "400 reset"},
		"long length":              {pseudo("content-length", "1000"), body, "400 reset gone"},
		"two lengths":              {pseudo("content-length", "1", "content-length", "2"), "x", "400 reset"},
		"signed length":            {pseudo("content-length", "+1"), "x", "400 reset 200"},
		"host differs":             {pseudo("host", "b.example"), "", "400 421 reset"},
		"two hosts":                {pseudo("host", "api.example", "host", "b.example"), "", "400 reset"},
		"authority differs":        {fields(":method", "GET", ":scheme", "https", ":authority", "b.example", ":path", "/"), "", "421"},
		"authority with userinfo":  {fields(":method", "GET", ":scheme", "https", ":authority", "x@api.example", ":path", "/"), "", "421 400 reset"},
		"no authority":             {fields(":method", "GET", ":scheme", "https", ":path", "/"), "", "421 400 reset"},
		"space in the path":        {fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", "/a HTTP/1.1"), "", "400 reset"},
		"CR LF in the path":        {fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", "/a HTTP/1.1\r\nX: y"), "", "400 reset gone"},
		"absolute path":            {fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", "https://b.example/"), "", "400 reset"},
		"empty path":               {fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", ""), "", "400 reset"},
		"fragment":                 {fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", "/a#b"), "", "400 reset"},
		"method with a space":      {fields(":method", "GET /hidden HTTP/1.1", ":scheme", "https", ":authority", host, ":path", "/"), "", "400 reset"},
		"lower-case method":        {fields(":method", "get", ":scheme", "https", ":authority", host, ":path", "/"), "", "400"},
		"CONNECT":                  {fields(":method", "CONNECT", ":authority", "b.example:443"), "", "400 reset"},
		"extended CONNECT":         {fields(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", host, ":path", "/"), "", "400 reset"},
		"two paths":                {fields(":method", "GET", ":scheme", "https", ":authority", host, ":path", "/a", ":path", "/b"), "", "400 reset"},
		"pseudo-field at the end":  {fields(":method", "GET", ":scheme", "https", ":authority", host, "x", "y", ":path", "/b"), "", "400 reset gone"},
		"method override":          {pseudo("x-http-method-override", "DELETE"), "", "403"},
		"more fields than allowed": {pseudo(strings.Split(strings.Repeat("x y ", 101), " ")[:202]...), "", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			up := recordTLS(t)
			g := newGate(t, up.addr, options{tls: true, roots: up.roots})
			c := g.h2Conn(t)
			flags := byte(endHeaders)
			if test.data == "" {
				flags |= endStream
			}
			sent := h2Frame(h2Headers, flags, 1, test.block)
			if test.data != "" {
				sent = append(sent, h2Frame(h2Data, endStream, 1, []byte(test.data))...)
			}
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			end := outcome(c)
			if !slices.Contains(strings.Fields(test.want), end) {
				t.Errorf("%s, want one of %s", end, test.want)
			}
			got := heads(t, up.bytes())
			t.Logf("%s; upstream read %q", end, got)
			if (end == "200") != (len(got) == 1) && end != "reset" {
				t.Errorf("the client heard %s, upstream read %q", end, got)
			}
			if len(got) > 1 || len(got) == 1 && (got[0] != "POST /a" || test.want != "200" && !strings.HasSuffix(test.want, " 200")) {
				t.Errorf("upstream read %q of %q", got, up.bytes())
			}
		})
	}
}

// host is name where a test case is called name.
const host = name

func TestContinuationFloodIsEnded(t *testing.T) {
	g := newGate(t, "127.0.0.1:1", options{tls: true})
	c := g.h2Conn(t)
	block := pseudo()
	if _, err := c.Write(h2Frame(h2Headers, 0, 1, block)); err != nil {
		t.Fatal(err)
	}
	flood := h2Frame(h2Continuation, 0, 1, fields("x", strings.Repeat("y", 8000)))
	done := make(chan string, 1)
	go func() { done <- outcome(c) }()
	for range 10_000 {
		if _, err := c.Write(flood); err != nil {
			break
		}
	}
	if got := <-done; got != "gone" {
		t.Error(got)
	}
}
