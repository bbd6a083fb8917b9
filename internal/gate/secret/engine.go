package secret

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// A pattern is a text in which each unit has several spellings. An engine finds patterns, leftmost and longest first.

type pattern struct {
	units       []unit
	id          int    // the entry
	plain       bool   // not base64: only then can a placeholder be swapped
	replacement string // what masking puts there
}

// unit is the alternatives for one part.
type unit []alternative

// alternative is one spelling; fold compares ASCII letters without case.
type alternative struct {
	text []byte
	fold bool
}

// match is one find in a buffer.
type match struct {
	*pattern
	length int
}

type engine struct {
	byFirst [256][]*pattern
	// pairs holds the first two bytes of all patterns' spellings: most positions of ordinary text end here.
	pairs    [1 << 16 / 64]uint64
	patterns []pattern
}

func newEngine(patterns []pattern) *engine {
	e := &engine{patterns: patterns}
	for i := range e.patterns {
		p := &e.patterns[i]
		firsts := map[byte]bool{}
		for _, a := range p.units[0] {
			for _, b := range cases(a, 0) {
				firsts[b] = true
				if len(a.text) > 1 {
					e.pair(b, cases(a, 1))
					continue
				}
				for _, next := range p.units[1] {
					e.pair(b, cases(next, 0))
				}
			}
		}
		for b := range firsts {
			e.byFirst[b] = append(e.byFirst[b], p)
		}
	}
	return e
}

func (e *engine) pair(first byte, seconds []byte) {
	for _, s := range seconds {
		n := uint(first)<<8 | uint(s)
		e.pairs[n/64] |= 1 << (n % 64)
	}
}

// cases returns the byte at i as it may be written.
func cases(a alternative, i int) []byte {
	b := a.text[i]
	if a.fold && (b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z') {
		return []byte{b | 0x20, b &^ 0x20}
	}
	return []byte{b}
}

// next finds the first match in b. It returns where it begins, or, when there is none, how many bytes can no longer be
// part of one: all of them at the end of the stream.
func (e *engine) next(b []byte, end bool) (at int, m match, found bool) {
	for i := range b {
		if i+1 < len(b) {
			n := uint(b[i])<<8 | uint(b[i+1])
			if e.pairs[n/64]&(1<<(n%64)) == 0 {
				continue
			}
		}
		best, partial := match{}, false
		for _, p := range e.byFirst[b[i]] {
			n, more := p.match(b[i:])
			if n > best.length {
				best = match{p, n}
			}
			partial = partial || more
		}
		if partial && !end { // it may be another one, or a longer one
			return i, match{}, false
		}
		if best.length > 0 {
			return i, best, true
		}
	}
	return len(b), match{}, false
}

// match returns the length of the longest spelling of p that b begins with, 0 for none, and whether more bytes than b has
// could make one.
func (p *pattern) match(b []byte) (length int, more bool) { return follow(p.units, b, 0) }

// follow tries the alternatives of the first unit. They rarely begin alike, so the tree is a line but for a few steps.
func follow(units []unit, b []byte, at int) (length int, more bool) {
	for len(units) > 0 {
		var fits []alternative
		var few [4]alternative
		fits = few[:0]
		for _, a := range units[0] {
			n, short := a.begins(b[at:])
			if n {
				fits = append(fits, a)
			}
			more = more || short
		}
		units = units[1:]
		switch len(fits) {
		case 0:
			return 0, more
		case 1:
			at += len(fits[0].text)
			continue
		}
		for _, a := range fits {
			n, m := follow(units, b, at+len(a.text))
			length, more = max(length, n), more || m
		}
		return length, more
	}
	return at, more
}

// begins says whether b begins with a, or whether b is too short to tell.
func (a alternative) begins(b []byte) (yes, short bool) {
	n := min(len(a.text), len(b))
	if a.fold {
		if !foldEqual(a.text[:n], b[:n]) {
			return false, false
		}
	} else if !bytes.Equal(a.text[:n], b[:n]) {
		return false, false
	}
	return n == len(a.text), n < len(a.text)
}

func foldEqual(a, b []byte) bool {
	for i := range a {
		x, y := a[i], b[i]
		if x != y && (x|0x20 != y|0x20 || x|0x20 < 'a' || x|0x20 > 'z') {
			return false
		}
	}
	return true
}

// numbered returns the patterns as those of the entry id.
func numbered(patterns []pattern, id int) []pattern {
	out := append([]pattern(nil), patterns...)
	for i := range out {
		out[i].id = id
	}
	return out
}

// wipe overwrites what the patterns hold.
func (e *engine) wipe() {
	if e == nil {
		return
	}
	for _, p := range e.patterns {
		for _, u := range p.units {
			for _, a := range u {
				clear(a.text)
			}
		}
	}
}

const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// spellings are the patterns of one text: escaped ones in one pattern, base64 in up to six. fold finds it in any case.
func spellings(text []byte, replacement string, fold bool) []pattern {
	out := []pattern{{units: escapes(text, fold), plain: true, replacement: replacement}}
	for _, alphabet := range []string{alnum + "+/", alnum + "-_"} {
		for shift := range 3 {
			units := aligned(text, shift, alphabet)
			if len(out) > 3 && same(units, out[1+shift].units) {
				continue
			}
			out = append(out, pattern{units: units, replacement: "***"})
		}
	}
	return out
}

// escapes gives each character its spellings as it is, percent-encoded (RFC 3986 2.1) and as a JSON escape (RFC 8259 7).
func escapes(text []byte, fold bool) []unit {
	var units []unit
	for len(text) > 0 {
		_, n := utf8.DecodeRune(text)
		c := text[:n]
		u := unit{{bytes.Clone(c), fold}}
		percent := []byte{}
		for _, b := range c {
			percent = fmt.Appendf(percent, "%%%02x", b)
		}
		u = append(u, alternative{percent, true})
		if n == 1 && c[0] < utf8.RuneSelf {
			u = append(u, alternative{fmt.Appendf(nil, `\u%04x`, c[0]), true})
			switch c[0] {
			case '/', '"', '\\':
				u = append(u, alternative{[]byte{'\\', c[0]}, false})
			case ' ':
				u = append(u, alternative{[]byte("+"), false})
			}
		}
		units = append(units, u)
		text = text[n:]
	}
	return units
}

// aligned is the text's base64 when shift bytes of something else are in front of it: RFC 4648 4. The characters that it
// shares with its neighbours have as many alternatives as the neighbour's bits allow, so that nothing of it is left.
func aligned(text []byte, shift int, alphabet string) []unit {
	first := shift * 8
	units := make([]unit, 0, len(text)*4/3+2)
	for at := first / 6 * 6; at < first+len(text)*8; at += 6 {
		units = append(units, sextet(text, at-first, alphabet))
	}
	return units
}

// sextet is the six bits of text from bit at, which may be before its beginning or reach beyond its end.
func sextet(text []byte, at int, alphabet string) unit {
	known, value := 0, 0 // masks of six bits
	for i := range 6 {
		bit := at + i
		if bit < 0 || bit >= len(text)*8 {
			continue
		}
		known |= 32 >> i
		if text[bit/8]&(128>>(bit%8)) != 0 {
			value |= 32 >> i
		}
	}
	var u unit
	for v := range len(alphabet) {
		if v&known == value {
			u = append(u, alternative{[]byte{alphabet[v]}, false})
		}
	}
	return u
}

func same(a, b []unit) bool {
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return false
		}
		for j := range a[i] {
			if !bytes.Equal(a[i][j].text, b[i][j].text) {
				return false
			}
		}
	}
	return true
}
