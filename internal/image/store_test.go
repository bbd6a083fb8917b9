package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

// put commits a small template.
func put(t *testing.T, s *Store, name, content string) {
	t.Helper()
	b, err := s.Begin(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	if err := os.WriteFile(filepath.Join(b.Root, "content"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	bundle := Bind{Source: filepath.Join(b.Dir, "below"), Target: "/below"}
	if err := b.Commit(Template{Kind: OCI, Digest: "sha256:" + content, Binds: []Bind{bundle}, Packages: []string{"a=1", "b=2"}}); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, tpl Template) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tpl.Root, "content"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// leftovers lists what is in the store besides templates.
func leftovers(t *testing.T, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if isTemp(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list
}

func TestStoreLife(t *testing.T) {
	s := Open(t.TempDir())
	_, err := s.Get(t.Context(), "python")
	if rung.KindOf(err) != rung.KindNotFound || !strings.Contains(rung.HintOf(err), "rung template build python") {
		t.Fatalf("get before build: %v, hint %q", err, rung.HintOf(err))
	}
	put(t, s, "python", "one")
	tpl, err := s.Get(t.Context(), "python")
	if err != nil || content(t, tpl) != "one" || tpl.Binds[0].Source != filepath.Join(s.Dir(), "python", "below") {
		t.Fatalf("got %+v, %v", tpl, err)
	}
	in, err := s.Inspect(t.Context(), "python")
	if err != nil || in.Bytes != 3 || in.InUse || len(in.Packages) != 2 {
		t.Fatalf("inspect: %+v, %v", in, err)
	}
	if err := s.Remove(t.Context(), "python"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "python"); rung.KindOf(err) != rung.KindNotFound {
		t.Fatalf("second remove: %v", err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Fatalf("left: %v", l)
	}
}

func TestNames(t *testing.T) {
	s := Open(t.TempDir())
	for _, name := range []string{"", "..", ".locks", "a/b", "A", "a\x00", strings.Repeat("a", 65), "../../etc"} {
		if _, err := s.Get(t.Context(), name); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("Get(%q): %v", name, err)
		}
		if _, err := s.Begin(t.Context(), name); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("Begin(%q): %v", name, err)
		}
		if err := s.Remove(t.Context(), name); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("Remove(%q): %v", name, err)
		}
	}
	if _, err := s.Begin(t.Context(), HostName); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("Begin(host): %v", err)
	}
}

func TestInUse(t *testing.T) {
	s := Open(t.TempDir())
	put(t, s, "a", "one")
	tpl, release, err := s.Use(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "a"); rung.KindOf(err) != rung.KindConflict {
		t.Fatalf("remove in use: %v", err)
	}
	if in, err := s.Inspect(t.Context(), "a"); err != nil || !in.InUse {
		t.Fatalf("inspect in use: %+v, %v", in, err)
	}
	root, err := os.OpenRoot(tpl.Root) // as a mount does: by the directory, not by its name
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	put(t, s, "a", "two") // replaces the name, keeps the tree in use
	if data, err := root.ReadFile("content"); err != nil || string(data) != "one" {
		t.Fatalf("the tree in use changed: %q, %v", data, err)
	}
	if tpl, err := s.Get(t.Context(), "a"); err != nil || content(t, tpl) != "two" {
		t.Fatalf("after replacement: %+v, %v", tpl, err)
	}
	if l := leftovers(t, s); len(l) != 1 {
		t.Fatalf("expected the old tree, found %v", l)
	}
	release()
	if _, err := s.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Fatalf("old tree stays after its last user: %v", l)
	}
}

func TestAbandonedBuild(t *testing.T) {
	s := Open(t.TempDir())
	alive, err := s.Begin(t.Context(), "alive")
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Abort()
	dead, err := s.Begin(t.Context(), "dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dead.Root, "ro", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dead.Root, "ro"), 0o555); err != nil {
		t.Fatal(err)
	}
	dead.unlock() // what the kernel does when a builder is killed
	if err := os.Mkdir(filepath.Join(s.Dir(), ".old-lockless"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, s, "other", "x")
	if l := leftovers(t, s); len(l) != 1 || filepath.Join(s.Dir(), l[0]) != alive.Dir {
		t.Fatalf("left %v, want only %s", l, alive.Dir)
	}
	if _, err := s.Get(t.Context(), "dead"); rung.KindOf(err) != rung.KindNotFound {
		t.Fatalf("half a template is visible: %v", err)
	}
}

func TestSecondBuilderWaits(t *testing.T) {
	s := Open(t.TempDir())
	b, err := s.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Begin(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("second builder: %v", err)
	}
}

// Readers beside builders and removers never see half a template: either a whole one or none.
func TestRace(t *testing.T) {
	s := Open(t.TempDir())
	put(t, s, "a", "0")
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 20 {
				put(t, s, "a", fmt.Sprint(w, i))
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 100 {
				tpl, release, err := s.Use(t.Context(), "a")
				if err != nil {
					t.Errorf("use: %v", err)
					return
				}
				// The tree may have been swapped for a newer one between the two reads, never for nothing.
				if _, err := os.Stat(filepath.Join(tpl.Root, "content")); err != nil {
					t.Errorf("use: %v", err)
				}
				release()
			}
		})
	}
	wg.Wait()
	if _, err := s.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Fatalf("left: %v", l)
	}
}

func TestDamage(t *testing.T) {
	s := Open(t.TempDir())
	put(t, s, "a", "x")
	file := filepath.Join(s.Dir(), "a", "template.json")
	for _, text := range []string{"", "{", `{"format":1,"name":"b"}`, `{"format":99,"name":"a"}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "a"); err == nil || rung.KindOf(err) == rung.KindNotFound {
			t.Errorf("%q: %v", text, err)
		}
	}
	list, err := s.List(t.Context())
	if err == nil || len(list) != 1 || list[0].Name != HostName {
		t.Errorf("list beside damage: %v, %v", list, err)
	}
	if err := s.Remove(t.Context(), "a"); err != nil {
		t.Errorf("remove of a damaged template: %v", err)
	}
}
