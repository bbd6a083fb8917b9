package http1

import (
	"net"
	"strconv"

	"github.com/rung-dev/rung/api/wire"
)

// Response writes the answer. Without Start before the first Write it is a chunked 200.
type Response struct {
	conn    net.Conn
	fields  []byte
	started bool
	head    bool  // of a HEAD request: no body
	close   bool  // this answer is the connection's last
	length  int64 // announced; -1 is chunked
	buf     []byte
	err     error
}

// Set adds a header field. Values come from rung-guest itself or were read as header values, so they hold no line ends.
func (w *Response) Set(name, value string) {
	w.fields = append(w.fields, name...)
	w.fields = append(w.fields, ": "...)
	w.fields = append(w.fields, value...)
	w.fields = append(w.fields, "\r\n"...)
}

// Start begins the answer with a body of length bytes, or a chunked one if length is -1. Nothing is sent before there is
// more to send with it.
func (w *Response) Start(status int, length int64) {
	if w.started {
		return
	}
	w.started, w.length = true, length
	w.buf = append(w.buf, "HTTP/1.1 "...)
	w.buf = strconv.AppendInt(w.buf, int64(status), 10)
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, reason(status)...)
	w.buf = append(w.buf, "\r\n"...)
	w.buf = append(w.buf, w.fields...)
	switch {
	case status == 204 || status == 304:
		w.length = 0
	case length < 0:
		w.buf = append(w.buf, "Transfer-Encoding: chunked\r\n"...)
	default:
		w.buf = append(w.buf, "Content-Length: "...)
		w.buf = strconv.AppendInt(w.buf, length, 10)
		w.buf = append(w.buf, "\r\n"...)
	}
	if w.close {
		w.buf = append(w.buf, "Connection: close\r\n"...)
	}
	w.buf = append(w.buf, "\r\n"...)
}

// Last makes this answer the connection's last. It must come before Start.
func (w *Response) Last() { w.close = true }

// Write sends p, as one chunk of a chunked body.
func (w *Response) Write(p []byte) (int, error) {
	w.Start(200, -1)
	if w.head || w.err != nil || len(p) == 0 {
		return len(p), w.err
	}
	if w.length >= 0 {
		if int64(len(p)) > w.length {
			w.err = errLength
			return 0, w.err
		}
		w.length -= int64(len(p))
		w.buf = append(w.buf, p...)
	} else {
		w.buf = wire.AppendChunk(w.buf, p)
	}
	return len(p), w.Flush()
}

// Stream is for a handler that frames chunks itself: it gives the handler the buffer of what is not sent yet and sends
// what the handler returns.
func (w *Response) Stream(fill func(buf []byte) []byte) error {
	w.Start(200, -1)
	w.buf = fill(w.buf)
	return w.Flush()
}

// Flush sends what was written.
func (w *Response) Flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.conn.Write(w.buf)
	}
	if cap(w.buf) > 256<<10 {
		w.buf = nil
	}
	w.buf = w.buf[:0]
	return w.err
}

// finish ends the body. A body shorter than announced cannot be ended: the connection is the only way to tell.
func (w *Response) finish() error {
	if !w.started {
		w.Start(204, 0)
	}
	if w.length < 0 && !w.head {
		w.buf = append(w.buf, wire.LastChunk...)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if w.length > 0 && !w.head {
		return errLength
	}
	return nil
}

// Text answers with a short text.
func (w *Response) Text(status int, text string) {
	w.Set("Content-Type", "text/plain; charset=utf-8")
	w.Send(status, []byte(text+"\n"))
}

// JSON answers with a JSON document.
func (w *Response) JSON(status int, body []byte) {
	w.Set("Content-Type", "application/json")
	w.Send(status, body)
}

// Send answers with the whole body.
func (w *Response) Send(status int, body []byte) {
	w.Start(status, int64(len(body)))
	if !w.head {
		w.buf = append(w.buf, body...)
		w.length = 0
	}
	w.err = w.Flush()
}

type lengthError struct{}

func (lengthError) Error() string { return "body and announced length differ" }

var errLength error = lengthError{}

func reason(status int) string {
	switch status {
	case 200:
		return "OK"
	case 204:
		return "No Content"
	case 206:
		return "Partial Content"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 500:
		return "Internal Server Error"
	default:
		return "Status"
	}
}
