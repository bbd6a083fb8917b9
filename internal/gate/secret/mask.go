package secret

import (
	"io"
	"net/http"
)

// readStep is how much a filter reads at once.
const readStep = 32 << 10

// filter replaces matches in a stream. What may be the beginning of a match waits for what follows it, which is at most
// six bytes (\u0000) for each of maxValue; everything before it is handed out at once, so that event streams keep their pace.
type filter struct {
	s      *Swap
	src    io.Reader
	find   bool // placeholders; otherwise values
	decide func(e *entry, m match, text []byte) ([]byte, error)

	buf  []byte
	in   []byte // read and not yet judged: the front part of buf
	out  []byte // judged and not yet handed out
	left []byte // of out
	err  error  // comes behind left
}

// Read implements io.Reader.
func (f *filter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(f.left) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.fill()
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

// fill reads once and judges what it can.
func (f *filter) fill() {
	if f.buf == nil {
		f.buf = make([]byte, readStep)
	}
	held := len(f.in)
	if len(f.buf)-held < readStep/2 {
		f.buf = make([]byte, held+readStep) // what is held is bounded, see above
	}
	copy(f.buf, f.in)
	n, err := f.src.Read(f.buf[held:])
	f.in = f.buf[:held+n]
	f.out = f.out[:0]
	if judged := f.judge(err == io.EOF); judged != nil {
		err = judged
	}
	f.left, f.err = f.out, err
}

// judge moves from in to out what can no longer change.
func (f *filter) judge(end bool) error {
	return f.s.with(func(tab *table) error {
		engine := tab.mask
		if f.find {
			engine = tab.find
		}
		for {
			at, m, found := engine.next(f.in, end)
			f.out = append(f.out, f.in[:at]...)
			if !found {
				f.in = f.in[at:]
				return nil
			}
			next, err := f.decide(tab.entries[m.id], m, f.in[at:at+m.length])
			if err != nil {
				f.in = nil
				return err
			}
			f.out = append(f.out, next...)
			f.in = f.in[at+m.length:]
		}
	})
}

// Mask puts placeholders in the place of values, and *** in the place of their base64, while r is read.
func (s *Swap) Mask(r io.Reader) io.Reader {
	if s.Empty() {
		return r
	}
	return &filter{s: s, src: r, decide: func(_ *entry, m match, _ []byte) ([]byte, error) {
		return []byte(m.replacement), nil
	}}
}

// MaskHeader does the same to header fields, in place. A field whose name holds a value is removed. After an error
// nothing of h may be passed on.
func (s *Swap) MaskHeader(h http.Header) error {
	if s.Empty() {
		return nil
	}
	return s.with(func(tab *table) error {
		for name, values := range h {
			_, _, found := tab.mask.next([]byte(name), true)
			if !found { // names lose their case on the way
				_, _, found = tab.names.next([]byte(name), true)
			}
			if found {
				delete(h, name)
				continue
			}
			for i, v := range values {
				values[i] = tab.masked(v)
			}
		}
		return nil
	})
}

// MaskText does the same to a text that is at hand as a whole. Of a closed Swap nothing can be told.
func (s *Swap) MaskText(text string) string {
	if s.Empty() {
		return text
	}
	out := ""
	_ = s.with(func(tab *table) error { // its error is the empty text
		out = tab.masked(text)
		return nil
	})
	return out
}

func (tab *table) masked(text string) string {
	b := []byte(text)
	var out []byte
	for {
		at, m, found := tab.mask.next(b, true)
		if !found {
			if out == nil {
				return text
			}
			return string(append(out, b...))
		}
		out = append(append(out, b[:at]...), m.replacement...)
		b = b[at+m.length:]
	}
}

// Blank overwrites values in b with asterisks, keeping its length: for frames whose length is already announced.
func (s *Swap) Blank(b []byte) error {
	if s.Empty() {
		return nil
	}
	return s.with(func(tab *table) error {
		for {
			at, m, found := tab.mask.next(b, true)
			if !found {
				return nil
			}
			for i := range m.length {
				b[at+i] = '*'
			}
			b = b[at+m.length:]
		}
	})
}
