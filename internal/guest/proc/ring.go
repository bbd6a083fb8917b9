package proc

// ring is the kept end of one output. Offsets count bytes since the process started; byte n is at n % len(buf). One
// goroutine writes, under the process's lock but for the read into the area it reserved.
type ring struct {
	buf        []byte
	start, end int64 // what is kept
	max        int
	eof        bool
}

const (
	chunk     = 32 << 10 // most bytes in one data event, and of one read
	firstRing = 64 << 10
	minRing   = 64 << 10 // a ring must hold a chunk that is being sent and one that is being read
)

// reserve returns a free, contiguous area to read into, or nil when everything kept is still wanted: bytes from low on
// are, older ones are dropped as needed.
func (r *ring) reserve(low int64) []byte {
	if r.buf == nil {
		r.buf = make([]byte, min(firstRing, r.max))
	}
	if r.free() < chunk && len(r.buf) < r.max {
		r.grow()
	}
	if need := int64(chunk) - r.free(); need > 0 {
		r.start = max(r.start, min(r.start+need, low))
	}
	if r.free() < chunk/8 { // not worth a read: wait for the reader
		return nil
	}
	at := int(r.end % int64(len(r.buf)))
	return r.buf[at:min(at+int(min(r.free(), chunk)), len(r.buf))]
}

func (r *ring) free() int64 { return int64(len(r.buf)) - (r.end - r.start) }

// grow doubles the ring. Slices of the old one that a reader holds stay valid: nobody writes to it any more.
func (r *ring) grow() {
	old := *r
	r.buf = make([]byte, min(2*len(old.buf), r.max))
	for pos := r.start; pos < r.end; {
		pos += int64(copy(r.buf[pos%int64(len(r.buf)):], old.view(pos)))
	}
}

// view returns the contiguous bytes from pos on, at most a chunk.
func (r *ring) view(pos int64) []byte {
	if pos >= r.end {
		return nil
	}
	at := pos % int64(len(r.buf))
	return r.buf[at:min(at+min(r.end-pos, chunk), int64(len(r.buf)))]
}
