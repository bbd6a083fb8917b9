//go:build linux

package proc

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"
)

// A ring read at random paces gives the bytes in order, never more memory than its cap, and drops only what nobody wants.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := ring{max: 256 << 10}
	var pos, written int64
	at := func(n int64) byte { return byte(n * 7 >> 3) }
	for range 20_000 {
		if area := r.reserve(pos); area != nil {
			n := 1 + rng.IntN(len(area))
			for i := range n {
				area[i] = at(written + int64(i))
			}
			written += int64(n)
			r.end += int64(n)
		}
		if len(r.buf) > r.max || r.end-r.start > int64(len(r.buf)) || r.start > pos {
			t.Fatalf("start %d, end %d, reader at %d, buffer %d", r.start, r.end, pos, len(r.buf))
		}
		view := r.view(pos)
		view = view[:min(len(view), rng.IntN(chunk+1))]
		for i, b := range view {
			if b != at(pos+int64(i)) {
				t.Fatalf("byte %d differs", pos+int64(i))
			}
		}
		pos += int64(len(view))
	}
	if written < 1<<20 {
		t.Errorf("only %d bytes went through", written)
	}
}

// Without a reader the last bytes are kept, at least the cap less one read.
func TestRingWithoutReader(t *testing.T) {
	r := ring{max: 64 << 10}
	var all []byte
	for i := range 1000 {
		area := r.reserve(r.end)
		if area == nil {
			t.Fatal("it waits for nobody")
		}
		n := copy(area, bytes.Repeat([]byte{byte(i)}, 1+i*37%len(area)))
		all = append(all, area[:n]...)
		r.end += int64(n)
	}
	if kept := r.end - r.start; kept < 32<<10 {
		t.Errorf("kept %d", kept)
	}
	var got []byte
	for pos := r.start; pos < r.end; pos = r.start + int64(len(got)) {
		got = append(got, r.view(pos)...)
	}
	if !bytes.Equal(got, all[r.start:]) {
		t.Error("the kept bytes are not the last ones")
	}
}

func TestParseStat(t *testing.T) {
	for raw, want := range map[string]procStat{
		"12 (sh) S 1 12 12 0 -1":           {12, 1, 12, 12, 'S'},
		"13 (a) Z 1 (b) R 2 3 4 0 -1 4194": {13, 2, 3, 4, 'R'},
		"14 () ) Z 5 6 7 0":                {14, 5, 6, 7, 'Z'},
	} {
		if got, ok := parseStat([]byte(raw)); !ok || got != want {
			t.Errorf("%s: %+v %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", "x", "1 (a", "1 (a) S", "1 (a) S x y z", ") 1 ("} {
		if got, ok := parseStat([]byte(raw)); ok {
			t.Errorf("%q: %+v", raw, got)
		}
	}
	for _, s := range scanProc() {
		if s.pid == os.Getpid() && s.parent == os.Getppid() {
			return
		}
	}
	t.Error("this process was not found")
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 1 12 12 0 -1"))
	f.Fuzz(func(t *testing.T, raw []byte) { parseStat(raw) })
}
