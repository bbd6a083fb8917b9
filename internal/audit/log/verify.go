package log

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rung-dev/rung"
)

// MaxFindings of a report are told one by one; More counts the rest.
const MaxFindings = 32

// Report is what Verify found.
type Report struct {
	OK          bool      `json:"ok"`
	Anchored    bool      `json:"anchored"` // an exported checkpoint was given, is of this log and was met
	Log         string    `json:"log"`
	First       int64     `json:"first"`
	Last        int64     `json:"last"`
	Lines       int64     `json:"lines"`
	Bytes       int64     `json:"bytes"`
	Checkpoints int64     `json:"checkpoints"`      // signed lines
	Unsigned    int64     `json:"unsigned"`         // the newest lines, which no signature covers yet
	Pruned      int64     `json:"pruned,omitempty"` // lines up to this one were removed on request, as a signed line says
	Findings    []Finding `json:"findings"`
	More        int64     `json:"more,omitempty"`
	Notes       []string  `json:"notes"` // what is not evidence of tampering and should be known
}

// Finding is one place where the log is not as it was written.
type Finding struct {
	Segment string `json:"segment,omitempty"`
	Line    int64  `json:"line,omitempty"` // in the segment
	Seq     int64  `json:"seq,omitempty"`
	What    string `json:"what"`
}

// Verify reads the whole log as it is at this moment, in constant memory, and checks the chain, every signature against the
// key, the head file, and the exported checkpoint if there is one. An error means that it could not be read.
func (l *Log) Verify(public ed25519.PublicKey, anchor *Checkpoint) (r *Report, err error) {
	for range 3 { // segments may be pruned while it reads
		if r, err = l.verify(public, anchor); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, failed("read the event log", err)
	}
	return r, nil
}

func (l *Log) verify(public ed25519.PublicKey, anchor *Checkpoint) (*Report, error) {
	segments, heads, err := l.snapshot()
	if err != nil {
		return nil, err
	}
	v := &verifier{Report: Report{Findings: []Finding{}, Notes: []string{}}, public: public, anchor: anchor, head: heads, most: l.unsigned}
	for i, s := range segments {
		if err := v.segment(l, s, i == len(segments)-1); err != nil {
			return nil, err
		}
	}
	v.finish()
	return &v.Report, nil
}

// extent is a segment and how much of it there was when the look at it began.
type extent struct{ first, size int64 }

