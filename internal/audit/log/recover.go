package log

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// recover finds the end of the log from the segments themselves, after a crash, a full disk or somebody's hand, and notes
// what is not as the head (nil: there is none) says. It changes nothing: the notes take the place of what is torn.
func (w *writer) recover(h *head) error {
	if w.file != nil {
		w.file.Close() // nothing was written
		w.file = nil
	}
	segments, err := w.l.segments()
	if err != nil {
		return err
	}
	for i := len(segments) - 1; i >= 0 && w.file == nil; i-- {
		if err := w.lastLine(segments[i]); err != nil {
			return err
		}
	}
	if w.id = w.identity(segments); h != nil {
		w.id = h.id
		return w.compare(h)
	}
	return nil
}

// lastLine looks for the last whole line of a segment. A segment without one is what a crash left between making and
// filling it, and is put aside; its bytes, if there are any, are noted.
func (w *writer) lastLine(first int64) error {
	f, err := w.l.open(segmentName(first), os.O_RDWR)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	r := newReader(io.NewSectionReader(f, 0, info.Size()))
	garbage := false
	for {
		start := r.end
		text, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil && !errors.Is(err, errTooLong) {
			f.Close()
			return err
		}
		line, ok := framed(text)
		if garbage = !ok; garbage {
			continue
		}
		w.first, w.offset, w.size, w.seq, w.hash, w.file = first, start, r.end, line.seq, hashOf(text), f
	}
	return w.tear(f, first, info.Size(), garbage)
}

// tear notes the bytes after the last line.
func (w *writer) tear(f *os.File, first, size int64, garbage bool) error {
	from := int64(0)
	if w.file == f {
		from = w.size
	}
	if from < size {
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(f, from, size-from)); err != nil {
			f.Close()
			w.file = nil
			return err
		}
		sample := make([]byte, min(size-from, 256))
		n, _ := f.ReadAt(sample, from) // a sample only
		note := tornEntry(CauseCut, "half a line at the end of the log was replaced by this one: a crash or a full disk", map[string]any{
			"bytes": size - from, "sha256": hex.EncodeToString(sum.Sum(nil)), "sample": string(sample[:n]),
		})
		if garbage {
			note = tornEntry(CauseGarbage, "lines that rung did not write were at the end of the log and were replaced by this one", note.Fields)
		}
		w.notes = append(w.notes, note)
	}
	if w.file == f {
		w.torn = size - from
		return nil
	}
	f.Close() // only read from
	if size == 0 {
		return w.l.root.Remove(segmentName(first))
	}
	return w.l.root.Rename(segmentName(first), segmentName(first)+".torn")
}

func tornEntry(cause, reason string, fields map[string]any) Entry {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["cause"] = cause
	severity := High
	if cause == CauseCut {
		severity = Medium
	}
	return Entry{Kind: KindTorn, Decision: Info, Severity: severity, Reason: reason, Fields: fields}
}

// identity reads the log's id from the first line of its newest readable segment, which is always a signed one.
func (w *writer) identity(segments []int64) string {
	for _, segment := range slices.Backward(segments) {
		if line, err := w.l.firstLine(segment); err == nil {
			if id := line.signedIn().Log; id != "" {
				return id
			}
		}
	}
	return ""
}

func (l *Log) firstLine(segment int64) (Line, error) {
	f, err := l.open(segmentName(segment), os.O_RDONLY)
	if err != nil {
		return Line{}, err
	}
	defer f.Close()
	text, err := newReader(f).next()
	if err != nil {
		return Line{}, err
	}
	return parse(text)
}

// compare notes what the head knew and the segments do not show. A head that is behind is what a crash between the two
// writes leaves.
func (w *writer) compare(h *head) error {
	if w.seq < h.seq {
		w.notes = append(w.notes, tornEntry(CauseLost, "lines at the end of the log are missing: somebody removed them, or a power cut did",
			map[string]any{"from": w.seq + 1, "to": h.seq, "hash": h.hash}))
		if w.seq == 0 { // everything is gone: the chain goes on from what the head remembers
			w.seq, w.hash = h.seq, h.hash
		}
		return nil
	}
	is := false
	f, err := w.l.open(segmentName(h.first), os.O_RDONLY)
	if err == nil {
		is, _, err = h.names(f)
		f.Close() // only read from
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !is {
		w.notes = append(w.notes, tornEntry(CauseChanged, "the line that was last when rung wrote last is not there any more, or is another one",
			map[string]any{"line": h.seq, "hash": h.hash}))
	}
	return nil
}
