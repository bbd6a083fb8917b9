package log

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// text is a log's lines, by segment, for tests to tamper with.
type text struct {
	t   *testing.T
	dir string
	seg [][]string
}

func readText(t *testing.T, dir string) *text {
	t.Helper()
	l := openAt(t, dir)
	x := &text{t: t, dir: dir}
	segments, err := l.segments()
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range segments {
		raw, err := os.ReadFile(filepath.Join(dir, segmentName(first)))
		if err != nil {
			t.Fatal(err)
		}
		x.seg = append(x.seg, strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"))
	}
	return x
}

// write puts the lines back; a segment is named by its first line's number.
func (x *text) write() {
	x.t.Helper()
	old, _ := filepath.Glob(filepath.Join(x.dir, "*"+suffix))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			x.t.Fatal(err)
		}
	}
	for _, list := range x.seg {
		if len(list) == 0 {
			continue
		}
		f, _ := framed([]byte(list[0]))
		if err := os.WriteFile(filepath.Join(x.dir, segmentName(f.seq)), []byte(strings.Join(list, "\n")+"\n"), 0o600); err != nil {
			x.t.Fatal(err)
		}
	}
}

// mend makes the head fit what is there, as somebody would who knows the format.
func (x *text) mend() {
	x.t.Helper()
	list := x.seg[len(x.seg)-1]
	first, _ := framed([]byte(list[0]))
	last, _ := framed([]byte(list[len(list)-1]))
	size := len(strings.Join(list, "\n")) + 1
	h := head{
		id: "mended", first: first.seq, size: int64(size), offset: int64(size - len(list[len(list)-1]) - 1), seq: last.seq,
		hash: hashOf([]byte(list[len(list)-1])), signed: last.seq,
	}
	if old, err := os.Open(filepath.Join(x.dir, headFile)); err == nil {
		if was, ok := readHead(old); ok {
			h.id = was.id
		}
		old.Close()
	}
	if err := os.WriteFile(filepath.Join(x.dir, headFile), h.text(), 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// rechain makes everything from a line on fit again: the chain, and the signatures if there is a key.
func (x *text) rechain(key ed25519.PrivateKey) {
	x.t.Helper()
	prev, seq := noHash, int64(0)
	for _, list := range x.seg {
		for i := range list {
			line, err := parse([]byte(list[i]))
			if err != nil {
				x.t.Fatal(err)
			}
			seq++
			line.Seq, line.Prev = seq, prev
			if key != nil && (line.Kind == KindGenesis || line.Kind == KindCheckpoint) {
				l := &Log{key: func() (ed25519.PrivateKey, error) { return key, nil }, now: func() time.Time { return line.Time }}
				c, err := l.sign(line.Kind, line.signedIn().Log, seq-1, prev)
				if err != nil {
					x.t.Fatal(err)
				}
				line.Fields = c.fields()
			}
			list[i] = string(appendLine(nil, seq, line.Time, &line.Entry, prev, line.Cut))
			prev = hashOf([]byte(list[i]))
		}
	}
}

// find returns the place of the line of that number.
func (x *text) find(seq int64) (segment, line int) {
	x.t.Helper()
	for s, list := range x.seg {
		for i := range list {
			if f, _ := framed([]byte(list[i])); f.seq == seq {
				return s, i
			}
		}
	}
	x.t.Fatalf("no line %d", seq)
	return 0, 0
}

func (x *text) edit(seq int64, change func(string) string) {
	s, i := x.find(seq)
	x.seg[s][i] = change(x.seg[s][i])
}

// cut removes everything after the line.
func (x *text) cut(seq int64) {
	s, i := x.find(seq)
	x.seg[s] = x.seg[s][:i+1]
	x.seg = x.seg[:s+1]
}

const (
	whole    = "whole"
	tampered = "tampered"
)

// The log of these tests: 60 events in several segments, a signature every 8 lines, and a checkpoint exported after 40.
func victim(t *testing.T) (*Log, *Checkpoint) {
	t.Helper()
	l := open(t)
	l.unsigned, l.segment, l.sync = 8, 4<<10, unsynced
	fill(t, l, 40)
	c, err := l.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 20)
	if list, _ := l.segments(); len(list) < 4 {
		t.Fatalf("%v", list)
	}
	return l, c
}

func otherKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
}

func ownKey() ed25519.PrivateKey {
	key, _ := testKey() // never fails
	return key
}

