// Package wire is what rung-guest and its Go client agree on below the messages: Connect envelopes and error codes, a
// strict subset of HTTP/1.1 framing, and the JSON form of the messages.
//
// It exists because linking net/http costs a millisecond of start-up (measured), once in rung and twice in rung-guest,
// where every sandbox pays it. Whatever is accepted here is accepted by net/http too, and what net/http or a Connect client
// sends is accepted here (conformance tests run real Connect clients against rung-guest); whatever is ambiguous is refused.
// Both ends treat what they read as hostile: every length is capped before memory is spent on it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Envelope flags.
const (
	FlagCompressed = 0x01 // never accepted: no side offers a compression
	FlagEnd        = 0x02 // the last envelope of a stream
)

// EnvelopeHeader is the number of bytes before an envelope's message.
const EnvelopeHeader = 5

// MaxMessage caps one message in either direction.
const MaxMessage = 16 << 20

// ErrTooLarge is returned for anything that is larger than its cap.
var ErrTooLarge = errors.New("message is larger than its cap")

// ReadEnvelope reads one envelope into buf, which it returns grown where needed. A clean end of the stream before the
// first byte is io.EOF, a cut anywhere else io.ErrUnexpectedEOF. Memory grows with the bytes that arrived, never with the
// length that was announced.
func ReadEnvelope(r io.Reader, buf []byte, limit int) (flags byte, msg []byte, err error) {
	var head [EnvelopeHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, buf[:0], err
	}
	if head[0]&^FlagEnd != 0 {
		return 0, buf[:0], fmt.Errorf("envelope flags %#x are not supported", head[0])
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	if n > int64(limit) {
		return 0, buf[:0], ErrTooLarge
	}
	msg, err = readInto(r, buf[:0], int(n))
	return head[0], msg, err
}

// step is the most that readInto allocates ahead of the data.
const step = 64 << 10

func readInto(r io.Reader, buf []byte, n int) ([]byte, error) {
	for len(buf) < n {
		from, want := len(buf), min(n-len(buf), step)
		if cap(buf)-from < want {
			grown := make([]byte, from, max(2*cap(buf), from+want))
			copy(grown, buf)
			buf = grown
		}
		buf = buf[:from+want]
		if _, err := io.ReadFull(r, buf[from:]); err != nil {
			return buf[:0], unexpected(err)
		}
	}
	return buf, nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendEnvelope appends an envelope around msg.
func AppendEnvelope(dst []byte, flags byte, msg []byte) []byte {
	dst = append(dst, flags, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(dst[len(dst)-4:], uint32(len(msg)))
	return append(dst, msg...)
}
