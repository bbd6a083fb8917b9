//go:build linux

package guest

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/proc"
)

// start starts a process and streams it.
func (s *server) start(w *http1.Response, r *http1.Request) {
	req := &wire.StartRequest{}
	p, sub, err := func() (*proc.Process, *proc.Sub, error) {
		if err := decodeStream(r, req); err != nil {
			return nil, nil, err
		}
		spec, err := s.spec(r, req)
		if err != nil {
			return nil, nil, err
		}
		return s.procs.Start(*spec)
	}()
	if err != nil {
		failStream(w, err)
		return
	}
	defer sub.Close()
	follow(w, r, p, sub)
}

// connect attaches to a process that is running or ended a moment ago.
func (s *server) connect(w *http1.Response, r *http1.Request) {
	req := &wire.ConnectRequest{}
	err := decodeStream(r, req)
	var p *proc.Process
	if err == nil {
		p, err = s.recent(req.Process)
	}
	var from [2]int64
	if err == nil {
		from, err = replay(r.Header.Get(wire.HeaderReplay))
	}
	if err != nil {
		failStream(w, err)
		return
	}
	sub := p.Attach(from)
	defer sub.Close()
	follow(w, r, p, sub)
}

// replay reads the Rung-Replay header.
func replay(v string) ([2]int64, error) {
	if v == "" {
		return [2]int64{-1, -1}, nil
	}
	first, second, ok := strings.Cut(v, ",")
	if !ok {
		second = first
	}
	a, err1 := strconv.ParseUint(first, 10, 62)
	b, err2 := strconv.ParseUint(second, 10, 62)
	if err1 != nil || err2 != nil {
		return [2]int64{}, errorf(wire.InvalidArgument, "%s must be N or STDOUT,STDERR", wire.HeaderReplay)
	}
	return [2]int64{int64(a), int64(b)}, nil
}

func decodeStream(r *http1.Request, req any) error {
	if err := callable(r, "application/connect+json"); err != nil {
		return err
	}
	_, msg, err := wire.ReadEnvelope(bufio.NewReader(r.Body), nil, wire.MaxMessage)
	if err != nil {
		return errorf(wire.InvalidArgument, "read request: %v", err)
	}
	// To the end of the body: what comes after it on the connection means that the client has gone.
	if n, err := io.Copy(io.Discard, io.LimitReader(r.Body, 1<<10)); err != nil || n == 1<<10 {
		return errorf(wire.InvalidArgument, "read request: one message was expected")
	}
	return decode(msg, req)
}

func failStream(w *http1.Response, err error) {
	if errors.Is(err, errMedia) {
		failUnary(w, err)
		return
	}
	w.Set("Content-Type", "application/connect+json")
	w.Stream(func(buf []byte) []byte {
		from := len(buf)
		return wire.ChunkEnd(appendEnd(wire.ChunkStart(buf), err), from)
	})
}

func appendEnd(buf []byte, err error) []byte {
	end := wire.EndOfStream{}
	if err != nil {
		end.Error = wireError(err)
	}
	return wire.AppendEnvelope(buf, wire.FlagEnd, wire.Marshal(end))
}

// batch is how much of a stream is put together before it is sent.
const batch = 96 << 10

// follow streams a process until its end or the client's.
func follow(w *http1.Response, r *http1.Request, p *proc.Process, sub *proc.Sub) {
	w.Last()
	r.Watch()
	w.Set("Content-Type", "application/connect+json")
	keep := keepalive(r)
	at := sub.Offsets()
	start := &wire.StartEvent{PID: wire.Uint32(p.PID), Offset: &wire.Offset{Stdout: at[0], Stderr: at[1]}}
	first := wire.Marshal(wire.EventMessage{Event: &wire.Event{Start: start}})
	for ended, idle := false, false; !ended; idle = r.Context.Err() == nil && !sub.Wait(r.Context, keep) {
		if r.Context.Err() != nil {
			return
		}
		err := w.Stream(func(buf []byte) []byte {
			from := len(buf)
			buf = wire.ChunkStart(buf)
			if first != nil {
				buf, first = wire.AppendEnvelope(buf, 0, first), nil
			}
			if idle {
				buf = wire.AppendEnvelope(buf, 0, []byte(`{"event":{"keepalive":{}}}`))
			}
			buf = appendOutput(buf, p, sub)
			if ended = sub.Ended(); ended {
				buf = appendExit(buf, p.Exit())
			}
			return wire.ChunkEnd(buf, from)
		})
		if err != nil || ended {
			return
		}
	}
}

// appendOutput takes what there is, up to a batch.
func appendOutput(buf []byte, p *proc.Process, sub *proc.Sub) []byte {
	for {
		output, data := sub.Take()
		if data == nil {
			return buf
		}
		if len(buf) >= batch {
			sub.Again()
			return buf
		}
		name := "stdout"
		switch {
		case p.Spec.PTY != nil:
			name = "pty"
			data = data[:min(len(data), 16<<10)]
		case output == proc.Stderr:
			name = "stderr"
		}
		buf = appendData(buf, name, data)
		sub.Advance(output, len(data))
	}
}

// appendData writes a data event by hand: it is the hot path, and JSON by reflection would copy everything twice more.
func appendData(buf []byte, name string, data []byte) []byte {
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0, 0)
	buf = append(buf, `{"event":{"data":{"`...)
	buf = append(buf, name...)
	buf = append(buf, `":"`...)
	buf = base64.StdEncoding.AppendEncode(buf, data)
	buf = append(buf, `"}}}`...)
	binary.BigEndian.PutUint32(buf[at+1:], uint32(len(buf)-at-wire.EnvelopeHeader))
	return buf
}

// appendExit ends a stream: with the end event, or with the deadline that ended the process.
func appendExit(buf []byte, exit proc.Exit) []byte {
	if exit.TimedOut {
		return appendEnd(buf, errorf(wire.DeadlineExceeded, "the process was ended by its deadline"))
	}
	end := &wire.EndEvent{}
	switch st := exit.Status; {
	case st.Exited():
		end.ExitCode, end.Exited = st.ExitStatus(), true
		end.Status = "exit status " + strconv.Itoa(end.ExitCode)
	default:
		end.ExitCode = -1
		end.Status = "signal: " + signalName(st)
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	buf = wire.AppendEnvelope(buf, 0, wire.Marshal(wire.EventMessage{Event: &wire.Event{End: end}}))
	return appendEnd(buf, nil)
}

func signalName(st syscall.WaitStatus) string {
	name := st.Signal().String()
	if st.CoreDump() {
		name += " (core dumped)"
	}
	return name
}

// keepalive is how long a stream may be silent.
func keepalive(r *http1.Request) time.Duration {
	if n, err := strconv.ParseUint(r.Header.Get(wire.HeaderKeep), 10, 16); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 90 * time.Second
}
