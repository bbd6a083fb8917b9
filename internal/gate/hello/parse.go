package hello

import (
	"encoding/binary"
	"slices"
	"strings"
)

// Extension numbers: IANA, TLS ExtensionType Values.
const (
	extServerName   = 0
	extALPN         = 16
	extPSK          = 41
	extEarlyData    = 42
	extVersions     = 43
	extECH          = 0xfe0d
	extESNI         = 0xffce // the draft before ECH
	maxExtensions   = 128    // real clients send about twenty
	maxProtocols    = 64
	legacyVersion12 = 0x0303
)

// cursor reads length-prefixed fields; once something is missing it stays failed.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() int {
	if b := c.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (c *cursor) u16() int {
	if b := c.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *cursor) vec8() []byte  { return c.take(c.u8()) }
func (c *cursor) vec16() []byte { return c.take(c.u16()) }
func (c *cursor) done() bool    { return !c.bad && len(c.b) == 0 }

// parse reads the body of a ClientHello: RFC 8446 4.1.2, RFC 5246 7.4.1.2.
func parse(b []byte) (Hello, error) {
	c := cursor{b: b}
	version := c.u16()
	c.take(32) // random
	session, suites, compression := c.vec8(), c.vec16(), c.vec8()
	switch {
	case c.bad:
		return Hello{}, invalid("it is cut short")
	case version < 0x0301 || version > legacyVersion12:
		return Hello{}, invalid("legacy version %#04x", version)
	case len(session) > 32:
		return Hello{}, invalid("a session id of %d bytes", len(session))
	case len(suites) == 0 || len(suites)%2 != 0:
		return Hello{}, invalid("%d bytes of cipher suites", len(suites))
	case !slices.Contains(compression, 0):
		return Hello{}, invalid("no null compression")
	}
	h := Hello{Versions: []uint16{uint16(version)}}
	if c.done() {
		return h, nil // RFC 5246 allows a ClientHello without extensions
	}
	all := cursor{b: c.vec16()}
	if !c.done() {
		return Hello{}, invalid("the extensions' length is wrong")
	}
	return h, h.extensions(all)
}

func (h *Hello) extensions(c cursor) error {
	var seen []int
	for !c.done() {
		kind, body := c.u16(), c.vec16()
		switch {
		case c.bad:
			return invalid("an extension is cut short")
		case slices.Contains(seen, kind): // RFC 8446 4.2: not more than one of a type
			return invalid("extension %d twice", kind)
		case len(seen) == maxExtensions:
			return invalid("more than %d extensions", maxExtensions)
		case h.PSK: // RFC 8446 4.2.11
			return invalid("extension %d behind pre_shared_key, which has to be the last", kind)
		}
		seen = append(seen, kind)
		if err := h.extension(kind, body); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hello) extension(kind int, body []byte) (err error) {
	switch kind {
	case extServerName:
		h.ServerName, err = serverName(body)
	case extALPN:
		h.ALPN, err = protocols(body)
	case extVersions:
		h.Versions, err = versions(body)
	case extPSK:
		h.PSK = true
	case extEarlyData:
		h.EarlyData = true
	case extESNI:
		h.ECH = true
	case extECH:
		// ECHClientHelloType: outer 0, inner 1. An inner one is only ever seen decrypted.
		if len(body) == 0 || body[0] != 0 {
			return invalid("an encrypted_client_hello that is not an outer one")
		}
		h.ECH = true
	}
	return err
}

// serverName reads a list of exactly one host_name: RFC 6066 3.
func serverName(b []byte) (string, error) {
	outer := cursor{b: b}
	list := cursor{b: outer.vec16()}
	kind := list.u8()
	name := string(list.vec16())
	if !outer.done() || !list.done() || kind != 0 {
		return "", invalid("the server name is not exactly one host name")
	}
	if !ValidName(name) {
		return "", invalid("the server name %.64q is not a host name", name)
	}
	return strings.ToLower(name), nil
}

// protocols reads an ALPN list: RFC 7301 3.1.
func protocols(b []byte) ([]string, error) {
	outer := cursor{b: b}
	list := cursor{b: outer.vec16()}
	var out []string
	for !list.done() && len(out) < maxProtocols {
		p := list.vec8()
		if len(p) == 0 {
			return nil, invalid("an empty protocol name in ALPN")
		}
		out = append(out, string(p))
	}
	if !outer.done() || !list.done() || len(out) == 0 {
		return nil, invalid("the ALPN list is not well formed")
	}
	return out, nil
}

// versions reads supported_versions of a client: RFC 8446 4.2.1.
func versions(b []byte) ([]uint16, error) {
	outer := cursor{b: b}
	list := cursor{b: outer.vec8()}
	var out []uint16
	for !list.done() && !list.bad {
		out = append(out, uint16(list.u16()))
	}
	if !outer.done() || !list.done() || len(out) == 0 {
		return nil, invalid("supported_versions is not well formed")
	}
	return out, nil
}
