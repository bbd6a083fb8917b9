package audit

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/rung-dev/rung"
)

// The signed form of a record is its JSON object
//
//   - without white space between tokens,
//   - with members in the order they are written, duplicates included, and numbers digit by digit as written,
//   - with every string spelled the shortest way: only quote, backslash and control characters escaped, as \" \\ \b \f \n
//     \r \t and \u00xx; all else as plain UTF-8,
//   - without the top-level member "signature", of which there may be one.
//
// So indenting a record or letting a tool respell its strings keeps the signature, and anything else breaks it. Text that
// readers could understand in two ways is refused: invalid UTF-8, half surrogate pairs. Nothing is decoded into Go types,
// so the order of struct fields and unknown members play no part.

// canonical returns the signed form and, if there is one, the signature member's value in the same form.
func canonical(text []byte) (signed, signature []byte, err error) {
	if !utf8.Valid(text) {
		return nil, nil, rung.Errorf(rung.KindUnverified, "the record is not UTF-8")
	}
	var compact bytes.Buffer
	compact.Grow(len(text))
	// Compact checks the grammar and the depth; the scanner below may rely on both.
	if err := json.Compact(&compact, text); err != nil {
		return nil, nil, rung.Errorf(rung.KindUnverified, "the record is not JSON: %w", err)
	}
	b, err := respell(compact.Bytes())
	if err != nil {
		return nil, nil, err
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, nil, rung.Errorf(rung.KindUnverified, "the record is not a JSON object")
	}
	return split(b)
}

// split cuts the signature member out of a compact object.
func split(b []byte) (signed, signature []byte, err error) {
	signed = append(make([]byte, 0, len(b)), '{')
	for rest := b[1 : len(b)-1]; len(rest) > 0; {
		end := memberEnd(rest)
		member := rest[:end]
		if end < len(rest) {
			end++ // the comma
		}
		rest = rest[end:]
		if value, ok := bytes.CutPrefix(member, []byte(`"signature":`)); ok {
			if signature != nil {
				return nil, nil, rung.Errorf(rung.KindUnverified, "the record has two signatures")
			}
			signature = value
			continue
		}
		if len(signed) > 1 {
			signed = append(signed, ',')
		}
		signed = append(signed, member...)
	}
	return append(signed, '}'), signature, nil
}

// memberEnd is the length of the first member of a compact, valid list of members.
func memberEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// stringEnd is the length of the string literal that b, which is valid JSON, begins with.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// respell writes every string literal in its shortest spelling. One without a backslash already is.
func respell(b []byte) ([]byte, error) {
	if bytes.IndexByte(b, '\\') < 0 {
		return b, nil
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		i := bytes.IndexByte(b, '"')
		if i < 0 {
			break
		}
		out = append(out, b[:i]...)
		b = b[i:]
		n := stringEnd(b)
		var ok bool
		if out, ok = appendString(out, b[:n]); !ok {
			return nil, rung.Errorf(rung.KindUnverified, "the record has half a surrogate pair in a string")
		}
		b = b[n:]
	}
	return append(out, b...), nil
}
