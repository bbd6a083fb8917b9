package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func TestSaveLoadList(t *testing.T) {
	s := open(t)
	rec := sample("run-1")
	path, err := s.Save(rec)
	if err != nil {
		t.Fatal(err)
	}
	if path != s.Path(rec) || !strings.HasSuffix(path, "/records/2026-11-29/run-1.json") {
		t.Errorf("path %s", path)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	later := sample("run-2")
	later.Started = later.Started.Add(time.Hour) // the next day
	if _, err := s.Save(later); err != nil {
		t.Fatal(err)
	}
	text, err := s.Load("run-1")
	if err != nil || s.Verify(text) != nil {
		t.Errorf("load: %v", err)
	}
	if list, err := s.List(0); err != nil || len(list) != 2 || list[0].ID != "run-2" || list[1].Path != path {
		t.Errorf("list: %+v, %v", list, err)
	}
	if list, err := s.List(1); err != nil || len(list) != 1 || list[0].ID != "run-2" {
		t.Errorf("list of one: %+v, %v", list, err)
	}
	if _, err := s.Load("nobody"); rung.KindOf(err) != rung.KindNotFound {
		t.Error(err)
	}
	for _, bad := range []string{"../keys/record", "", ".tmp-x"} {
		if _, err := s.Load(bad); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := s.Save(sample(bad)); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestEmptyStore(t *testing.T) {
	s := open(t)
	if list, err := s.List(0); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if err := s.Prune(1, 1); err != nil {
		t.Error(err)
	}
}

// put stores a record that looks as old as given.
func put(t *testing.T, s *Store, n int, age time.Duration) {
	t.Helper()
	rec := sample(fmt.Sprintf("r%03d", n))
	rec.Started = time.Now().Add(-age)
	path, err := s.Save(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, rec.Started, rec.Started); err != nil {
		t.Fatal(err)
	}
}

func TestPruneKeepsTheNewest(t *testing.T) {
	s := open(t)
	for n := range 40 {
		put(t, s, n, time.Duration(n)*12*time.Hour)
	}
	for _, c := range []struct {
		count int
		bytes int64
		want  int
	}{{40, 1 << 40, 40}, {30, 1 << 40, 29}, {1 << 30, 20 * 1500, 0}} {
		if err := s.Prune(c.count, c.bytes); err != nil {
			t.Fatal(err)
		}
		list, err := s.List(0)
		if err != nil || len(list) == 0 || list[0].ID != "r000" {
			t.Fatalf("%v, %v", list, err)
		}
		total := int64(0)
		for i, e := range list {
			total += e.Size
			if e.ID != fmt.Sprintf("r%03d", i) {
				t.Errorf("%s at place %d", e.ID, i)
			}
		}
		if c.want > 0 && len(list) != c.want || total > c.bytes {
			t.Errorf("%+v: %d records of %d bytes are left", c, len(list), total)
		}
	}
	days, err := os.ReadDir(filepath.Join(s.dir, recordDir))
	if list, _ := s.List(0); err != nil || len(days) > len(list) {
		t.Errorf("%d directories for %d records, %v", len(days), len(list), err)
	}
}

func TestPruneRemovesWhatDeadWritersLeft(t *testing.T) {
	s := open(t)
	put(t, s, 1, 0)
	dir := filepath.Join(s.dir, recordDir, time.Now().UTC().Format(dayForm))
	fresh, stale := filepath.Join(dir, ".tmp-a"), filepath.Join(dir, ".tmp-b")
	for _, f := range []string{fresh, stale} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * staleTemp)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	if err := s.Prune(10, 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a live writer's file is gone: %v", err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a dead writer's file is still there")
	}
}

// A full disk is told as such, keeps the record usable and leaves nothing half-written.
func TestFullDisk(t *testing.T) {
	s := open(t)
	rec := sample("full")
	dir := filepath.Dir(s.Path(rec))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// The open is refused (a directory in the place), so this only proves that the result survives a failed store.
	if err := os.MkdirAll(filepath.Join(dir, ".tmp-full", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(rec); err == nil {
		t.Error("stored through a directory")
	}
	if text, err := Encode(rec); err != nil || s.Verify(text) != nil {
		t.Errorf("the record is not usable: %v", err)
	}
	if err := stateError("store", os.NewSyscallError("write", syscall.ENOSPC)); rung.KindOf(err) != rung.KindExhausted || rung.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

// Events of many goroutines at once make one whole log, and a run without a log does not make one to read it.
func TestEvents(t *testing.T) {
	s := open(t)
	if _, err := s.Log(); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("a log that nobody wrote: %v", err)
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 25 {
				if err := s.Append(Entry{Kind: EventRefused, Fields: map[string]any{"n": n, "text": strings.Repeat("x", 2000)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := open(t).LogKey(); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("a key that nobody made: %v", err)
	}
	public, err := s.LogKey()
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Log()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.Verify(public, nil); err != nil || !r.OK || r.Lines != 201 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, name := range []string{"log", "log/lock", "log/head", "log/0000000000000001.jsonl"} {
		if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestRunEvents(t *testing.T) {
	s := open(t)
	rec := sample("run-1")
	if _, err := s.Save(rec); err != nil {
		t.Fatal(err)
	}
	list := RunEvents(Of{Agent: "a", Call: "c"}, rec)
	if len(list) != 2 || list[0].Sandbox != "run-1" || list[0].Fields["record"] != rec.Signature.Value || list[1].Fields["syscall"] != "bpf" || list[1].Fields["count"] != int64(3) {
		t.Errorf("%+v", list)
	}
	rec.Denied = append(rec.Denied, rung.Denied{Network: &rung.NetDenial{Layer: "dns", Host: "evil.example", Count: 2}})
	rec.Network = &rung.Network{Allowed: []rung.NetAllowed{{Host: "good.example", Port: 443, Rule: "r", Count: 1}}}
	if more := RunEvents(Of{}, rec); len(more) != 4 || more[2].Kind != EventNet || more[2].Fields["host"] != "evil.example" || more[3].Decision != "allow" {
		t.Errorf("%+v", more)
	}
	list = append(list, Denial(Of{Sandbox: "x"}, &rung.NetDenial{Layer: "dns", Host: "evil", Reason: "no rule", Severity: "high", Count: 7}),
		Allowed(Of{Sandbox: "x"}, &rung.NetAllowed{Host: "good", Port: 443, Rule: "r", Count: 1}),
		Refused(Of{}, "generated", "process", os.ErrPermission, []struct{ Text string }{{"why"}}), AcceptedLower(Of{}, "generated", "process"))
	if err := s.Append(list...); err != nil {
		t.Fatal(err)
	}
	if list[2].Severity != "high" || list[2].Fields["count"] != int64(7) || list[2].Fields["port"] != nil {
		t.Errorf("%+v", list[2])
	}
}

func TestParseCall(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ flag, env, want string }{
		{"", "", ""},
		{"", parent, parent},
		{"job-7", parent, "job-7"},
		{"", strings.ToUpper(parent), ""},
		{"", "ff" + parent[2:], ""},
		{"", parent + "-x", ""},
		{"", "00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		{"", strings.Replace(parent, "-b", "\n-", 1), ""},
	} {
		if got, err := ParseCall(c.flag, c.env); err != nil || got != c.want {
			t.Errorf("%q, %q: %q, %v", c.flag, c.env, got, err)
		}
	}
	for _, bad := range []string{"a b", "a\n", "é", strings.Repeat("x", maxCall+1)} {
		if _, err := ParseCall(bad, ""); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func BenchmarkSave(b *testing.B) {
	s := open(b)
	n := 0
	for b.Loop() {
		n++
		rec := sample(fmt.Sprintf("b%d", n)) // replacing a file makes ext4 write the new one out at once
		rec.Stdout = strings.Repeat("a line of output\n", 200)
		if _, err := s.Save(rec); err != nil {
			b.Fatal(err)
		}
	}
}
