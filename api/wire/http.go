package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Caps of the head of a request or response.
const (
	maxHead   = 64 << 10
	maxFields = 100
)

// Field is one header field.
type Field struct{ Name, Value string }

// Header is the header fields in the order of their arrival.
type Header []Field

// Get returns the value of the first field of the name, compared without case, or "".
func (h Header) Get(name string) string {
	for _, f := range h {
		if len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// count returns how often the name occurs.
func (h Header) count(name string) int {
	n := 0
	for _, f := range h {
		if strings.EqualFold(f.Name, name) {
			n++
		}
	}
	return n
}

var errHead = errors.New("malformed HTTP head")

// ReadHead reads a start line and header fields. Lines must end in CR LF; folded lines, control characters, spaces in
// names and anything above the caps are errors. A clean end before the first byte is io.EOF.
func ReadHead(br *bufio.Reader) (start string, h Header, err error) {
	budget := maxHead
	if start, err = readLine(br, &budget); err != nil {
		return "", nil, err
	}
	for {
		line, err := readLine(br, &budget)
		if err != nil {
			return "", nil, unexpected(err)
		}
		if line == "" {
			return start, h, nil
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !token(name) || len(h) == maxFields {
			return "", nil, errHead
		}
		h = append(h, Field{name, strings.Trim(value, " \t")})
	}
}

func readLine(br *bufio.Reader, budget *int) (string, error) {
	var long []byte
	for {
		part, err := br.ReadSlice('\n')
		if *budget -= len(part); *budget < 0 {
			return "", fmt.Errorf("%w: too long", errHead)
		}
		if err == bufio.ErrBufferFull {
			long = append(long, part...)
			continue
		}
		if err != nil {
			if len(long)+len(part) > 0 {
				err = unexpected(err)
			}
			return "", err
		}
		if long != nil {
			part = append(long, part...)
		}
		line, ok := strings.CutSuffix(string(part), "\r\n")
		if !ok || !printable(line) {
			return "", errHead
		}
		return line, nil
	}
}

func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}

// Body is the body of a message. Read it to its end before the connection is used again.
type Body struct {
	br      *bufio.Reader
	chunked bool
	left    int64 // of the body, or of the chunk
	started bool  // chunked: a chunk was read, so its CR LF is due
	err     error
}

// NewBody decides the framing from the header. A message with both framings, two lengths, a length that is not a plain
// number or a transfer coding other than chunked is an error: somebody else might read it differently.
func NewBody(br *bufio.Reader, h Header) (*Body, error) {
	lengths, codings := h.count("Content-Length"), h.count("Transfer-Encoding")
	switch {
	case lengths+codings > 1:
		return nil, fmt.Errorf("%w: ambiguous framing", errHead)
	case codings == 1:
		if !strings.EqualFold(h.Get("Transfer-Encoding"), "chunked") {
			return nil, fmt.Errorf("%w: transfer coding is not supported", errHead)
		}
		return &Body{br: br, chunked: true}, nil
	case lengths == 1:
		n, err := number(h.Get("Content-Length"), 10)
		if err != nil {
			return nil, err
		}
		return &Body{br: br, left: n}, nil
	default:
		return &Body{br: br}, nil
	}
}

// Length is what is left of a body of known length, -1 for a chunked one.
func (b *Body) Length() int64 {
	if b.chunked {
		return -1
	}
	return b.left
}

// Done reports whether the body was read to its end.
func (b *Body) Done() bool { return b.err == io.EOF || !b.chunked && b.left == 0 }

func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.chunked && b.left == 0 {
		if b.err = b.nextChunk(); b.err != nil {
			return 0, b.err
		}
	}
	if b.left == 0 {
		b.err = io.EOF
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.br.Read(p)
	b.left -= int64(n)
	if err != nil {
		b.err = unexpected(err)
	}
	return n, b.err
}

// nextChunk reads up to the first byte of the next chunk; io.EOF after the last one.
func (b *Body) nextChunk() error {
	budget := 4 << 10 // line ends, size, extension and trailer together
	if b.started {
		if line, err := readLine(b.br, &budget); err != nil || line != "" {
			return orHead(err)
		}
	}
	b.started = true
	line, err := readLine(b.br, &budget)
	if err != nil {
		return unexpected(err)
	}
	size, _, _ := strings.Cut(line, ";")
	if b.left, err = number(strings.TrimRight(size, " \t"), 16); err != nil {
		return err
	}
	if b.left > 0 {
		return nil
	}
	for { // the trailer is read and ignored
		line, err := readLine(b.br, &budget)
		if err != nil {
			return unexpected(err)
		}
		if line == "" {
			return io.EOF
		}
	}
}

func orHead(err error) error {
	if err == nil {
		return errHead
	}
	return unexpected(err)
}

// number reads digits only: ParseInt alone would take a sign.
func number(s string, base int) (int64, error) {
	n, err := strconv.ParseUint(s, base, 63)
	if err != nil || len(s) > 18 || s[0] == '+' {
		return 0, fmt.Errorf("%w: bad length", errHead)
	}
	return int64(n), nil
}
