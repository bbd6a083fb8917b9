//go:build linux

package main

import (
	"encoding/binary"
	"slices"

	"github.com/rung-dev/rung/test/egress/order"
)

// vector is bytes after their length in n bytes (RFC 8446 3.4).
func vector(n int, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return append(head[4-n:], body...)
}

func u16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }

// clientHello is built by hand, with the token where the random bytes are and any bytes as a name.
func clientHello(t *order.TLS, token string) []byte {
	random := make([]byte, 32)
	copy(random, token)
	names := t.SNIs
	if len(names) == 0 {
		names = []string{t.SNI}
	}
	var list []byte
	for _, n := range names {
		list = slices.Concat(list, []byte{0}, vector(2, []byte(n)))
	}
	extensions := slices.Concat(
		u16(0), vector(2, vector(2, list)),
		u16(10), vector(2, vector(2, u16(29))), // supported_groups: x25519
		u16(13), vector(2, vector(2, u16(0x0403), u16(0x0804))), // signature_algorithms
		u16(43), vector(2, vector(1, u16(0x0303))), // supported_versions
	)
	if t.ECH { // encrypted_client_hello (RFC 9849 section 5), an outer one; nobody has the key
		outer := slices.Concat([]byte{0}, u16(1), u16(1), []byte{7}, vector(2, make([]byte, 32)), vector(2, make([]byte, 200)))
		extensions = slices.Concat(extensions, u16(0xfe0d), vector(2, outer))
	}
	body := slices.Concat(u16(0x0303), random, vector(1), vector(2, u16(0xc02f), u16(0xc02b)), vector(1, []byte{0}), vector(2, extensions))
	message := append([]byte{1}, vector(3, body)...)
	if t.Split <= 0 {
		t.Split = len(message)
	}
	var out []byte
	for part := range slices.Chunk(message, t.Split) {
		out = slices.Concat(out, []byte{22}, u16(0x0301), vector(2, part))
	}
	return out
}
