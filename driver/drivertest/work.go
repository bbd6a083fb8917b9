package drivertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

func (s *suite) exitCodes(t *testing.T) {
	b := s.create(t)
	for _, want := range []int{0, 1, 2, 7, 77, 124, 125, 126, 127, 128, 255} {
		_, code, err := b.run(within(t, bound), nil, "/bin/sh", "-c", fmt.Sprintf("exit %d", want))
		if err != nil || code != want {
			t.Errorf("exit %d: got %d, %v", want, code, err)
		}
	}
	if _, code, err := b.run(within(t, bound), nil, "/bin/sh", "-c", "kill -9 $$"); err != nil || code != 137 {
		t.Errorf("a process that killed itself: got %d, %v, want 137", code, err)
	}
}

// outputExact: ten megabytes arrive whole and in order, while as much goes to standard error.
func (s *suite) outputExact(t *testing.T) {
	b := s.create(t)
	const lines = 1_350_000 // about 10 MB
	var text []byte
	for i := range lines {
		text = append(strconv.AppendInt(text, int64(i+1), 10), '\n')
	}
	want := sha256.New()
	want.Write(text)
	got := sha256.New()
	p := b.startTo(t, got, "/bin/sh", "-c", fmt.Sprintf("seq 1 %d >&2 & seq 1 %d; wait", lines, lines))
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Errorf("standard output is not what was written")
	}
	if !bytes.Equal(want.Sum(nil), p.stderrSum()) {
		t.Errorf("standard error is not what was written")
	}
}

// stdinStreams: binary in, the same out, end of input seen.
func (s *suite) stdinStreams(t *testing.T) {
	b := s.create(t)
	data := make([]byte, 10<<20+1)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(data) // never fails
	out, code, err := b.run(within(t, 2*bound), bytes.NewReader(data), "cat")
	if err != nil || code != 0 || !bytes.Equal(out, data) {
		t.Errorf("cat of %d bytes: %d bytes, equal %v, code %d, %v", len(data), len(out), bytes.Equal(out, data), code, err)
	}
	if out, code, err := b.run(within(t, bound), nil, "cat"); err != nil || code != 0 || len(out) != 0 {
		t.Errorf("cat of nothing: %q, %d, %v", out, code, err)
	}
}

// killTree: ending a process ends what it started, also what left its session and ignores signals.
func (s *suite) killTree(t *testing.T) {
	b := s.create(t)
	mark := fmt.Sprintf("987%06d", rand.IntN(1_000_000)) // an argument that shows in a process list
	p := b.start(t, "/bin/sh", "-c", fmt.Sprintf(`trap '' TERM
( trap '' TERM; sleep %s & ) ; command -v setsid >/dev/null && setsid sleep %s & echo ready; while :; do sleep %s; done`, mark, mark, mark))
	p.waitOutput(t, "ready\n")
	p.kill(t)
	var left string
	if !eventually(5*time.Second, func() bool {
		left = b.sh(t, fmt.Sprintf(`for p in /proc/[0-9]*; do
  if tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^sleep %s'; then echo $p; fi
done`, mark))
		return strings.TrimSpace(left) == ""
	}) {
		t.Errorf("still there after kill: %s", left)
	}
}

// run runs a command to its end and returns standard output and exit code, 128+n for a signal.
func (b *box) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, int, error) {
	var out bytes.Buffer
	code, err := b.command(ctx, stdin, &out, args)
	return out.Bytes(), code, err
}

// sh runs a script that must succeed.
func (b *box) sh(t *testing.T, script string) string {
	t.Helper()
	out, code, err := b.run(within(t, bound), nil, "/bin/sh", "-c", script)
	if err != nil || code != 0 {
		t.Fatalf("sh -c %q: %d, %v", script, code, err)
	}
	return string(out)
}
