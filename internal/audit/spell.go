package audit

import (
	"unicode/utf16"
	"unicode/utf8"
)

// appendString appends a valid string literal in its shortest spelling; false for half a surrogate pair.
func appendString(out, literal []byte) ([]byte, bool) {
	for i := 0; i < len(literal); i++ {
		c := literal[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		if literal[i] != 'u' {
			out = appendRune(out, shortEscape(literal[i]))
			continue
		}
		r := rune(hex4(literal[i+1:]))
		i += 4
		if utf16.IsSurrogate(r) {
			if i+6 >= len(literal) || literal[i+1] != '\\' || literal[i+2] != 'u' {
				return nil, false
			}
			if r = utf16.DecodeRune(r, rune(hex4(literal[i+3:]))); r == utf8.RuneError {
				return nil, false
			}
			i += 6
		}
		out = appendRune(out, r)
	}
	return out, true
}

func shortEscape(c byte) rune {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return rune(c) // quote, backslash, slash
}

func appendRune(out []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	switch r {
	case '"', '\\':
		return append(out, '\\', byte(r))
	case '\b':
		return append(out, `\b`...)
	case '\f':
		return append(out, `\f`...)
	case '\n':
		return append(out, `\n`...)
	case '\r':
		return append(out, `\r`...)
	case '\t':
		return append(out, `\t`...)
	}
	if r < 0x20 {
		return append(out, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(out, r)
}

func hex4(b []byte) (v int) {
	for _, c := range b[:4] {
		v <<= 4
		switch {
		case c <= '9':
			v |= int(c - '0')
		default:
			v |= int(c|0x20-'a') + 10
		}
	}
	return v
}