// snapshot looks at the log while nobody appends, as far as the caller may lock it.
func (l *Log) snapshot() (list []extent, h *head, err error) {
	held, err := l.lock(false, os.O_RDONLY)
	switch {
	case err == nil:
		defer held.Close() // gives the lock back
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return nil, nil, err
	}
	segments, err := l.segments()
	if err != nil {
		return nil, nil, err
	}
	for _, first := range segments {
		info, err := l.root.Lstat(segmentName(first))
		if err != nil {
			return nil, nil, err
		}
		list = append(list, extent{first, info.Size()})
	}
	f, err := l.open(headFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if read, ok := readHead(f); ok {
		h = read
	}
	return list, h, nil
}

type verifier struct {
	Report
	public ed25519.PublicKey
	anchor *Checkpoint
	head   *head
	most   int64 // lines without a signature

	name string // of the segment
	at   int64  // line in it

	seq      int64 // of the line before
	hash     string
	began    string // what the first line names as the one before it
	through  int64  // lines up to this one were pruned on request
	pruned   string // the hash of that one
	met      bool   // the anchor's line was there and is the same
	unsigned bool   // too many lines without a signature were told
}

func (v *verifier) find(format string, args ...any) {
	if len(v.Findings) == MaxFindings {
		v.More++
		return
	}
	v.Findings = append(v.Findings, Finding{Segment: v.name, Line: v.at, Seq: v.seq, What: fmt.Sprintf(format, args...)})
}

func (v *verifier) note(format string, args ...any) {
	if len(v.Notes) < MaxFindings {
		v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
	}
}

func (v *verifier) segment(l *Log, s extent, last bool) error {
	f, err := l.open(segmentName(s.first), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	v.name, v.at = segmentName(s.first), 0
	v.Bytes += s.size
	r := newReader(io.LimitReader(f, s.size))
	for {
		text, err := r.next()
		v.at++
		switch {
		case err == nil:
			v.line(text, s.first)
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			if last {
				v.note("the last line is torn: a crash or a full disk; the next event will say so in the log")
			} else {
				v.find("the segment ends in half a line")
			}
			return nil
		case errors.Is(err, errTooLong):
			v.find("a line is longer than any that rung writes")
		default:
			return err
		}
	}
}

// line checks one line against the one before. After a finding it goes on from what is there, to tell the others too.
func (v *verifier) line(text []byte, first int64) {
	v.Lines++
	f, ok := framed(text)
	if !ok || !json.Valid(text) {
		v.seq++
		v.hash = hashOf(text)
		v.find("not a line of this log")
		return
	}
	before := v.seq
	v.seq = f.seq
	switch {
	case v.Lines == 1:
		v.First, v.began = f.seq, f.prev
		if f.kind != KindGenesis && f.kind != KindCheckpoint {
			v.find("the log does not begin with a signed line")
		}
	case f.seq <= before:
		v.find("line %d comes after line %d: inserted, repeated or out of order", f.seq, before)
	case f.seq > before+1:
		v.find("lines %d to %d are missing", before+1, f.seq-1)
	case f.prev != v.hash:
		v.find("the chain breaks: this line, or the one before it, is not the one that was written")
	}
	if v.at == 1 && f.seq != first {
		v.find("the segment begins with line %d", f.seq)
	}
	v.hash = hashOf(text)
	v.known()
	v.kind(text, f)
}

// known compares with what is known of this line from elsewhere.
func (v *verifier) known() {
	if h := v.head; h != nil && h.seq == v.seq && h.hash != v.hash {
		v.find("the head file knows another line of this number")
	}
	if a := v.anchor; a != nil && a.Seq == v.seq {
		if v.met = a.Hash == v.hash; !v.met {
			v.find("the log was rewritten: the exported checkpoint covers another line of this number")
		}
	}
}

// kind checks what the log's own kinds say. The others count as unsigned until a signature covers them.
func (v *verifier) kind(text []byte, f frame) {
	switch f.kind {
	case KindGenesis, KindCheckpoint, KindPruned:
		v.signature(text, f)
		return
	case KindTorn:
		line, err := parse(text)
		cause, _ := line.Fields["cause"].(string)
		switch {
		case err != nil:
			v.find("not a line of this log")
		case cause == CauseCut:
			v.note("line %d: %s", f.seq, printable(line.Reason))
		default:
			v.find("%s", printable(line.Reason))
		}
	}
	v.Unsigned++
	if v.Unsigned > v.most && !v.unsigned {
		v.unsigned = true
		v.find("more than %d lines without a signed checkpoint", v.most)
	}
}

func (v *verifier) signature(text []byte, f frame) {
	line, err := parse(text)
	if err != nil || !line.exact(text) {
		v.find("a signed line that rung did not write so")
		return
	}
	c := line.signedIn()
	if v.Log == "" {
		v.Log = c.Log
	}
	wrong := c.valid(f.kind, v.public)
	switch {
	case wrong != "":
		v.find("the %s %s", f.kind, wrong)
		return
	case c.Log != v.Log:
		v.find("the %s is of another log", f.kind)
		return
	case f.kind == KindGenesis && (f.seq != 1 || c.Seq != 0 || f.prev != noHash || c.Hash != noHash):
		v.find("a log begins here that is not this one")
		return
	case f.kind == KindCheckpoint && (c.Seq != f.seq-1 || c.Hash != f.prev):
		v.find("the checkpoint covers another line than the one before it")
		return
	case f.kind == KindPruned && c.Seq >= f.seq:
		v.find("the line about pruning is about lines after it")
		return
	}
	v.Checkpoints++
	if f.kind == KindPruned { // it signs for what was removed, not for what stands before it
		if c.Seq >= v.through {
			v.through, v.pruned = c.Seq, c.Hash
		}
		v.Unsigned++
		return
	}
	v.Unsigned, v.unsigned = 0, false
}

// finish judges both ends of the log.
func (v *verifier) finish() {
	v.Last, v.name, v.at = v.seq, "", 0
	if v.First > 1 {
		v.Pruned = v.First - 1
		switch {
		case v.through < v.Pruned:
			v.find("lines 1 to %d are missing, and no signed line says that they were pruned", v.Pruned)
		case v.through == v.Pruned && v.pruned != v.began:
			v.find("the log begins after another line than the one it was pruned to")
		}
	}
	if h := v.head; h != nil {
		if h.seq > v.Last {
			v.find("lines %d to %d are missing: the head file knows them", v.Last+1, h.seq)
		}
		if v.Log != "" && h.id != v.Log {
			v.find("the head file is of another log")
		}
	} else {
		v.note("there is no readable head file: a removed end would not show")
	}
	v.anchored()
	v.OK = len(v.Findings) == 0
}

func (v *verifier) anchored() {
	a := v.anchor
	if a == nil {
		return
	}
	before := len(v.Findings)
	if wrong := a.valid(KindCheckpoint, v.public); wrong != "" {
		v.find("the exported checkpoint %s than this host's", wrong)
	}
	if a.Log != v.Log {
		v.find("this is another log than the exported checkpoint's: the old one was replaced")
	} else if a.Seq > v.Last {
		v.find("the log was truncated: it ends at line %d, and the exported checkpoint covers line %d", v.Last, a.Seq)
	}
	switch {
	case len(v.Findings) > before || v.met || a.Seq == 0:
	case a.Seq == v.First-1:
		if v.met = a.Hash == v.began; !v.met {
			v.find("the log was rewritten: it goes on from another line than the exported checkpoint covers")
		}
	case a.Seq < v.First:
		v.note("the exported checkpoint covers line %d, which was pruned: export a new one", a.Seq)
	}
	v.Anchored = v.met && len(v.Findings) == before
}

// printable is a hostile text for a message.
func printable(s string) string {
	q := appendString(nil, s)
	return string(q[1 : len(q)-1])
}

// Err is the report as an error: nil, or KindUnverified.
func (r *Report) Err() error {
	if r.OK {
		return nil
	}
	return rung.Errorf(rung.KindUnverified, "the event log was tampered with: %s", r.Findings[0].What)
}
