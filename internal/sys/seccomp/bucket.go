package seccomp

import (
	"strings"
	"time"
)

// The supervisor's token bucket. A denied call costs the host some ten microseconds, so this bounds what a sandbox can make
// the host compute to a few per cent of one core; beyond it the attempts wait.
const (
	answerBurst = 256
	answerEvery = 500 * time.Microsecond
)

// bucket spreads answers over time: one token each answerEvery, at most answerBurst of them saved.
type bucket struct {
	tokens int
	last   time.Time // up to here tokens have been made
}

// take uses one token, and returns how long to wait first: nothing while there are tokens.
func (b *bucket) take(now time.Time) time.Duration {
	if made := int(now.Sub(b.last) / answerEvery); made > 0 {
		b.tokens = min(b.tokens+made, answerBurst)
		b.last = b.last.Add(time.Duration(made) * answerEvery)
	}
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return b.last.Add(time.Duration(-b.tokens) * answerEvery).Sub(now)
}

// clean makes a name that a hostile process chose fit for a log: printable ASCII, without the final newline.
func clean(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, strings.TrimSuffix(string(b), "\n"))
}
