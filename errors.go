package rung

import (
	"errors"
	"fmt"
)

// Kind classifies an error once for library, exit code and wire. Anything without a kind is KindInternal.
type Kind string

// The kinds. ExitCode and HTTPStatus are the only mappings.
const (
	KindInvalid     Kind = "invalid"     // the request is wrong: flag, name, value, path
	KindNotFound    Kind = "not_found"   // no such sandbox, template, process, file
	KindExists      Kind = "exists"      // the name is taken
	KindRefused     Kind = "refused"     // policy says no
	KindUnavailable Kind = "unavailable" // this host cannot do it; the hint says what would
	KindUnsupported Kind = "unsupported" // this rung or driver never does it
	KindUnverified  Kind = "unverified"  // what was measured inside differs from what was asked
	KindExhausted   Kind = "exhausted"   // a cap was reached: disk, slots, size
	KindTimeout     Kind = "timeout"     // a bound on waiting ran out
	KindConflict    Kind = "conflict"    // the thing is in a state that forbids this
	KindInternal    Kind = "internal"    // a bug or a broken host
)

// Error is an error with a kind and, where there is one, what to do next. Msg is the whole text; Err is the cause, kept
// for errors.Is and errors.As, and may be nil.
type Error struct {
	Kind Kind
	Msg  string
	Hint string
	Err  error
}

func (e *Error) Error() string { return e.Msg }

func (e *Error) Unwrap() error { return e.Err }

// WithHint returns the same error with the remedy set: a sentence or a command the reader can act on.
func (e *Error) WithHint(hint string) *Error {
	c := *e
	c.Hint = hint
	return &c
}

// Errorf makes an Error of the kind; %w keeps the cause for errors.Is and errors.As.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// KindOf returns the kind of the outermost Error in the chain, KindInternal if there is none, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// HintOf returns the first hint in the chain, or "". Of joined errors the first that has one speaks.
func HintOf(err error) string {
	for err != nil {
		if e, ok := err.(*Error); ok && e.Hint != "" { //nolint:errorlint // the walk looks at each error by itself
			return e.Hint
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if hint := HintOf(e); hint != "" {
					return hint
				}
			}
			return ""
		}
		err = errors.Unwrap(err)
	}
	return ""
}

// ExitCode maps an error of rung itself to the exit code of the command.
func ExitCode(err error) int {
	switch KindOf(err) {
	case "":
		return 0
	case KindRefused:
		return ExitRefused
	case KindTimeout:
		return ExitTimeout
	default:
		return ExitError
	}
}

// HTTPStatus maps a kind to the status of an API answer.
func HTTPStatus(k Kind) int {
	switch k {
	case KindInvalid:
		return 400
	case KindRefused:
		return 403
	case KindNotFound:
		return 404
	case KindExists, KindConflict:
		return 409
	case KindExhausted:
		return 429
	case KindUnsupported:
		return 501
	case KindUnavailable:
		return 503
	case KindTimeout:
		return 504
	default:
		return 500
	}
}

// Failure is an error on its way between rung's own processes: its text with kind and hint, without its causes.
type Failure struct {
	Kind Kind   `json:"kind"`
	Msg  string `json:"msg"`
	Hint string `json:"hint,omitempty"`
}

// Fail makes a Failure of an error.
func Fail(err error) *Failure {
	return &Failure{Kind: KindOf(err), Msg: err.Error(), Hint: HintOf(err)}
}

// Err turns a received Failure back into an error.
func (f *Failure) Err() error { return Errorf(f.Kind, "%s", f.Msg).WithHint(f.Hint) }
