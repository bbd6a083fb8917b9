package seccomp

import (
	"strings"
	"time"
)

// The supervisor's token bucket. Beyond it the attempts wait, so that a sandbox can make the host compute for it only as
// much as 2,000 answers a second cost.
const (
	answerBurst = 256
	answerEvery = 500 * time.Microsecond
	// answerBatch is how many tokens an empty bucket waits for: sleeping for each answer costs more than answering.
	answerBatch = 32
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
	return b.last.Add(answerBatch * answerEvery).Sub(now)
}

// clean makes a name that a hostile process chose fit for a log: printable ASCII.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}