func swapNumber(s string) string {
	if strings.Contains(s, `"n":1`) {
		return strings.Replace(s, `"n":1`, `"n":9`, 1)
	}
	return strings.Replace(s, `"n":`, `"n":1`, 1)
}

// at is a line before the exported checkpoint, neither signed nor at the end of a segment.
const at = 25

// tamperings is the table of what is found by itself and what only with an exported checkpoint. "mended" means that the
// head file was made to fit, "with the key" that whoever did it has the signing key.
var tamperings = []struct {
	name             string
	do               func(x *text)
	alone, anchored  string
	keepHead, noRead bool // the head file is left alone; do has written the lines itself
}{
	{name: "nothing", do: func(*text) {}, alone: whole, anchored: whole},
	{name: "a byte edited", do: func(x *text) { x.edit(at, swapNumber) }, alone: tampered, anchored: tampered},
	{name: "a line edited and the next one's hash mended", do: func(x *text) {
		x.edit(at, swapNumber)
		s, i := x.find(at)
		x.edit(at+1, func(line string) string {
			return line[:len(line)-66] + hashOf([]byte(x.seg[s][i])) + `"}`
		})
	}, alone: tampered, anchored: tampered},
	{name: "a line edited and all after it rechained without the key", do: func(x *text) { x.edit(at, swapNumber); x.rechain(nil) }, alone: tampered, anchored: tampered},
	{name: "a line deleted", do: func(x *text) {
		s, i := x.find(at)
		x.seg[s] = slices.Delete(x.seg[s], i, i+1)
	}, alone: tampered, anchored: tampered},
	{name: "the last line deleted", do: func(x *text) { x.cut(x.last() - 1) }, keepHead: true, alone: tampered, anchored: tampered},
	{name: "the last line deleted, mended", do: func(x *text) { x.cut(x.last() - 1) }, alone: whole, anchored: whole},
	{name: "half of the last line deleted", do: func(x *text) {
		x.edit(x.last(), func(s string) string { return s[:len(s)/2] })
		x.write()
		x.chop()
	}, keepHead: true, noRead: true, alone: tampered, anchored: tampered},
	{name: "two lines swapped", do: func(x *text) {
		s, i := x.find(at)
		x.seg[s][i], x.seg[s][i+1] = x.seg[s][i+1], x.seg[s][i]
	}, alone: tampered, anchored: tampered},
	{name: "a line inserted", do: func(x *text) {
		s, i := x.find(at)
		line, _ := parse([]byte(x.seg[s][i]))
		line.Reason = "inserted"
		x.seg[s] = slices.Insert(x.seg[s], i, string(appendLine(nil, at, line.Time, &line.Entry, line.Prev, false)))
	}, alone: tampered, anchored: tampered},
	{name: "a line duplicated", do: func(x *text) {
		s, i := x.find(at)
		x.seg[s] = slices.Insert(x.seg[s], i, x.seg[s][i])
	}, alone: tampered, anchored: tampered},
	{name: "the last line duplicated, mended", do: func(x *text) {
		s := len(x.seg) - 1
		x.seg[s] = append(x.seg[s], x.seg[s][len(x.seg[s])-1])
	}, alone: tampered, anchored: tampered},
	{name: "truncated to an earlier checkpoint", do: func(x *text) { x.cut(x.checkpoint(at)) }, keepHead: true, alone: tampered, anchored: tampered},
	{name: "truncated to an earlier checkpoint, mended", do: func(x *text) { x.cut(x.checkpoint(at)) }, alone: whole, anchored: tampered},
	{name: "a checkpoint's signature replaced", do: func(x *text) {
		x.edit(x.checkpoint(at), func(s string) string {
			i := strings.Index(s, `"signature":"`) + len(`"signature":"`)
			return s[:i] + strings.Repeat("A", 86) + "==" + s[i+88:]
		})
		x.rechain(nil)
	}, alone: tampered, anchored: tampered},
	{name: "a checkpoint respelled", do: func(x *text) {
		x.edit(x.last0(), func(s string) string { return strings.Replace(s, `"decision":"info"`, `"decision":"\u0069nfo"`, 1) })
		x.rechainRaw()
	}, alone: tampered, anchored: tampered},
	{name: "all checkpoints removed and the log rechained without the key", do: func(x *text) {
		for s, list := range x.seg {
			x.seg[s] = slices.DeleteFunc(list, func(line string) bool { return strings.Contains(line, `"kind":"checkpoint"`) })
		}
		x.rechain(nil)
	}, alone: tampered, anchored: tampered},
	{name: "two logs spliced", do: func(x *text) {
		l, _ := victim(x.t)
		y := readText(x.t, l.root.Name())
		s, i := x.find(at)
		x.seg = append(x.seg[:s:s], append(slices.Clone(x.seg[s][:i]), y.seg[s][i:]...))
		x.seg = append(x.seg, y.seg[s+1:]...)
	}, alone: tampered, anchored: tampered},
	{name: "two logs spliced and rechained without the key", do: func(x *text) {
		l, _ := victim(x.t)
		y := readText(x.t, l.root.Name())
		x.seg = append(x.seg[:2:2], y.seg[2:]...)
		x.rechain(nil)
	}, alone: tampered, anchored: tampered},
	{name: "replaced by another log of the same key", do: func(x *text) {
		l, _ := victim(x.t)
		x.seg = readText(x.t, l.root.Name()).seg
		x.copyHead(l)
	}, keepHead: true, alone: whole, anchored: tampered},
	{name: "rewritten with another key", do: func(x *text) { x.edit(at, swapNumber); x.rechain(otherKey()) }, alone: tampered, anchored: tampered},
	{name: "rewritten with the key", do: func(x *text) { x.edit(at, swapNumber); x.rechain(ownKey()) }, alone: whole, anchored: tampered},
	{name: "the first segment deleted", do: func(x *text) { x.seg = x.seg[1:] }, alone: tampered, anchored: tampered},
	{name: "a segment in the middle deleted", do: func(x *text) { x.seg = slices.Delete(x.seg, 1, 2) }, alone: tampered, anchored: tampered},
	{name: "the last segment deleted", do: func(x *text) { x.seg = x.seg[:len(x.seg)-1] }, keepHead: true, alone: tampered, anchored: tampered},
	{name: "the last three segments deleted, mended", do: func(x *text) { x.seg = x.seg[:len(x.seg)-3] }, alone: whole, anchored: tampered},
	{name: "garbage appended", do: func(x *text) { x.seg[len(x.seg)-1] = append(x.seg[len(x.seg)-1], "garbage") }, keepHead: true, alone: tampered, anchored: tampered},
	{name: "everything deleted", do: func(x *text) { x.seg = nil }, keepHead: true, alone: tampered, anchored: tampered},
}

