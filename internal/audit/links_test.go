package audit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

// TestLinksInside: os.Root follows links that stay below it; the store does not.
func TestLinksInside(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rec := &rung.Record{ID: "r1", Started: time.Now()}
	day := filepath.Dir(s.Path(rec))
	victim := filepath.Join(dir, "victim")
	if err := errors.Join(os.MkdirAll(day, 0o700), os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink("../../victim", filepath.Join(day, tempMark+"r1"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(rec); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("written through a link: %q, %v", text, err)
	}
	if err := os.Symlink("r1.json", filepath.Join(day, "r2.json")); err != nil {
		t.Fatal(err)
	}
	if text, err := s.Load("r2"); err == nil {
		t.Errorf("a record by a link: %q", text)
	}
	key := filepath.Join(dir, keyFile)
	if err := errors.Join(os.Rename(key, filepath.Join(dir, "keys/else")), os.Symlink("else", key)); err != nil {
		t.Fatal(err)
	}
	other, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.PublicKey(); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("a key by a link: %v", err)
	}
	if err := os.Symlink("victim", filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	if f, err := log.OpenFile(other.root, "new", os.O_RDWR|os.O_CREATE); err == nil {
		f.Close()
		t.Error("made or opened by a link")
	}
}
