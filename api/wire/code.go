package wire

import "encoding/json"

// Code is a Connect error code in its wire form.
type Code string

// The codes rung-guest answers with.
const (
	Canceled           Code = "canceled"
	Unknown            Code = "unknown"
	InvalidArgument    Code = "invalid_argument"
	DeadlineExceeded   Code = "deadline_exceeded"
	NotFound           Code = "not_found"
	AlreadyExists      Code = "already_exists"
	PermissionDenied   Code = "permission_denied"
	ResourceExhausted  Code = "resource_exhausted"
	FailedPrecondition Code = "failed_precondition"
	Unimplemented      Code = "unimplemented"
	Internal           Code = "internal"
	Unavailable        Code = "unavailable"
	Unauthenticated    Code = "unauthenticated"
)

// HTTPStatus is the status of a unary answer with the code.
func (c Code) HTTPStatus() int {
	switch c {
	case InvalidArgument, FailedPrecondition:
		return 400
	case Unauthenticated:
		return 401
	case PermissionDenied:
		return 403
	case NotFound:
		return 404
	case AlreadyExists:
		return 409
	case ResourceExhausted:
		return 429
	case Canceled:
		return 499
	case Unimplemented:
		return 501
	case Unavailable:
		return 503
	case DeadlineExceeded:
		return 504
	default:
		return 500
	}
}

// CodeOf is the code that a unary answer's status stands for when its body does not name one.
func CodeOf(status int) Code {
	switch status {
	case 400, 406, 411, 416, 431:
		return InvalidArgument
	case 401:
		return Unauthenticated
	case 403:
		return PermissionDenied
	case 404:
		return NotFound
	case 409:
		return AlreadyExists
	case 413, 429, 507:
		return ResourceExhausted
	case 501, 405, 505:
		return Unimplemented
	case 502, 503:
		return Unavailable
	case 504:
		return DeadlineExceeded
	default:
		return Unknown
	}
}

// Error is an error with its code, as it travels.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message,omitempty"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// EndOfStream is the message of the last envelope.
type EndOfStream struct {
	Error *Error `json:"error,omitempty"`
}

// FileError is the body of an error answer outside the Connect services.
type FileError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Marshal encodes v, which must be one of this package's messages: those cannot fail to encode.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("wire: " + err.Error()) // a bug: no message holds a type that JSON cannot carry
	}
	return b
}
