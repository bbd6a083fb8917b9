package log

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/rung-dev/rung"
)

// MaxTail bounds how many lines Tail keeps in memory.
const MaxTail = 10_000

// followStep is how often Follow looks for new lines.
const followStep = 200 * time.Millisecond

// Filter chooses lines; its zero value chooses all. The log's own lines pass as the others do.
type Filter struct {
	Sandbox, Agent, Kind string
	Denied               bool // decision Deny only
	Since                time.Time
}

func (f *Filter) passes(line *Line) bool {
	return (f.Sandbox == "" || f.Sandbox == line.Sandbox) && (f.Agent == "" || f.Agent == line.Agent) &&
		(f.Kind == "" || f.Kind == line.Kind) && (!f.Denied || line.Decision == Deny) && !line.Time.Before(f.Since)
}

// Visit gets one line and its text without its end, which is valid only during the call.
type Visit func(line *Line, text []byte) error

// Position is a place between two lines.
type Position struct{ segment, offset int64 }

// Scan visits the lines from a position on (zero: from the oldest), and returns the position after the last whole line.
// It does not verify: what is no line of a log is skipped, Verify tells of it.
func (l *Log) Scan(from Position, f Filter, visit Visit) (Position, error) {
	segments, err := l.segments()
	if err != nil {
		return from, err
	}
	for i, first := range segments {
		if first < from.segment || i+1 < len(segments) && first != from.segment && l.olderThan(segments[i+1], f.Since) {
			continue
		}
		at := int64(0)
		if first == from.segment {
			at = from.offset
		}
		end, err := l.scan(first, at, f, visit)
		if errors.Is(err, fs.ErrNotExist) { // pruned meanwhile
			continue
		}
		from = Position{first, end}
		if err != nil {
			return from, err
		}
	}
	return from, nil
}

func (l *Log) olderThan(next int64, since time.Time) bool {
	if since.IsZero() {
		return false
	}
	line, err := l.firstLine(next)
	return err == nil && line.Time.Before(since)
}

func (l *Log) scan(segment, at int64, f Filter, visit Visit) (end int64, err error) {
	file, err := l.open(segmentName(segment), os.O_RDONLY)
	if err != nil {
		return at, failedRead(err)
	}
	defer file.Close()
	r := newReader(io.NewSectionReader(file, at, 1<<62))
	for {
		text, err := r.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return at + r.end, nil
		case errors.Is(err, errTooLong):
			continue
		case err != nil:
			return at + r.end, failedRead(err)
		}
		line, err := parse(text)
		if err != nil || !f.passes(&line) {
			continue
		}
		if err := visit(&line, text); err != nil {
			return at + r.end, err
		}
	}
}

func failedRead(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return failed("read the event log", err)
}

// Tail visits the newest n lines that pass, oldest of them first, and returns the position after the log's last line.
func (l *Log) Tail(n int, f Filter, visit Visit) (Position, error) {
	if n < 1 || n > MaxTail {
		return Position{}, rung.Errorf(rung.KindInvalid, "%d lines: not between 1 and %d", n, MaxTail)
	}
	segments, err := l.segments()
	if err != nil {
		return Position{}, err
	}
	var end Position
	var newest [][]kept // of each segment, newest segment first
	for _, first := range slices.Backward(segments) {
		if n == 0 {
			break
		}
		ring := ring{size: n}
		stop, err := l.scan(first, 0, f, ring.visit)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Position{}, err
		}
		if end.segment == 0 {
			end = Position{first, stop}
		}
		list := ring.ordered()
		newest, n = append(newest, list), n-len(list)
		if l.olderThan(first, f.Since) {
			break
		}
	}
	for _, list := range slices.Backward(newest) {
		for i := range list {
			if err := visit(&list[i].line, list[i].text); err != nil {
				return end, err
			}
		}
	}
	return end, nil
}

type kept struct {
	line Line
	text []byte
}

// ring keeps the newest size lines.
type ring struct {
	size, next int
	list       []kept
}

func (r *ring) visit(line *Line, text []byte) error {
	k := kept{*line, slices.Clone(text)}
	if len(r.list) < r.size {
		r.list = append(r.list, k)
		return nil
	}
	r.list[r.next] = k
	r.next = (r.next + 1) % r.size
	return nil
}

func (r *ring) ordered() []kept { return slices.Concat(r.list[r.next:], r.list[:r.next]) }

// Follow visits lines from a position on as they come, across segments, until the context ends.
func (l *Log) Follow(ctx context.Context, from Position, f Filter, visit Visit) error {
	tick := time.NewTicker(followStep)
	defer tick.Stop()
	for {
		var err error
		if from, err = l.Scan(from, f, visit); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
