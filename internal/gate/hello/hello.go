// Package hello reads the first flight of a TLS client, its ClientHello (RFC 8446 4.1.2), before anybody has decided
// whether the connection may exist. The bytes are hostile. Nothing is answered and nothing is lost: what was read is kept
// in Hello.Raw, for a peer that receives exactly what was judged, or for a server that opens the connection here.
//
// What two readers could understand differently is refused: an extension given twice, two names, a name with a trailing
// dot, bytes behind the message, empty fragments.
//
// Encrypted ClientHello (RFC 9849, extension 0xfe0d) hides the name that the far end will serve behind the one seen here.
// A browser's GREASE value cannot be told from a real one without the key, so Check refuses both. A caller that opens
// the connection itself may accept it after all: its own server has no key, serves the outer name, and passes nothing on.
package hello

import (
	"encoding/binary"
	"io"
	"strings"

	"github.com/rung-dev/rung"
)

// MaxBytes caps what is read for one ClientHello, record headers included. Real ones are 200 to 2,000 bytes; post-quantum
// key shares make them larger, not this large.
const MaxBytes = 64 << 10

const (
	headerSize = 5       // type, version, length: RFC 8446 5.1
	maxRecord  = 1 << 14 // of plaintext: RFC 8446 5.1
	handshake  = 22
	// messageHead is a handshake message's type and 24-bit length: RFC 8446 4.
	messageHead = 4
	clientHello = 1
)

// Hello is what a client asked for.
type Hello struct {
	ServerName string // lower case, ASCII; "" when the client named nobody
	ALPN       []string
	ECH        bool     // an encrypted ClientHello (or GREASE that looks like one) was offered
	Versions   []uint16 // of supported_versions, or the one legacy version
	PSK        bool     // pre_shared_key: the client wants to resume
	EarlyData  bool     // the client will send data before it has heard an answer
	Raw        []byte   // every byte that was read, also beside an error
}

// Check refuses what cannot be judged by name: no name, or an encrypted one.
func (h Hello) Check() error {
	if h.ECH {
		return rung.Errorf(rung.KindRefused, "the TLS client offers an encrypted ClientHello, which hides the name it asks for").
			WithHint("switch Encrypted Client Hello off in the client; its GREASE form counts, since the two cannot be told apart")
	}
	if h.ServerName == "" {
		return rung.Errorf(rung.KindRefused, "the TLS client names no server (no SNI)").
			WithHint("connect by host name, not by address")
	}
	return nil
}

// Read reads one ClientHello and nothing behind it: records are read whole, and the message has to end with one. The
// caller sets the deadline. The error is of KindInvalid for what is no acceptable ClientHello; otherwise it is r's.
func Read(r io.Reader) (Hello, error) {
	raw := make([]byte, 0, 1024)
	var msg []byte
	want := messageHead // grows to the whole message once its length is known
	for len(msg) < want {
		body, err := record(r, &raw)
		if err != nil {
			return Hello{Raw: raw}, err
		}
		msg = append(msg, body...)
		if want == messageHead && len(msg) >= messageHead {
			if msg[0] != clientHello {
				return Hello{Raw: raw}, invalid("handshake message %d instead of a ClientHello", msg[0])
			}
			want += int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
			if want > MaxBytes {
				return Hello{Raw: raw}, invalid("a ClientHello of %d bytes, at most %d are read", want, MaxBytes)
			}
		}
	}
	if len(msg) > want {
		return Hello{Raw: raw}, invalid("%d bytes behind the ClientHello in its record", len(msg)-want)
	}
	h, err := parse(msg[messageHead:])
	h.Raw = raw
	return h, err
}

// record reads one handshake record, appends all of it to raw and returns its content.
func record(r io.Reader, raw *[]byte) ([]byte, error) {
	var head [headerSize]byte
	n, err := io.ReadFull(r, head[:])
	*raw = append(*raw, head[:n]...)
	if err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(head[3:]))
	switch {
	case head[0] != handshake:
		return nil, invalid("record type %d instead of a TLS handshake", head[0])
	case head[1] != 3 || head[2] > 4:
		return nil, invalid("TLS record version %d.%d", head[1], head[2])
	case length == 0 || length > maxRecord: // empty fragments of handshake messages are forbidden: RFC 8446 5.1
		return nil, invalid("a TLS record of %d bytes", length)
	case len(*raw)+length > MaxBytes:
		return nil, invalid("a ClientHello of more than %d bytes", MaxBytes)
	}
	at := len(*raw)
	*raw = append(*raw, make([]byte, length)...)
	n, err = io.ReadFull(r, (*raw)[at:])
	*raw = (*raw)[:at+n]
	if err == io.EOF { // the header promised more
		err = io.ErrUnexpectedEOF
	}
	return (*raw)[at:], err
}

// ValidName says whether s is a host name as SNI carries it: letters, digits, hyphens and underscores in labels, no
// trailing dot, not an address (RFC 6066 3).
func ValidName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
		last = label
	}
	// A last label that a resolver could read as a number makes the whole an IPv4 address in some spelling: WHATWG URL,
	// "ends in a number".
	return !numeric(last)
}

func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func invalid(format string, args ...any) *rung.Error {
	return rung.Errorf(rung.KindInvalid, "not an acceptable TLS ClientHello: "+format, args...)
}
