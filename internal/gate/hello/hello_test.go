package hello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
)

// record wraps a message in records of at most size bytes.
func records(msg []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(msg, size) {
		out = append(out, handshake, 3, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// ext is one extension.
func ext(kind int, body ...byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, uint16(kind))
	return append(binary.BigEndian.AppendUint16(out, uint16(len(body))), body...)
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = binary.BigEndian.AppendUint16(append(list, 0), uint16(len(n)))
		list = append(list, n...)
	}
	return ext(extServerName, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)...)
}

// message is a ClientHello with those extensions.
func message(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	all := slices.Concat(extensions...)
	body = binary.BigEndian.AppendUint16(body, uint16(len(all)))
	body = append(body, all...)
	return append([]byte{clientHello, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

// captured is what crypto/tls sends.
func captured(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		_ = tls.Client(client, c).Handshake() // fails when the test closes its end
		_ = client.Close()
	}()
	h, err := Read(server)
	_ = server.Close()
	if err != nil {
		t.Fatal(err)
	}
	return h.Raw
}

func TestReadOfARealClient(t *testing.T) {
	raw := captured(t, &tls.Config{ServerName: "API.Example.com", NextProtos: []string{"h2", "http/1.1"}})
	h, err := Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if h.ServerName != "api.example.com" || !slices.Equal(h.ALPN, []string{"h2", "http/1.1"}) || h.ECH || h.PSK || h.EarlyData {
		t.Errorf("read %+v", h)
	}
	if !slices.Contains(h.Versions, tls.VersionTLS13) || !bytes.Equal(h.Raw, raw) {
		t.Errorf("versions %x, %d of %d bytes", h.Versions, len(h.Raw), len(raw))
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

func TestReadAcrossFragments(t *testing.T) {
	msg := message(sni("a.example"), ext(extVersions, 2, 3, 4))
	for _, size := range []int{1, 2, 3, 5, 7, 64, len(msg)} {
		raw := records(msg, size)
		behind := bytes.NewReader(append(slices.Clone(raw), "next"...))
		h, err := Read(behind)
		if err != nil || h.ServerName != "a.example" || !bytes.Equal(h.Raw, raw) {
			t.Errorf("fragments of %d: %q %v", size, h.ServerName, err)
		}
		if rest, _ := io.ReadAll(behind); string(rest) != "next" {
			t.Errorf("fragments of %d: what follows is %q", size, rest)
		}
	}
}

func TestPain10_18_SNIThatTwoReadersCouldUnderstandDifferently(t *testing.T) {
	odd := ext(extServerName, 0, 4, 1, 0, 1, 'a') // a name of another type
	trailing := ext(extServerName, 0, 6, 0, 0, 1, 'a', 0, 0)
	for name, msg := range map[string][]byte{
		"two names":              message(sni("a.example", "b.example")),
		"extension twice":        message(sni("a.example"), sni("b.example")),
		"trailing dot":           message(sni("a.example.")),
		"empty name":             message(sni("")),
		"NUL":                    message(sni("a.example\x00.b.example")),
		"space":                  message(sni("a.example b")),
		"not ASCII":              message(sni("bücher.example")),
		"IPv4":                   message(sni("127.0.0.1")),
		"IPv4 as one number":     message(sni("2130706433")),
		"IPv4 in hexadecimal":    message(sni("0x7f.1")),
		"IPv4 with hex at end":   message(sni("127.0x1")),
		"IPv6":                   message(sni("::1")),
		"userinfo":               message(sni("a@b.example")),
		"slash":                  message(sni("a.example/b")),
		"overlong":               message(sni(strings.Repeat("a.", 130) + "b")),
		"overlong label":         message(sni(strings.Repeat("a", 64) + ".example")),
		"another name type":      message(odd),
		"bytes behind the name":  message(trailing),
		"psk not last":           message(ext(extPSK), sni("a.example")),
		"inner ECH":              message(sni("a.example"), ext(extECH, 1)),
		"empty ALPN":             message(ext(extALPN, 0, 0)),
		"ALPN with empty name":   message(ext(extALPN, 0, 1, 0)),
		"odd supported versions": message(ext(extVersions, 3, 3, 4, 3)),
		"bytes behind":           append(message(sni("a.example")), 1),
		"server hello":           {2, 0, 0, 0},
	} {
		h, err := Read(bytes.NewReader(records(msg, maxRecord)))
		if rung.KindOf(err) != rung.KindInvalid || h.ServerName == "b.example" {
			t.Errorf("%s: %q, %v", name, h.ServerName, err)
		}
	}
}

func TestPain33_ECHAndNamelessAreRefused(t *testing.T) {
	for name, msg := range map[string][]byte{
		"ECH or its GREASE": message(sni("a.example"), ext(extECH, 0, 0, 1, 0, 1, 7)),
		"ESNI":              message(sni("a.example"), ext(extESNI, 0)),
		"no name":           message(ext(extVersions, 2, 3, 4)),
	} {
		h, err := Read(bytes.NewReader(records(msg, maxRecord)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.Check(); rung.KindOf(err) != rung.KindRefused || rung.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	endless := records(bytes.Repeat([]byte{clientHello, 0, 0xff, 0xff}, 8<<10), 1024)
	r := bytes.NewReader(append(endless, endless...))
	h, err := Read(r)
	if rung.KindOf(err) != rung.KindInvalid || len(h.Raw) > MaxBytes {
		t.Errorf("%d bytes: %v", len(h.Raw), err)
	}
	for name, raw := range map[string][]byte{
		"plain HTTP":     []byte("GET / HTTP/1.1\r\n"),
		"SSLv2":          {0x80, 0x2e, 1, 3, 1, 0},
		"empty record":   {handshake, 3, 1, 0, 0},
		"record too big": {handshake, 3, 1, 0x40, 1},
		"alert":          {21, 3, 1, 0, 2, 1, 0},
		"other version":  {handshake, 2, 0, 0, 1},
	} {
		if _, err := Read(bytes.NewReader(raw)); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := records(message(sni("a.example")), maxRecord)
	for n := range whole {
		_, err := Read(bytes.NewReader(whole[:n]))
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(captured(f, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}}))
	f.Add(records(message(sni("a.example"), ext(extECH, 0), ext(extPSK)), 3))
	f.Add(records(message(ext(extALPN, 0, 3, 2, 'h', '2'), ext(extVersions, 2, 3, 4)), 99))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := Read(bytes.NewReader(raw))
		if len(h.Raw) > MaxBytes || !bytes.HasPrefix(raw, h.Raw) {
			t.Fatalf("%d bytes kept of %d", len(h.Raw), len(raw))
		}
		if err != nil {
			return
		}
		if h.ServerName != "" && (!ValidName(h.ServerName) || h.ServerName != strings.ToLower(h.ServerName)) {
			t.Fatalf("server name %q", h.ServerName)
		}
		agree(t, h)
	})
}

// agree holds the parse against crypto/tls: what both accept they read alike.
func agree(t *testing.T, h Hello) {
	t.Helper()
	seen := errors.New("seen")
	var theirs *tls.ClientHelloInfo
	server := tls.Server(replay{Reader: bytes.NewReader(h.Raw)}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			theirs = i
			return nil, seen
		},
	})
	if err := server.Handshake(); !errors.Is(err, seen) {
		return
	}
	if theirs.ServerName != "" && strings.ToLower(theirs.ServerName) != h.ServerName {
		t.Fatalf("ours %q, theirs %q", h.ServerName, theirs.ServerName)
	}
	if h.ServerName != "" && theirs.ServerName == "" || !slices.Equal(theirs.SupportedProtos, h.ALPN) {
		t.Fatalf("ours %q %q, theirs %q %q", h.ServerName, h.ALPN, theirs.ServerName, theirs.SupportedProtos)
	}
}

// replay is a connection that was recorded; what is written to it is lost.
type replay struct {
	net.Conn
	io.Reader
}

func (r replay) Read(b []byte) (int, error)  { return r.Reader.Read(b) }
func (r replay) Write(b []byte) (int, error) { return len(b), nil }
func (r replay) Close() error                { return nil }
