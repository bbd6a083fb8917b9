package holder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// The messages of every run are short texts, since the first JSON of a type costs a fraction of a millisecond in each
// program; the others are JSON. One line each, told by its first letter.
const (
	lineReady   = 'r' // then the milliseconds
	lineEnded   = 'e' // then reason, OOM (0 or 1) and the quoted detail
	lineDestroy = 'x'
	lineJSON    = 'j'
)

// opDestroy is a client's wish that the sandbox ends.
const opDestroy = "destroy"

// appendTo appends the message as one line.
func (m message) appendTo(b []byte) ([]byte, error) {
	switch {
	case m == message{Op: opDestroy}:
		b = append(b, lineDestroy)
	case m.Ready != nil && m == message{Ready: m.Ready}:
		b = strconv.AppendFloat(append(b, lineReady), float64(m.Ready.Millis), 'g', -1, 64)
	case m.Ended != nil && m == message{Ended: m.Ended} && isWord(string(m.Ended.Reason)):
		b = append(append(b, lineEnded), m.Ended.Reason...)
		oom := " 0 "
		if m.Ended.OOM {
			oom = " 1 "
		}
		b = strconv.AppendQuote(append(b, oom...), m.Ended.Detail)
	default:
		raw, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		b = append(append(b, lineJSON), raw...)
	}
	return append(b, '\n'), nil
}

var errLine = errors.New("not a line of the holder's protocol")

// parseMessage reads a line without its end.
func parseMessage(line []byte) (m message, err error) {
	if len(line) == 0 {
		return m, errLine
	}
	rest := string(line[1:])
	switch line[0] {
	case lineDestroy:
		m.Op = opDestroy
	case lineReady:
		ms, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			return m, errLine
		}
		m.Ready = &ready{Millis: rung.Millis(ms)}
	case lineEnded:
		reason, rest, _ := strings.Cut(rest, " ")
		oom, detail, _ := strings.Cut(rest, " ")
		e := Ended{Reason: rung.ExitReason(reason), OOM: oom == "1"}
		if e.Detail, err = strconv.Unquote(detail); err != nil || oom != "0" && oom != "1" || !isWord(reason) {
			return m, errLine
		}
		m.Ended = &e
	case lineJSON:
		err = json.Unmarshal(line[1:], &m)
	default:
		err = errLine
	}
	return m, err
}

// isWord reports whether s may be a reason in a line: lower-case letters, as all reasons are.
func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

// maxLine bounds a message; the longest are errors with a runtime's last words.
const maxLine = 1 << 20

// receive reads the next message.
func receive(r *bufio.Reader) (message, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull && len(long)+len(part) <= maxLine {
			long = append(long, part...)
			continue
		}
		if err != nil {
			return message{}, err
		}
		if long != nil {
			part = append(long, part...)
		}
		return parseMessage(bytes.TrimSuffix(part, []byte{'\n'}))
	}
}
