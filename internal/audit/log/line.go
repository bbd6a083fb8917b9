package log

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/rung-dev/rung"
)

// Line is one line as read.
type Line struct {
	Seq  int64     `json:"seq"` // counts from 1
	Time time.Time `json:"time"`
	Entry
	Cut  bool   `json:"cut,omitempty"` // something was too long to keep
	Prev string `json:"prev"`          // SHA-256 of the line before, without its end, in hex
}

// noHash stands for the line before the first.
const noHash = "0000000000000000000000000000000000000000000000000000000000000000"

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// parse reads a line. Numbers in fields stay as written.
func parse(text []byte) (Line, error) {
	var line Line
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&line); err != nil {
		return Line{}, rung.Errorf(rung.KindUnverified, "not a line of this log: %w", err)
	}
	return line, nil
}

// exact reports whether the text is what an appender writes for this line.
func (line *Line) exact(text []byte) bool {
	return bytes.Equal(appendLine(nil, line.Seq, line.Time, &line.Entry, line.Prev, line.Cut), text)
}

// frame is what the chain needs of a line, from the fixed places where an appender puts it: nothing inside the line can
// stand there instead, since a quote in a text is always escaped.
type frame struct {
	seq  int64
	kind string
	prev string
}

var (
	seqMark  = []byte(`{"seq":`)
	timeMark = []byte(`,"time":"`)
	kindMark = []byte(`","kind":"`)
	prevMark = []byte(`,"prev":"`)
)

func framed(text []byte) (f frame, ok bool) {
	rest, ok := bytes.CutPrefix(text, seqMark)
	if !ok {
		return f, false
	}
	number, rest, ok := bytes.Cut(rest, timeMark)
	if !ok || len(number) > 18 || len(number) == 0 || number[0] == '0' {
		return f, false
	}
	seq, err := strconv.ParseUint(string(number), 10, 63)
	if err != nil {
		return f, false
	}
	at, rest, ok := bytes.Cut(rest, kindMark)
	if !ok || len(at) > len(time.RFC3339Nano) {
		return f, false
	}
	kind, rest, ok := bytes.Cut(rest, []byte{'"'})
	if !ok || !isKind(kind) {
		return f, false
	}
	tail := len(prevMark) + len(noHash) + 2
	if len(rest) < tail {
		return f, false
	}
	prev, ok := bytes.CutPrefix(rest[len(rest)-tail:], prevMark)
	if !ok || string(prev[len(noHash):]) != `"}` || len(bytes.Trim(prev[:len(noHash)], "0123456789abcdef")) > 0 {
		return f, false
	}
	return frame{seq: int64(seq), kind: string(kind), prev: string(prev[:len(noHash)])}, true
}

// reader reads a segment line by line in constant memory.
type reader struct {
	r   *bufio.Reader
	end int64 // bytes up to the end of the last whole line
}

func newReader(r io.Reader) *reader { return &reader{r: bufio.NewReaderSize(r, MaxLine)} }

var errTooLong = errors.New("longer than any line of this log")

// next returns a line without its end, valid until the next call; io.EOF at the end, io.ErrUnexpectedEOF if half a line is
// left there, errTooLong for a line that was skipped.
func (r *reader) next() ([]byte, error) {
	text, err := r.r.ReadSlice('\n')
	switch {
	case err == nil:
		r.end += int64(len(text))
		return text[:len(text)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, r.skip(int64(len(text)))
	case errors.Is(err, io.EOF) && len(text) > 0:
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}

func (r *reader) skip(read int64) error {
	for {
		text, err := r.r.ReadSlice('\n')
		read += int64(len(text))
		switch {
		case err == nil:
			r.end += read
			return errTooLong
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
