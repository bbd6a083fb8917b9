package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/source"
)

const value = "s3cr3t-value-0123456789"

func opened(t *testing.T) (*Store, string) {
	t.Helper()
	state := t.TempDir()
	s, err := Open(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, filepath.Join(state, "secrets")
}

func add(t *testing.T, s *Store, name, text string) {
	t.Helper()
	if err := s.Add(t.Context(), name, FromStdin, rung.SecretValue(text), false); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) value(t *testing.T, name string) (string, error) {
	t.Helper()
	all, err := s.Values(t.Context(), []string{name, name})
	return string(all[name]), err
}

func TestLifeOfASecret(t *testing.T) {
	s, dir := opened(t)
	if _, err := s.value(t, "TOKEN"); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("before: %v", err)
	}
	given := rung.SecretValue(value)
	if err := s.Add(t.Context(), "TOKEN", FromStdin, given, false); err != nil {
		t.Fatal(err)
	}
	if string(given) == value {
		t.Error("Add left the value in its caller's memory")
	}
	if got, err := s.value(t, "TOKEN"); err != nil || got != value {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Add(t.Context(), "TOKEN", FromStdin, rung.SecretValue("other"), false); rung.KindOf(err) != rung.KindExists {
		t.Errorf("a second one: %v", err)
	}
	if err := s.Add(t.Context(), "TOKEN", FromEnv, rung.SecretValue("newer"), true); err != nil {
		t.Error(err)
	}
	if err := s.AddExec(t.Context(), "MADE", source.Exec{Argv: []string{"/bin/echo", "made"}}, false); err != nil {
		t.Fatal(err)
	}
	all, err := s.Values(t.Context(), []string{"TOKEN", "MADE"})
	if err != nil || string(all["TOKEN"]) != "newer" || string(all["MADE"]) != "made" {
		t.Errorf("%v, %v", all, err)
	}
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].Name != "MADE" || list[0].From != "/bin/echo" || list[1].Kind != FromEnv || list[1].Created.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Remove(t.Context(), "TOKEN"); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), "TOKEN"); rung.KindOf(err) != rung.KindNotFound {
		t.Errorf("removed twice: %v", err)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode() != 0o600 || strings.HasPrefix(f.Name(), "TOKEN") {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// TestAtRest: no file holds a value in any plain form.
func TestAtRest(t *testing.T) {
	s, dir := opened(t)
	add(t, s, "A", value)
	if err := s.AddExec(t.Context(), "B", source.Exec{Argv: []string{"/bin/echo", value}}, false); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("s3cr3t")) || bytes.Contains(data, []byte("czNjcjN0")) {
			t.Errorf("%s has the value", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHostileState(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"truncated": func(dir string) error {
			st, err := os.Stat(dir + "/A.age")
			return errors.Join(err, os.Truncate(dir+"/A.age", st.Size()-1))
		},
		"cut to the header": func(dir string) error { return os.Truncate(dir+"/A.age", 180) },
		"empty":             func(dir string) error { return os.Truncate(dir+"/A.age", 0) },
		"huge":              func(dir string) error { return os.Truncate(dir+"/A.age", 1<<40) },
		"flipped": func(dir string) error {
			data, err := os.ReadFile(dir + "/A.age")
			data[len(data)-3] ^= 1
			return errors.Join(err, os.WriteFile(dir+"/A.age", data, 0o600))
		},
		"another secret's": func(dir string) error {
			data, err := os.ReadFile(dir + "/B.age")
			return errors.Join(err, os.WriteFile(dir+"/A.age", data, 0o600))
		},
		"plain text":       func(dir string) error { return os.WriteFile(dir+"/A.age", []byte(value), 0o600) },
		"readable":         func(dir string) error { return os.Chmod(dir+"/A.age", 0o644) },
		"a link":           func(dir string) error { return errors.Join(os.Remove(dir+"/A.age"), os.Symlink("B.age", dir+"/A.age")) },
		"a directory":      func(dir string) error { return errors.Join(os.Remove(dir+"/A.age"), os.Mkdir(dir+"/A.age", 0o700)) },
		"key gone":         func(dir string) error { return os.Remove(dir + "/key") },
		"key readable":     func(dir string) error { return os.Chmod(dir+"/key", 0o640) },
		"key damaged":      func(dir string) error { return os.WriteFile(dir+"/key", []byte(keyMark+"AGE-SECRET-KEY-1XYZ"), 0o600) },
		"key of something": func(dir string) error { return os.WriteFile(dir+"/key", []byte("ssh-ed25519 AAAA"), 0o600) },
		"key a link": func(dir string) error {
			return errors.Join(os.Rename(dir+"/key", dir+"/else"), os.Symlink("else", dir+"/key"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := opened(t)
			add(t, s, "A", value)
			add(t, s, "B", "b")
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			got, err := s.value(t, "A")
			if got != "" || rung.KindOf(err) != rung.KindUnavailable || rung.HintOf(err) == "" && name != "huge" {
				t.Errorf("%q, %v (%s)", got, err, rung.HintOf(err))
			}
			if text := fmt.Sprint(err, rung.HintOf(err)); strings.Contains(text, value) || strings.Contains(text, "SECRET-KEY") {
				t.Errorf("the error tells too much: %s", text)
			}
			if strings.HasPrefix(name, "key") {
				if err := s.Add(t.Context(), "C", FromStdin, rung.SecretValue("c"), false); rung.KindOf(err) != rung.KindUnavailable {
					t.Errorf("a new key beside what the old one encrypted: %v", err)
				}
			}
		})
	}
}

func TestDirectoryOfOthers(t *testing.T) {
	state := t.TempDir()
	if err := os.Mkdir(state+"/secrets", 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(state); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("%v", err)
	}
}

func TestConcurrentAdds(t *testing.T) {
	state := t.TempDir()
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 16 {
		all.Go(func() {
			s, err := Open(state) // as another process would
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Add(t.Context(), fmt.Sprintf("S%d", i), FromStdin, rung.SecretValue(fmt.Sprint("v", i)), false); err != nil {
				t.Error(err)
			}
			switch err := s.Add(t.Context(), "SAME", FromStdin, rung.SecretValue("same"), false); rung.KindOf(err) {
			case "":
				mu.Lock()
				won++
				mu.Unlock()
			case rung.KindExists:
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	s, err := Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 16 {
		if got, err := s.value(t, fmt.Sprintf("S%d", i)); err != nil || got != fmt.Sprint("v", i) {
			t.Errorf("S%d: %q, %v", i, got, err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 16 added the same", won)
	}
}

func TestOneFailureEndsAll(t *testing.T) {
	s, _ := opened(t)
	add(t, s, "GOOD", value)
	for name, script := range map[string]string{"BAD": "exit 1", "SLOW": "sleep 30"} {
		if err := s.AddExec(t.Context(), name, source.Exec{Argv: []string{"/bin/sh", "-c", script}}, false); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Values(t.Context(), []string{"SLOW", "GOOD", "BAD"})
	if got != nil || rung.KindOf(err) != rung.KindUnavailable || !strings.Contains(fmt.Sprint(err), "BAD") {
		t.Errorf("%v, %v", got, err)
	}
}