func TestTampering(t *testing.T) {
	for _, c := range tamperings {
		t.Run(c.name, func(t *testing.T) {
			l, anchor := victim(t)
			x := readText(t, l.root.Name())
			c.do(x)
			if !c.noRead {
				x.write()
			}
			if !c.keepHead {
				x.mend()
			}
			for _, turn := range []struct {
				anchor *Checkpoint
				want   string
			}{{nil, c.alone}, {anchor, c.anchored}} {
				r, err := l.Verify(public(t, testKey), turn.anchor)
				if err != nil {
					t.Fatal(err)
				}
				got := tampered
				if r.OK {
					got = whole
				}
				if got != turn.want || r.OK && r.Anchored != (turn.anchor != nil) {
					t.Errorf("anchor %v: %s, not %s: %+v", turn.anchor != nil, got, turn.want, r)
				}
				if (r.Err() == nil) != r.OK {
					t.Error(r.Err())
				}
			}
		})
	}
}

// last is the number of the last line.
func (x *text) last() int64 {
	list := x.seg[len(x.seg)-1]
	f, _ := framed([]byte(list[len(list)-1]))
	return f.seq
}

// checkpoint is the number of the newest checkpoint before a line.
func (x *text) checkpoint(before int64) (seq int64) {
	for _, list := range x.seg {
		for _, line := range list {
			if f, _ := framed([]byte(line)); f.kind == KindCheckpoint && f.seq < before {
				seq = f.seq
			}
		}
	}
	return seq
}

// last0 is the newest checkpoint of all.
func (x *text) last0() int64 { return x.checkpoint(1 << 62) }

// rechainRaw makes only the hashes fit.
func (x *text) rechainRaw() {
	prev := noHash
	for _, list := range x.seg {
		for i, line := range list {
			list[i] = line[:len(line)-66] + prev + `"}`
			prev = hashOf([]byte(list[i]))
		}
	}
}

// chop takes the last line's end away.
func (x *text) chop() {
	list := x.seg[len(x.seg)-1]
	f, _ := framed([]byte(list[0]))
	name := filepath.Join(x.dir, segmentName(f.seq))
	info, err := os.Stat(name)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := os.Truncate(name, info.Size()-1); err != nil {
		x.t.Fatal(err)
	}
}

