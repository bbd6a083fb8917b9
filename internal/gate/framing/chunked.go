package framing

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

const (
	// maxChunkLine is a chunk's size in at most eight digits, CR and LF.
	maxChunkLine = 8 + 2
	// maxTrailer caps the trailer section, in bytes.
	maxTrailer = 8 << 10
)

// Chunked decodes a chunked body (RFC 9112 7.1) and stops behind it, so that the next request can be read from the same
// reader. The error is io.EOF at the body's proper end only.
type Chunked struct {
	r    *bufio.Reader
	left int64 // of the current chunk
	open bool  // within a chunk, whose CR LF is still to come
	err  error
}

// NewChunked decodes what r holds.
func NewChunked(r *bufio.Reader) *Chunked { return &Chunked{r: r} }

// Read implements io.Reader.
func (c *Chunked) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, c.err
	}
	for c.err == nil && c.left == 0 {
		c.err = c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

// next reads the end of one chunk and the beginning of the next.
func (c *Chunked) next() error {
	if c.open {
		if line, err := c.line(2); err != nil || line != "" {
			return firstError(err, invalid("a chunk does not end where its size says"))
		}
		c.open = false
	}
	line, err := c.line(maxChunkLine)
	if err != nil {
		return err
	}
	if line == "" || strings.Trim(line, "0123456789abcdefABCDEF") != "" {
		return invalid("a chunk's size is %.16q", line)
	}
	size, err := strconv.ParseUint(line, 16, 32)
	if err != nil {
		return invalid("a chunk's size is %.16q", line)
	}
	if size == 0 {
		return c.trailer()
	}
	c.left, c.open = int64(size), true
	return nil
}

// trailer reads what may follow the last chunk, and drops it.
func (c *Chunked) trailer() error {
	left := maxTrailer
	for {
		line, err := c.line(left)
		if err != nil {
			return err
		}
		if line == "" {
			return io.EOF
		}
		if _, err := field(line); err != nil {
			return err
		}
		left -= len(line) + 2
	}
}

// line reads a line of at most limit bytes and returns it without its CR LF.
func (c *Chunked) line(limit int) (string, error) {
	var line []byte
	for {
		b, err := c.r.ReadByte()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
		if len(line) == limit {
			return "", invalid("a line of its chunked body is longer than %d bytes, or has an extension", limit)
		}
		line = append(line, b)
		if b != '\n' {
			continue
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		if !ok {
			return "", invalid("a line of its chunked body ends in a bare LF")
		}
		return text, nil
	}
}

func firstError(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// Body returns the head's body out of r, which stands behind the head. It never reads further than the body's end.
func (h *Head) Body(r *bufio.Reader) io.Reader {
	switch {
	case h.Chunked:
		return NewChunked(r)
	case h.Length > 0:
		return &fixed{r: r, left: h.Length}
	default:
		return eof{}
	}
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// fixed is a body of a known length; less of it is an error.
type fixed struct {
	r    io.Reader
	left int64
}

func (f *fixed) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.r.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	if err == io.EOF && f.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
