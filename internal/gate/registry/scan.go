package registry

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"unicode/utf8"
)

// A registry's metadata is large (a package document can have a hundred megabytes) and hostile. The scanner walks it in the
// memory of one buffer and one short string, where encoding/json would hold a whole value, and a nesting stack without end.
const (
	maxMetadata = 256 << 20 // bytes of one answer
	maxNesting  = 64
	maxText     = 4096 // bytes of a string that is read, not skipped
)

var (
	errJSON  = errors.New("the registry's metadata is not the JSON it should be")
	errLarge = errors.New("the registry's metadata is larger or deeper than the gate reads")
)

type scanner struct {
	r     *bufio.Reader
	depth int
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: bufio.NewReaderSize(&capped{r: r, left: maxMetadata}, 64<<10)}
}

// capped fails where io.LimitReader would end: a cut document must not look complete.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errLarge
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}

// next returns the next byte that is no white space, without taking it.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		switch {
		case err == io.EOF:
			return 0, errJSON
		case err != nil:
			return 0, err
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			continue
		}
		return c, s.r.UnreadByte()
	}
}

func (s *scanner) take(want byte) error {
	c, err := s.next()
	if err != nil {
		return err
	}
	if c != want {
		return errJSON
	}
	_, err = s.r.ReadByte()
	return err
}

// list walks { … } or [ … ] and calls each at the start of every member, which each must consume.
func (s *scanner) list(open, end byte, each func() error) error {
	if err := s.take(open); err != nil {
		return err
	}
	if s.depth++; s.depth > maxNesting {
		return errLarge
	}
	defer func() { s.depth-- }()
	for first := true; ; first = false {
		c, err := s.next()
		if err != nil {
			return err
		}
		if first && c == end {
			return s.take(end)
		}
		if !first {
			if c == end {
				return s.take(end)
			}
			if err := s.take(','); err != nil {
				return err
			}
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// object calls member with each key; member must consume the value.
func (s *scanner) object(member func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.take(':'); err != nil {
			return err
		}
		return member(key)
	})
}

func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

// text reads a short string.
func (s *scanner) text() (string, error) {
	raw := []byte{'"'}
	err := s.quoted(func(c byte) error {
		if len(raw) > maxText {
			return errLarge
		}
		raw = append(raw, c)
		return nil
	})
	if err != nil {
		return "", err
	}
	raw = append(raw, '"')
	var text string
	if !utf8.Valid(raw) || json.Unmarshal(raw, &text) != nil {
		return "", errJSON
	}
	return text, nil
}

// quoted gives the bytes between two quotes to each, escapes as they stand.
func (s *scanner) quoted(each func(byte) error) error {
	if err := s.take('"'); err != nil {
		return err
	}
	escaped := false
	for {
		c, err := s.r.ReadByte()
		if err == io.EOF {
			return errJSON
		}
		if err != nil {
			return err
		}
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			return nil
		case c < 0x20:
			return errJSON
		}
		if err := each(c); err != nil {
			return err
		}
	}
}

// skip passes over one value without keeping it.
func (s *scanner) skip() error {
	c, err := s.next()
	if err != nil {
		return err
	}
	ignore := func(byte) error { return nil }
	switch c {
	case '{':
		return s.list('{', '}', func() error {
			if err := s.quoted(ignore); err != nil {
				return err
			}
			if err := s.take(':'); err != nil {
				return err
			}
			return s.skip()
		})
	case '[':
		return s.array(s.skip)
	case '"':
		return s.quoted(ignore)
	}
	return s.word()
}

// word passes over a number, true, false or null. Which one it is does not matter to anybody here.
func (s *scanner) word() error {
	for n := 0; ; n++ {
		c, err := s.r.ReadByte()
		if err != nil {
			return errJSON // no document ends in a word: the outermost value is an object
		}
		if !letter(c) && c != '+' && c != '-' && c != '.' {
			if n == 0 {
				return errJSON
			}
			return s.r.UnreadByte()
		}
		if n > maxText {
			return errLarge
		}
	}
}

// isText tells whether the next value is a string.
func (s *scanner) isText() (bool, error) {
	c, err := s.next()
	return c == '"', err
}

// texts reads an object's members of these names, "" for one that is no string. A name that comes twice is a trick.
func (s *scanner) texts(names ...string) (map[string]string, error) {
	member := map[string]string{}
	return member, s.object(func(key string) error {
		if !slices.Contains(names, key) {
			return s.skip()
		}
		if _, twice := member[key]; twice {
			return errJSON
		}
		member[key] = ""
		isText, err := s.isText()
		if err != nil || !isText {
			return firstOf(err, s.skip)
		}
		member[key], err = s.text()
		return err
	})
}

// end checks that nothing follows.
func (s *scanner) end() error {
	for {
		c, err := s.r.ReadByte()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			return errJSON
		}
	}
}
