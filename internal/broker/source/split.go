package source

import (
	"strings"

	"github.com/rung-dev/rung"
)

const maxCommand = 16 << 10

// Split makes arguments of a command line: words between spaces, with '…', "…" and \ to quote. There is no shell, so what
// only a shell would understand is refused instead of being passed on as it is.
func Split(text string) ([]string, error) {
	if len(text) > maxCommand {
		return nil, rung.Errorf(rung.KindInvalid, "--exec: the command is longer than %s", rung.FormatBytes(maxCommand))
	}
	var s splitter
	for _, c := range []byte(text) {
		if err := s.add(c); err != nil {
			return nil, err
		}
	}
	if s.quote != 0 || s.escaped {
		return nil, rung.Errorf(rung.KindInvalid, "--exec: a quotation is not closed")
	}
	s.end()
	if len(s.words) == 0 || s.words[0] == "" {
		return nil, rung.Errorf(rung.KindInvalid, "--exec: no command")
	}
	return s.words, nil
}

type splitter struct {
	words   []string
	word    strings.Builder
	begun   bool // a word, possibly empty
	quote   byte // ', " or 0
	escaped bool
}

func (s *splitter) end() {
	if s.begun {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.begun = false
}

func (s *splitter) take(c byte) {
	s.word.WriteByte(c)
	s.begun = true
}

func (s *splitter) add(c byte) error {
	switch {
	case c == 0 || c == '\n' || c == '\r':
		return rung.Errorf(rung.KindInvalid, "--exec: the command is one line")
	case s.escaped:
		s.escaped = false
		if s.quote == '"' && c != '"' && c != '\\' {
			s.take('\\')
		}
		s.take(c)
	case c == '\\' && s.quote != '\'':
		s.escaped = true
	case s.quote != 0:
		if c == s.quote {
			s.quote = 0
			return nil
		}
		s.take(c)
	case c == '\'' || c == '"':
		s.quote, s.begun = c, true
	case c == ' ' || c == '\t':
		s.end()
	case strings.IndexByte("|&;<>()$`*?[#~", c) >= 0 && !(c == '#' && s.begun) && !(c == '~' && s.begun):
		return rung.Errorf(rung.KindInvalid, "--exec: %q means something to a shell only, and there is none", c).
			WithHint("quote it if it is meant as it is, or put the commands into a script")
	default:
		s.take(c)
	}
	return nil
}
