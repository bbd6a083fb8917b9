package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func made(t *testing.T) (*Dir, string) {
	t.Helper()
	state := t.TempDir()
	d, err := Make(state, "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, filepath.Join(state, "d")
}

func TestReadWrite(t *testing.T) {
	d, path := made(t)
	if _, err := d.Read("x", 10); !errors.Is(err, fs.ErrNotExist) || rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("missing: %v", err)
	}
	for _, text := range []string{"", "a", "0123456789"} {
		if err := d.Write("x", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read("x", 10); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if st, err := os.Lstat(filepath.Join(path, "x")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := d.Create("x", nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create over a file: %v", err)
	}
	if names, err := d.Names(""); err != nil || !slices.Equal(names, []string{"x"}) {
		t.Errorf("%v, %v", names, err)
	}
}

func TestHostileFiles(t *testing.T) {
	d, path := made(t)
	outside := filepath.Join(t.TempDir(), "outside")
	at := func(n string) string { return filepath.Join(path, n) }
	for _, err := range []error{
		os.WriteFile(outside, []byte("theirs"), 0o600),
		os.Symlink(outside, at("link")),
		os.WriteFile(at("fine"), []byte("fine"), 0o600), os.Symlink("fine", at("inner")),
		os.WriteFile(at("file"), nil, 0o600),
		os.WriteFile(at("open"), nil, 0o600), os.Chmod(at("open"), 0o640),
		os.WriteFile(at("huge"), bytes.Repeat([]byte("x"), 11), 0o600),
		os.Mkdir(at("dir"), 0o700),
		syscall.Mkfifo(at("pipe"), 0o600),
		os.Truncate(at("file"), 1<<40), // sparse: reading must not begin
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"link", "inner", "open", "huge", "dir", "pipe", "file", "../outside"} {
		if got, err := d.Read(name, 10); err == nil || rung.KindOf(err) == rung.KindNotFound {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := d.Write("link", []byte("ours")); err != nil {
		t.Errorf("a link is not replaced: %v", err)
	}
	if got, _ := os.ReadFile(outside); string(got) != "theirs" {
		t.Error("Write followed a link")
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(d.Write("given", nil), os.Chown(at("given"), 1, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Read("given", 10); rung.KindOf(err) != rung.KindUnavailable {
			t.Errorf("another user's file: %v", err)
		}
	}
}

func TestHostileDirectories(t *testing.T) {
	state := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(state, "wide"), 0o755),
		os.Mkdir(filepath.Join(state, "good"), 0o700), os.Symlink("good", filepath.Join(state, "link")),
		os.WriteFile(filepath.Join(state, "file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"wide", "link", "file"} {
		if _, err := Make(state, name); rung.KindOf(err) != rung.KindUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(state, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

func TestOneCreatorWins(t *testing.T) {
	d, _ := made(t)
	var won atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			err := d.Create("key", fmt.Appendf(nil, "key of %02d", i))
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
			if got, err := d.Read("key", 64); err != nil || !strings.HasPrefix(string(got), "key of ") || len(got) != 9 {
				t.Errorf("half a key: %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d winners", won.Load())
	}
	if left, _ := d.Names(""); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestSweepTakesOnlyTheOld(t *testing.T) {
	d, path := made(t)
	old, young := filepath.Join(path, newMark+"old"), filepath.Join(path, newMark+"young")
	then := time.Now().Add(-2 * stale)
	for _, err := range []error{os.WriteFile(old, nil, 0o600), os.WriteFile(young, nil, 0o600), os.Chtimes(old, then, then)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d.Sweep()
	if _, err := os.Lstat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the old one is there")
	}
	if _, err := os.Lstat(young); err != nil {
		t.Error("the young one is gone")
	}
}

func TestLock(t *testing.T) {
	d, _ := made(t)
	first, err := d.Lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Lock(gone, true); rung.KindOf(err) != rung.KindTimeout {
		t.Errorf("alone beside two: %v", err)
	}
	first()
	second()
	alone, err := d.Lock(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	alone()
}
