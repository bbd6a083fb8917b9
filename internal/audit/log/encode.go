package log

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A line is one JSON object without white space, its members in the order below and those of fields sorted, each string
// spelled in one way: quote, backslash and control characters escaped, also those above ASCII and the ones that turn the
// direction of text (so that a line can be shown on a terminal as it is), invalid bytes replaced, all else plain UTF-8.

// Caps of a line's texts in bytes. With the frame they leave most of MaxLine to the fields.
const (
	maxName   = 512
	maxReason = 4096
	maxDepth  = 16 // of fields
	frameRoom = 128
)

// appendLine appends a line without its end.
func appendLine(out []byte, seq int64, at time.Time, e *Entry, prev string, cut bool) []byte {
	start := len(out)
	out = strconv.AppendInt(append(out, `{"seq":`...), seq, 10)
	out = at.AppendFormat(append(out, `,"time":"`...), time.RFC3339Nano)
	out = append(append(append(out, `","kind":"`...), e.Kind...), '"')
	for _, m := range [...]struct {
		name, value string
		limit       int
	}{
		{"sandbox", e.Sandbox, maxName},
		{"agent", e.Agent, maxName},
		{"task", e.Task, maxName},
		{"call", e.Call, maxName},
		{"rule", e.Rule, maxName},
		{"decision", e.Decision, maxName},
		{"severity", e.Severity, maxName},
		{"reason", e.Reason, maxReason},
	} {
		if m.value == "" {
			continue
		}
		var shortened bool
		m.value, shortened = bounded(m.value, m.limit)
		cut = cut || shortened
		out = append(append(append(out, `,"`...), m.name...), `":`...)
		out = appendString(out, m.value)
	}
	out, left := appendFields(out, e.Fields, MaxLine-frameRoom-(len(out)-start))
	if cut || left {
		out = append(out, `,"cut":true`...)
	}
	return append(append(append(out, `,"prev":"`...), prev...), `"}`...)
}

// bounded returns what of s fits into limit bytes once its invalid bytes are replaced, which makes it longer: a text that was
// read back from a line must be spelled as it was.
func bounded(s string, limit int) (_ string, cut bool) {
	if len(s) <= limit && utf8.ValidString(s) {
		return s, false
	}
	out := make([]byte, 0, min(3*len(s), limit))
	for _, r := range s {
		if len(out)+utf8.RuneLen(r) > limit {
			return string(out), true
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out), false
}

// appendFields appends the fields that fit into room bytes, smallest name first, and reports whether some did not.
func appendFields(out []byte, fields map[string]any, room int) (_ []byte, left bool) {
	limit := len(out) + room
	fields = named(fields)
	opened := false
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		before := len(out)
		if opened {
			out = append(out, ',')
		} else {
			out = append(out, `,"fields":{`...)
		}
		out = append(appendString(out, name), ':')
		if out = appendValue(out, fields[name], 0); len(out) >= limit {
			out, left = out[:before], true
			continue
		}
		opened = true
	}
	if opened {
		out = append(out, '}')
	}
	return out, left
}

// named returns the map with names that stay apart when written: two that differ in invalid bytes only would not.
func named(m map[string]any) map[string]any {
	for name := range m {
		if utf8.ValidString(name) {
			continue
		}
		clean := make(map[string]any, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			clean[strings.ToValidUTF8(name, "\ufffd")] = m[name]
		}
		return clean
	}
	return m
}

// appendValue writes what JSON decodes to directly and asks encoding/json for all else.
func appendValue(out []byte, v any, depth int) []byte {
	if depth > maxDepth {
		return append(out, `"…"`...)
	}
	switch v := v.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, v)
	case string:
		return appendString(out, v)
	case int:
		return strconv.AppendInt(out, int64(v), 10)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case uint64:
		return strconv.AppendUint(out, v, 10)
	case json.Number:
		return append(out, v...)
	case []string:
		return appendList(out, v, depth)
	case []uint64:
		return appendList(out, v, depth)
	case []any:
		return appendList(out, v, depth)
	case map[string]any:
		v = named(v)
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(append(appendString(out, name), ':'), v[name], depth+1)
		}
		return append(out, '}')
	}
	return appendOther(out, v, depth)
}

func appendList[T any](out []byte, list []T, depth int) []byte {
	out = append(out, '[')
	for i, v := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendValue(out, v, depth+1)
	}
	return append(out, ']')
}

func appendOther(out []byte, v any, depth int) []byte {
	if f, ok := v.(float64); ok {
		v = json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		if !json.Valid([]byte(v.(json.Number))) { // infinite, not a number
			v = string(v.(json.Number))
		}
		return appendValue(out, v, depth)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return appendString(out, "not encodable: "+err.Error())
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var plain any
	if err := d.Decode(&plain); err != nil {
		return appendString(out, "not encodable: "+err.Error())
	}
	return appendValue(out, plain, depth)
}

func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		out = appendRune(out, r)
	}
	return append(out, '"')
}

func appendRune(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case r == '\n':
		return append(out, `\n`...)
	case r == '\t':
		return append(out, `\t`...)
	case r == '\r':
		return append(out, `\r`...)
	case r == '\b':
		return append(out, `\b`...)
	case r == '\f':
		return append(out, `\f`...)
	case invisible(r):
		return append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	return utf8.AppendRune(out, r)
}

// invisible characters change what a reader sees without being seen: control characters, line separators, marks of the
// direction of text (Unicode Standard Annex 9, section 2), the byte order mark.
func invisible(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x61c || r >= 0x200b && r <= 0x200f ||
		r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff
}
