package log

import (
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// Append writes the entries as one piece: all of them, or none and an error. It costs a few system calls and a hash; only
// every MaxUnsigned lines it signs and waits for the disk. When that fails, the lines are there and the error says so.
func (l *Log) Append(entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	list, left := capped(entries)
	for i := range list {
		if err := list[i].check(); err != nil {
			return err
		}
	}
	w, err := l.begin()
	if err != nil {
		return err
	}
	defer w.end()
	b, err := w.batch()
	if err != nil {
		return err
	}
	for i := range list {
		if len(b.text) > maxBatch {
			left += len(list) - i
			break
		}
		b.add(&list[i])
	}
	if left > 0 {
		more := overflow(left)
		b.add(&more)
	}
	return errors.Join(w.write(b), b.unsigned)
}

// Checkpoint signs the log as it is, with a line of its own, and returns the signed statement to keep elsewhere.
func (l *Log) Checkpoint() (*Checkpoint, error) {
	w, err := l.begin()
	if err != nil {
		return nil, err
	}
	defer w.end()
	b, err := w.batch()
	if err != nil {
		return nil, err
	}
	c, err := b.sign(KindCheckpoint, b.seq, b.hash, nil)
	if err != nil {
		return nil, failed("sign a checkpoint", err)
	}
	return c, w.write(b)
}

// batch is lines to be written at once, chained to the end of the log and to each other.
type batch struct {
	l        *Log
	id       string
	text     []byte
	segment  int64 // the first line, if it begins a segment
	seq      int64 // of the last line
	hash     string
	start    int // of the last line in text
	signed   int64
	fresh    bool  // a signature is in it: it is to be synced
	unsigned error // why a signature that was due is missing
}

// batch begins one: with the first line of the log or of a segment where one is due, and with what recover noted.
func (w *writer) batch() (*batch, error) {
	b := &batch{l: w.l, id: w.id, seq: w.seq, hash: w.hash, signed: w.signed, text: make([]byte, 0, 4096)}
	if b.id == "" {
		b.id = strings.ToLower(rand.Text())
	}
	var err error
	switch {
	case w.seq == 0:
		b.segment, b.hash = 1, noHash
		_, err = b.sign(KindGenesis, 0, noHash, nil)
	case w.first == 0 || w.size >= w.l.segment:
		b.segment = w.seq + 1
		_, err = b.sign(KindCheckpoint, b.seq, b.hash, nil)
	case w.signed == 0: // nobody knows how many lines since the last signature
		if _, b.unsigned = b.sign(KindCheckpoint, b.seq, b.hash, nil); b.unsigned != nil {
			b.unsigned = unsignedError(b.unsigned)
		}
	}
	if err != nil {
		return nil, failed("sign the beginning of a log segment", err)
	}
	for i := range w.notes {
		b.add(&w.notes[i])
	}
	return b, nil
}

func unsignedError(err error) error {
	return rung.Errorf(rung.KindOf(err), "the events are written, but the log could not be signed: %w", err).WithHint(rung.HintOf(err))
}

// add appends a line, and a checkpoint after it where one is due.
func (b *batch) add(e *Entry) {
	b.line(e, b.l.time())
	if b.seq-b.signed >= b.l.unsigned && b.unsigned == nil {
		if _, err := b.sign(KindCheckpoint, b.seq, b.hash, nil); err != nil {
			b.unsigned = unsignedError(err)
		}
	}
}

func (b *batch) line(e *Entry, at time.Time) {
	b.start = len(b.text)
	b.text = appendLine(b.text, b.seq+1, at, e, b.hash, false)
	b.seq, b.hash = b.seq+1, hashOf(b.text[b.start:])
	b.text = append(b.text, '\n')
}

// sign appends a signed line about the line seq, with more fields if there are any.
func (b *batch) sign(kind string, seq int64, hash string, more map[string]any) (*Checkpoint, error) {
	c, err := b.l.sign(kind, b.id, seq, hash)
	if err != nil {
		return nil, err
	}
	fields := c.fields()
	maps.Copy(fields, more)
	b.line(&Entry{Kind: kind, Decision: Info, Severity: Info, Fields: fields}, c.Time)
	b.signed, b.fresh = b.seq, true
	return c, nil
}

// write puts the batch at the end of the log: in one write, over what is torn there, so that no crash can make the torn
// piece vanish without the line that tells of it. A failed write is taken back.
func (w *writer) write(b *batch) (err error) {
	at := w.size
	if b.segment > 0 {
		if at, err = 0, w.begun(b.segment); err != nil {
			return failed("begin a log segment", err)
		}
	}
	if _, err := w.file.WriteAt(b.text, at); err != nil {
		switch {
		case b.segment > 0:
			err = errors.Join(err, w.l.root.Remove(segmentName(b.segment)))
		case w.torn == 0:
			err = errors.Join(err, w.file.Truncate(at)) // else the rest of it stays torn, for the next one to tell of
		}
		return failed("write to the event log", err)
	}
	end := at + int64(len(b.text))
	if b.segment == 0 && at+w.torn > end {
		if err := w.file.Truncate(end); err != nil {
			return failed("write to the event log", err)
		}
	}
	if b.fresh {
		if err := w.sync(b.segment > 0); err != nil {
			return failed("sync the event log", err)
		}
	}
	h := head{id: b.id, first: w.first, offset: at + int64(b.start), size: end, seq: b.seq, hash: b.hash, signed: b.signed}
	if b.segment > 0 {
		h.first = b.segment
	}
	_, _ = w.heads.WriteAt(h.text(), 0) // a head that is behind is found out by the next one
	return nil
}

// begun makes a new segment. The head is emptied before: it would still fit the old one if a crash came in between.
func (w *writer) begun(first int64) error {
	if err := w.forget(); err != nil {
		return err
	}
	old := w.file
	f, err := w.l.open(segmentName(first), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	w.file = f
	if old != nil {
		// Synced, so that the new segment's signature never covers lines that a power cut could still take.
		return errors.Join(w.l.sync(old), old.Close())
	}
	return nil
}

func (w *writer) sync(dir bool) error {
	if err := w.l.sync(w.file); err != nil || !dir {
		return err
	}
	d, err := w.l.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(w.l.sync(d), d.Close())
}