func (x *text) copyHead(l *Log) {
	raw, err := os.ReadFile(filepath.Join(l.root.Name(), headFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(x.dir, headFile), raw, 0o600)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// A host whose key was replaced together with the log is found by the checkpoint that the old key signed.
func TestReplacedKey(t *testing.T) {
	l, anchor := victim(t)
	x := readText(t, l.root.Name())
	x.rechain(otherKey())
	x.write()
	x.mend()
	r, err := l.Verify(otherKey().Public().(ed25519.PublicKey), nil)
	if err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = l.Verify(otherKey().Public().(ed25519.PublicKey), anchor); err != nil || r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestExportedCheckpoint(t *testing.T) {
	l := open(t)
	c, err := l.Checkpoint() // of a log that did not exist
	if err != nil || c.Seq != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if r, err := l.Verify(public(t, testKey), c); err != nil || !r.OK || !r.Anchored || r.Unsigned != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	raw := fmt.Appendf(nil, `{"format":%q,"log":%q,"seq":%d,"hash":%q,"time":%q,"key":%q,"signature":%q}`,
		c.Format, c.Log, c.Seq, c.Hash, c.Time.Format(time.RFC3339Nano), c.Key, c.Signature)
	back, err := ParseCheckpoint(raw)
	if err != nil || *back != *c {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range []string{"", "{}", "null", string(raw[:len(raw)-1]), strings.Replace(string(raw), `"seq":1`, `"seq":2`, 1), strings.Replace(string(raw), "v1", "v2", 1)} {
		if _, err := ParseCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// However long the log is, verifying it takes no more memory.
func TestVerifyInConstantMemory(t *testing.T) {
	l := open(t)
	batch := make1000()
	for i := range batch {
		batch[i].Reason = strings.Repeat("x", 3000)
	}
	for range 4 {
		if err := l.Append(batch...); err != nil {
			t.Fatal(err)
		}
	}
	public := public(t, testKey)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := l.Verify(public, nil)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil || !r.OK || r.Bytes < 10<<20 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Every byte that was allocated counts, also those given back.
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(r.Bytes)/4 {
		t.Errorf("%d bytes were allocated for a log of %d", n, r.Bytes)
	}
}

func TestFindingsAreCapped(t *testing.T) {
	l, _ := victim(t)
	x := readText(t, l.root.Name())
	for s := range x.seg {
		for i := range x.seg[s] {
			x.seg[s][i] = strings.Replace(x.seg[s][i], `"seq"`, `"sEq"`, 1)
		}
	}
	for i, first := range []int64{1} {
		if err := os.WriteFile(filepath.Join(x.dir, segmentName(first)), []byte(strings.Join(x.seg[i], "\n")+strings.Repeat("\nx", 100)+"\n"+strings.Repeat("y", MaxLine*2)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := verified(t, l); r.OK || len(r.Findings) != MaxFindings || r.More < 50 {
		t.Errorf("%+v", r)
	}
}

func FuzzLine(f *testing.F) {
	e := Entry{Kind: "x", Fields: map[string]any{"a": 1}}
	f.Add(appendLine(nil, 1, time.Unix(0, 1).UTC(), &e, noHash, true))
	f.Add([]byte(`{"seq":1,"time":"","kind":"x","prev":"` + noHash + `"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, ok := framed(b)
		line, err := parse(b)
		if err == nil && line.exact(b) && isKind(line.Kind) && line.Seq > 0 && len(line.Prev) == len(noHash) && len(b) < MaxLine {
			if strings.Trim(line.Prev, "0123456789abcdef") == "" && line.Seq < 1e17 && (!ok || fr != frame{line.Seq, line.Kind, line.Prev}) {
				t.Errorf("%q: %+v, %v", b, fr, ok)
			}
		}
	})
}

// FuzzEntry: whatever a text is, it comes out as one line that reads back.
func FuzzEntry(f *testing.F) {
	f.Add("a", "b", "c")
	f.Add("\n\"}", "\xff", "\u202e")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		e := Entry{Kind: "x", Sandbox: a, Reason: b, Fields: map[string]any{a: b, b: []any{c, map[string]any{c: a}}}}
		text := appendLine(nil, 7, time.Unix(0, 1).UTC(), &e, noHash, false)
		if len(text) >= MaxLine || bytes.ContainsAny(text, "\n\x1b") {
			t.Fatalf("%q", text)
		}
		line, err := parse(text)
		if _, ok := framed(text); err != nil || !ok || !line.exact(text) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
