package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

// boxes is a Wall in memory: a sandbox lives from its making until End.
type boxes struct {
	mu    sync.Mutex
	live  map[string]bool
	stuck bool // End does nothing
}

func (b *boxes) End(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck {
		return errors.New("stuck")
	}
	delete(b.live, id)
	return nil
}

func (b *boxes) Alive(id string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live[id], nil
}

// start is what a run does: it makes its sandbox, enters, and ends it when that is refused.
func (b *boxes) start(t *testing.T, state, runtime, id, agent string) error {
	dir := filepath.Join(runtime, "sandboxes", id)
	b.mu.Lock()
	b.live[id] = true
	b.mu.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Error(err)
	}
	err := Enter(state, dir, agent)
	if err != nil {
		b.mu.Lock()
		delete(b.live, id)
		b.mu.Unlock()
	}
	return err
}

func TestMarks(t *testing.T) {
	state := t.TempDir()
	if r, err := Revoked(state, "a"); r || err != nil {
		t.Errorf("nothing is revoked: %v, %v", r, err)
	}
	if list, err := Marks(state); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if err := Restore(state, "a"); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("restore: %v", err)
	}
	first, err := Mark(t.Context(), state, "a", "leaked \"key\"\n")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Mark(t.Context(), state, "a", "later")
	if err != nil || again != first {
		t.Errorf("%+v, %+v, %v", first, again, err)
	}
	if r, err := Revoked(state, "a"); !r || err != nil {
		t.Errorf("%v, %v", r, err)
	}
	if err := Permit(state, "a"); rung.KindOf(err) != rung.KindRefused || rung.ExitCode(err) != rung.ExitRefused {
		t.Errorf("%v", err)
	}
	if err := Permit(state, "b"); err != nil {
		t.Errorf("another agent: %v", err)
	}
	if list, err := Marks(state); len(list) != 1 || list[0] != first || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if err := errors.Join(Restore(state, "a"), Permit(state, "a")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "../a", "A", "a/b"} {
		_, err1 := Revoked(state, bad)
		_, err2 := Mark(t.Context(), state, bad, "")
		if rung.KindOf(err1) != rung.KindInvalid || rung.KindOf(err2) != rung.KindInvalid {
			t.Errorf("%q: %v, %v", bad, err1, err2)
		}
	}
	if _, err := Mark(t.Context(), state, "c", strings.Repeat("x", maxReason+1)); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("%v", err)
	}
}

