package log

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

// testKey is the same in every process of a test.
func testKey() (ed25519.PrivateKey, error) {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)), nil
}

func public(t testing.TB, key func() (ed25519.PrivateKey, error)) ed25519.PublicKey {
	t.Helper()
	k, err := key()
	if err != nil {
		t.Fatal(err)
	}
	return k.Public().(ed25519.PublicKey)
}

func openAt(t testing.TB, dir string) *Log {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := Open(root, testKey)
	t.Cleanup(func() { l.Close() })
	return l
}

func open(t testing.TB) *Log {
	t.Helper()
	return openAt(t, t.TempDir())
}

// unsynced keeps tests that write many checkpoints from waiting for the disk.
func unsynced(*os.File) error { return nil }

func fill(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		if err := l.Append(Entry{Kind: "test", Sandbox: "rabc", Fields: map[string]any{"n": i}}); err != nil {
			t.Fatal(err)
		}
	}
}

// lines reads the whole log.
func lines(t testing.TB, l *Log) (list []Line) {
	t.Helper()
	if _, err := l.Scan(Position{}, Filter{}, func(line *Line, _ []byte) error {
		list = append(list, *line)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func verified(t testing.TB, l *Log) *Report {
	t.Helper()
	r, err := l.Verify(public(t, testKey), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustBeWhole(t testing.TB, l *Log) *Report {
	t.Helper()
	r := verified(t, l)
	if !r.OK {
		t.Errorf("%+v", r.Findings)
	}
	return r
}

func TestAppend(t *testing.T) {
	l := open(t)
	at := time.Date(2026, 11, 30, 1, 2, 3, 450, time.FixedZone("", 3600))
	l.now = func() time.Time { return at }
	e := Entry{
		Kind: "net", Sandbox: "r1", Agent: "a", Task: "t", Call: "c", Rule: "r", Decision: Deny, Severity: High, Reason: "why",
		Fields: map[string]any{"z": 1, "a": []string{"x"}, "m": map[string]any{"b": true, "a": nil}, "f": 1.5, "inf": math.Inf(1)},
	}
	if err := l.Append(e); err != nil {
		t.Fatal(err)
	}
	list := lines(t, l)
	if len(list) != 2 || list[0].Kind != KindGenesis || list[1].Seq != 2 || list[1].Rule != "r" {
		t.Fatalf("%+v", list)
	}
	want := `{"seq":2,"time":"2026-11-30T00:02:03.00000045Z","kind":"net","sandbox":"r1","agent":"a","task":"t","call":"c","rule":"r",` +
		`"decision":"deny","severity":"high","reason":"why","fields":{"a":["x"],"f":1.5,"inf":"+Inf","m":{"a":null,"b":true},"z":1},"prev":"` + list[1].Prev + `"}`
	if got := appendLine(nil, 2, list[1].Time, &list[1].Entry, list[1].Prev, false); string(got) != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	mustBeWhole(t, l)
}

func TestEntriesThatAreMistakes(t *testing.T) {
	l := open(t)
	for _, e := range []Entry{
		{},
		{Kind: "Upper"},
		{Kind: "a b"},
		{Kind: strings.Repeat("x", 65)},
		{Kind: KindGenesis},
		{Kind: KindCheckpoint},
		{Kind: KindPruned},
		{Kind: KindTorn},
		{Kind: KindOverflow},
		{Kind: "x", Decision: "maybe"},
		{Kind: "x", Severity: "bad"},
	} {
		if err := l.Append(Entry{Kind: "fine"}, e); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if err := l.Append(); err != nil {
		t.Error(err)
	}
	if list, err := l.segments(); err != nil || len(list) != 0 {
		t.Errorf("something was written: %v, %v", list, err)
	}
}

// Hostile text stays inside its string, whatever it is.
func TestHostileText(t *testing.T) {
	l := open(t)
	texts := []string{
		"\n{\"seq\":9}\n", `","prev":"` + noHash + `"}`, "\x00\x1b[2J\x7f\u009b31m", "\u202egnp.exe\u2066\u2028\ufeff", "\xff\xfe\xc0\xaf", `\`, `\u000a`,
		strings.Repeat("\x01", 5000), strings.Repeat("\xff", 600),
	}
	for _, s := range texts {
		e := Entry{Kind: "x", Sandbox: s, Agent: s, Task: s, Call: s, Rule: s, Reason: s, Fields: map[string]any{s: s, "list": []any{s}}}
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if r := mustBeWhole(t, l); r.Lines != int64(len(texts)+1) {
		t.Errorf("%d lines", r.Lines)
	}
	raw, err := os.ReadFile(filepath.Join(l.root.Name(), segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range string(raw) {
		if r != '\n' && invisible(r) {
			t.Fatalf("%U in the log", r)
		}
	}
	list := lines(t, l)
	if got := list[3].Fields["list"].([]any)[0]; got != texts[2] {
		t.Errorf("%q, not %q", got, texts[2])
	}
	if list[5].Reason != "\ufffd\ufffd\ufffd\ufffd" || list[8].Cut != true || len(list[8].Reason) != maxReason {
		t.Errorf("%+v", list[5])
	}
}

func TestCaps(t *testing.T) {
	l := open(t)
	big := strings.Repeat("x", MaxLine)
	if err := l.Append(Entry{Kind: "x", Reason: big, Rule: big, Fields: map[string]any{"a": 1, "big": big, "z": 2}}); err != nil {
		t.Fatal(err)
	}
	worst := strings.Repeat("\x01", maxReason)
	e := Entry{Kind: "x", Sandbox: worst, Agent: worst, Task: worst, Call: worst, Rule: worst, Reason: worst, Fields: map[string]any{}}
	for i := range 20 {
		e.Fields[fmt.Sprintf("%02d", i)] = worst
	}
	if err := l.Append(e); err != nil {
		t.Fatal(err)
	}
	list := lines(t, l)
	if f := list[1].Fields; !list[1].Cut || len(f) != 2 || f["a"] == nil || f["z"] == nil || len(list[1].Rule) != maxName {
		t.Errorf("%v", f)
	}
	if !list[2].Cut || len(list[2].Fields) == 0 {
		t.Errorf("%d fields", len(list[2].Fields))
	}
	many := make([]Entry, MaxEntries+500)
	for i := range many {
		many[i] = Entry{Kind: "flood"}
	}
	many[len(many)-1] = Entry{Kind: "important", Severity: High}
	if err := l.Append(many...); err != nil {
		t.Fatal(err)
	}
	list = lines(t, l)
	last := list[len(list)-1]
	if last.Kind != KindOverflow || last.Fields["count"] != json.Number("500") || list[3].Kind != "important" {
		t.Errorf("%+v", last)
	}
	heavy := make([]Entry, 200)
	for i := range heavy {
		heavy[i] = Entry{Kind: "heavy", Fields: map[string]any{"x": big[:MaxLine-1000]}}
	}
	if err := l.Append(heavy...); err != nil {
		t.Fatal(err)
	}
	if all := lines(t, l); all[len(all)-1].Kind != KindOverflow {
		t.Errorf("%+v", all[len(all)-1])
	}
	mustBeWhole(t, l)
}

// Checkpoints come as often as promised, in batches too, and segments begin with one.
func TestCheckpointsAndRotation(t *testing.T) {
	l := open(t)
	l.segment = 20 << 10
	fill(t, l, 300)
	if err := l.Append(make1000()...); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 3)
	segments, err := l.segments()
	if err != nil || len(segments) < 4 {
		t.Fatalf("%v, %v", segments, err)
	}
	for i, first := range segments {
		line, err := l.firstLine(first)
		if err != nil || line.Seq != first || (line.Kind != KindCheckpoint && i > 0) {
			t.Errorf("segment %d: %+v, %v", first, line, err)
		}
	}
	r := mustBeWhole(t, l)
	if r.Last != r.Lines || r.Checkpoints < 8 || r.Unsigned > MaxUnsigned || r.Anchored {
		t.Errorf("%+v", r)
	}
}

func make1000() []Entry {
	list := make([]Entry, 1000)
	for i := range list {
		list[i] = Entry{Kind: "batch", Fields: map[string]any{"i": i}}
	}
	return list
}

// Sixteen processes append at once, with rotation going on: one chain comes out, with every entry in it.
func TestManyProcesses(t *testing.T) {
	const procs, each = 16, 40
	if dir := os.Getenv("LOG_MANY"); dir != "" {
		l := openAt(t, dir)
		l.segment = 16 << 10
		for i := range each {
			e := Entry{Kind: "test", Task: os.Getenv("LOG_TASK"), Fields: map[string]any{"i": i}}
			if err := l.Append(e, e); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := open(t)
	var wg sync.WaitGroup
	for p := range procs {
		wg.Go(func() {
			cmd := exec.Command(self, "-test.run=^TestManyProcesses$")
			cmd.Env = append(os.Environ(), "LOG_MANY="+l.root.Name(), fmt.Sprintf("LOG_TASK=%d", p))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	r := mustBeWhole(t, l)
	next := map[string]int{}
	events := 0
	for i, line := range lines(t, l) {
		if line.Seq != int64(i+1) {
			t.Fatalf("line %d has number %d", i+1, line.Seq)
		}
		if line.Kind != "test" {
			continue
		}
		events++
		if n, _ := line.Fields["i"].(json.Number).Int64(); int(n) != next[line.Task]/2 {
			t.Fatalf("process %s: %d after %d", line.Task, n, next[line.Task])
		}
		next[line.Task]++
	}
	if events != procs*each*2 || len(r.Notes) != 0 {
		t.Errorf("%d events, %v", events, r.Notes)
	}
}

// A stopped process that has the lock stops nobody for ever.
func TestLockIsBounded(t *testing.T) {
	l := open(t)
	l.wait = 20 * time.Millisecond
	f, err := l.lock(true, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.Append(Entry{Kind: "x"}); rung.KindOf(err) != rung.KindTimeout {
		t.Error(err)
	}
}

// A key that cannot be read stops the beginning of a log, and afterwards costs the signature only, and says so.
func TestKeyFails(t *testing.T) {
	l := open(t)
	broken := func() (ed25519.PrivateKey, error) {
		return nil, rung.Errorf(rung.KindUnavailable, "the key is gone").WithHint("look for it")
	}
	l.key = broken
	if err := l.Append(Entry{Kind: "x"}); rung.KindOf(err) != rung.KindUnavailable {
		t.Error(err)
	}
	if list, _ := l.segments(); len(list) != 0 {
		t.Errorf("a log without a signature: %v", list)
	}
	l.key, l.unsigned = testKey, 4
	fill(t, l, 2)
	l.key = broken
	if err := l.Append(Entry{Kind: "x"}, Entry{Kind: "x"}); rung.KindOf(err) != rung.KindUnavailable || rung.HintOf(err) != "look for it" {
		t.Error(err)
	}
	l.key = testKey
	fill(t, l, 1)
	list := lines(t, l)
	if len(list) != 7 || list[6].Kind != KindCheckpoint {
		t.Errorf("%+v", list)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := open(b)
	e := Entry{Kind: "run", Sandbox: "rabcdefgh", Decision: Allow, Fields: map[string]any{"rung": "hardened", "exit_code": 0, "template": "host"}}
	for b.Loop() {
		if err := l.Append(e); err != nil {
			b.Fatal(err)
		}
	}
}
