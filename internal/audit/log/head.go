package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// head says where the log ends.
type head struct {
	id     string
	first  int64 // the newest segment's first line; 0: no segment exists
	offset int64 // of the last line in it
	size   int64 // of the segment, with the last line's end
	seq    int64 // of the last line; 0: no line exists
	hash   string
	signed int64 // the last signed line
}

const (
	headMark = "rung-log-head-v1"
	headSize = 256 // always: a head is replaced in place by one write, so that nothing can run out
)

func (h *head) text() []byte {
	s := fmt.Sprintf("%s %s %d %d %d %d %s %d", headMark, h.id, h.first, h.offset, h.size, h.seq, h.hash, h.signed)
	return fmt.Appendf(nil, "%-*s\n", headSize-1, s)
}

func readHead(f io.ReaderAt) (*head, bool) {
	text := make([]byte, headSize)
	if n, err := f.ReadAt(text, 0); n < headSize && err != nil {
		return nil, false
	}
	var h head
	_, err := fmt.Sscanf(string(text), headMark+" %s %d %d %d %d %s %d", &h.id, &h.first, &h.offset, &h.size, &h.seq, &h.hash, &h.signed)
	ok := err == nil && bytes.Equal(h.text(), text) && h.first > 0 && h.offset >= 0 && h.offset < h.size && h.size-h.offset <= MaxLine && h.seq >= h.first
	return &h, ok
}

// names reports whether the line that the head names is in the segment, and whether it is the segment's last.
func (h *head) names(segment *os.File) (is, last bool, err error) {
	info, err := segment.Stat()
	if err != nil {
		return false, false, err
	}
	if info.Size() < h.size {
		return false, false, nil
	}
	text := make([]byte, h.size-h.offset)
	if _, err := segment.ReadAt(text, h.offset); err != nil {
		return false, false, err
	}
	line, ended := bytes.CutSuffix(text, []byte{'\n'})
	return ended && hashOf(line) == h.hash, info.Size() == h.size, nil
}

// writer is the one appender while it has the lock.
type writer struct {
	l          *Log
	lock, file *os.File // file: the newest segment, nil if none
	heads      *os.File
	head
	torn  int64   // bytes after the last line that are no line
	notes []Entry // what was found wrong, to be written with the next lines
}

// begin takes the lock and finds the end of the log.
func (l *Log) begin() (_ *writer, err error) {
	w := &writer{l: l}
	defer func() {
		if err != nil {
			w.end()
			err = failed("open the event log", err)
		}
	}()
	if w.lock, err = l.lock(true, os.O_RDWR|os.O_CREATE); err != nil {
		return nil, err
	}
	if w.heads, err = l.open(headFile, os.O_RDWR|os.O_CREATE); err != nil {
		return nil, err
	}
	h, ok := readHead(w.heads)
	if !ok {
		return w, w.recover(nil)
	}
	w.file, err = l.open(segmentName(h.first), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return w, w.recover(h)
	}
	if err != nil {
		return nil, err
	}
	is, last, err := h.names(w.file)
	if err != nil {
		return nil, err
	}
	if is && last {
		w.head = *h
		return w, nil
	}
	return w, w.recover(h)
}

// end gives everything back. Nothing is lost with an error here: what was written was checked when it was.
func (w *writer) end() {
	for _, f := range []*os.File{w.file, w.heads, w.lock} {
		if f != nil {
			f.Close()
		}
	}
}

// forget makes the head say nothing, for while what it says is about to become untrue.
func (w *writer) forget() error {
	_, err := w.heads.WriteAt(bytes.Repeat([]byte{' '}, headSize), 0)
	return err
}