// TestDamageRevokes: whatever stands in the place of a mark, the agent is revoked; what cannot be looked at is an error.
func TestDamageRevokes(t *testing.T) {
	state := t.TempDir()
	dir := filepath.Join(state, dirName)
	for _, err := range []error{
		os.Mkdir(dir, 0o700), os.WriteFile(dir+"/empty.json", nil, 0o600), os.WriteFile(dir+"/other.json", []byte(`{"agent":"x"}`), 0o600),
		os.Symlink("/nowhere", dir+"/link.json"), os.Mkdir(dir+"/dir.json", 0o700), os.WriteFile(dir+"/open.json", []byte("{}"), 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"empty", "other", "link", "dir", "open"} {
		if r, err := Revoked(state, name); !r || err != nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	if list, err := Marks(state); err != nil || len(list) != 5 || list[0].Reason == "" {
		t.Errorf("%v, %v", list, err)
	}
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Revoked(file, "a"); r || rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("a state that is none: %v, %v", r, err)
	}
}

func TestKill(t *testing.T) {
	state, runtime := t.TempDir(), t.TempDir()
	b := &boxes{live: map[string]bool{}}
	for id, name := range map[string]string{"r1": "a", "r2": "b", "r3": "a", "r4": "a"} {
		if err := b.start(t, state, runtime, id, name); err != nil {
			t.Fatal(err)
		}
	}
	delete(b.live, "r4") // dead, with a directory
	k, err := Kill(t.Context(), runtime, "a", b)
	slices.Sort(k.Sandboxes)
	if err != nil || !slices.Equal(k.Sandboxes, []string{"r1", "r3"}) || len(b.live) != 1 || !b.live["r2"] {
		t.Errorf("%v, %v, alive %v", k, err, b.live)
	}
	if k, err := Kill(t.Context(), filepath.Join(runtime, "none"), "a", b); err != nil || len(k.Sandboxes) != 0 {
		t.Errorf("no runtime directory: %v, %v", k, err)
	}
}

// TestKillTellsWhatItCannot: what may live is an error that names it, and does not keep the others alive.
func TestKillTellsWhatItCannot(t *testing.T) {
	state, runtime := t.TempDir(), t.TempDir()
	b := &boxes{live: map[string]bool{}}
	if err := b.start(t, state, runtime, "r1", "a"); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(runtime, "sandboxes", "r2")
	if err := errors.Join(os.Mkdir(odd, 0o700), os.Symlink("/etc/passwd", odd+"/"+FileName)); err != nil {
		t.Fatal(err)
	}
	k, err := Kill(t.Context(), runtime, "a", b)
	if len(k.Sandboxes) != 1 || err == nil || !strings.Contains(err.Error(), "r2") {
		t.Errorf("%v, %v", k, err)
	}
	if err := b.start(t, state, runtime, "r3", "a"); err != nil {
		t.Fatal(err)
	}
	b.stuck = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if k, err := Kill(ctx, runtime, "a", b); len(k.Sandboxes) != 0 || err == nil || !strings.Contains(err.Error(), "r3") {
		t.Errorf("%v, %v", k, err)
	}
}

// TestNothingStartsBesideARevocation: whatever the order, after Mark and Kill no sandbox of the agent lives and no lease of
// it was delivered that Kill could not see.
func TestNothingStartsBesideARevocation(t *testing.T) {
	for round := range 40 {
		state, runtime := t.TempDir(), t.TempDir()
		b := &boxes{live: map[string]bool{}}
		var delivered sync.Map // ids whose lease was sent
		var runs sync.WaitGroup
		begun := make(chan struct{}, 8)
		for i := range 8 {
			runs.Go(func() {
				begun <- struct{}{}
				id := fmt.Sprintf("r%d", i)
				err := b.start(t, state, runtime, id, "a")
				if err == nil {
					err = Deliver(t.Context(), state, "a", func() error { delivered.Store(id, true); return nil })
				}
				if err != nil && rung.KindOf(err) != rung.KindRefused {
					t.Error(err)
				}
			})
		}
		for range round % 9 { // let that many begin
			<-begun
		}
		if _, err := Mark(t.Context(), state, "a", ""); err != nil {
			t.Fatal(err)
		}
		sent := 0
		delivered.Range(func(any, any) bool { sent++; return true })
		if _, err := Kill(t.Context(), runtime, "a", b); err != nil {
			t.Fatal(err)
		}
		runs.Wait()
		after := 0
		delivered.Range(func(any, any) bool { after++; return true })
		if len(b.live) != 0 || after != sent {
			t.Fatalf("round %d: %d sandboxes live, %d leases delivered after the mark", round, len(b.live), after-sent)
		}
	}
}

func TestFileOfASandbox(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	if _, err := Of(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := Enter(state, dir, "a"); err != nil {
		t.Fatal(err)
	}
	if err := Enter(state, dir, "b"); err == nil {
		t.Error("a second agent entered")
	}
	if name, err := Of(dir); name != "a" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	for _, text := range []string{"", "A\n", "a\nb\n", strings.Repeat("a", 100)} {
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if name, err := Of(dir); err == nil {
			t.Errorf("%q names %q", text, name)
		}
	}
	raw, err := json.Marshal(Revocation{Agent: "a"})
	if err != nil || !strings.Contains(string(raw), "revoked_at") {
		t.Errorf("%s, %v", raw, err)
	}
}

func BenchmarkRevoked(b *testing.B) {
	state := b.TempDir()
	if _, err := Mark(b.Context(), state, "other", ""); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r, err := Revoked(state, "a"); r || err != nil {
			b.Fatal(r, err)
		}
	}
}
