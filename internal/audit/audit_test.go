package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func sample(id string) *rung.Record {
	return &rung.Record{
		ID: id, Rung: rung.GVisor, Threat: rung.Generated, Template: "host", Command: []string{"sh", "-c", "a && b <c>"},
		Started: time.Date(2026, 11, 29, 23, 59, 1, 5, time.UTC), ExitReason: rung.Exited, Stdout: "é\n\x01\u2028\"\\/ 😀\x7f\b",
		Limits: rung.DefaultLimits(), Denied: []rung.Denied{{Syscall: "bpf", Args: []uint64{1<<64 - 1}, Count: 3}},
		Isolation: &rung.Isolation{UID: 1000, CPUMax: 1.5, Namespaces: map[string]bool{"net": true, "pid": true}},
	}
}

func signed(t testing.TB, s *Store) []byte {
	t.Helper()
	rec := sample("one")
	if err := s.Sign(rec); err != nil {
		t.Fatal(err)
	}
	text, err := Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSignedRecordsVerifyInEverySpelling(t *testing.T) {
	s := open(t)
	text := signed(t, s)
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "\t", "  "); err != nil {
		t.Fatal(err)
	}
	var escaped bytes.Buffer
	json.HTMLEscape(&escaped, text)
	for name, form := range map[string][]byte{
		"as written": text, "indented": indented.Bytes(), "HTML escaped": escaped.Bytes(),
		"slash escaped":     bytes.ReplaceAll(text, []byte(`/ `), []byte(`\/ `)),
		"surrogate escaped": bytes.ReplaceAll(text, []byte("😀"), []byte(`\uD83d\ude00`)),
		"key escaped":       bytes.Replace(text, []byte(`"signature"`), []byte(`"\u0073ignature"`), 1),
	} {
		if err := s.Verify(form); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every byte is changed in turn. The result must fail, unless it is nothing but another spelling of the same text.
func TestEveryChangedByteFails(t *testing.T) {
	s := open(t)
	text := signed(t, s)
	for i := range text {
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			bad := bytes.Clone(text)
			bad[i] ^= bit
			if err := s.Verify(bad); err == nil && !sameText(text, bad) {
				t.Fatalf("byte %d (%q to %q) passed: %s", i, text[i], bad[i], bad[max(0, i-20):min(len(bad), i+20)])
			}
		}
		if err := s.Verify(append(bytes.Clone(text[:i]), text[i+1:]...)); err == nil && i < len(text)-1 {
			t.Fatalf("byte %d left out passed", i)
		}
	}
}

func sameText(a, b []byte) bool {
	one, sig, err := canonical(a)
	two, sig2, err2 := canonical(b)
	return err == nil && err2 == nil && bytes.Equal(one, two) && bytes.Equal(sig, sig2)
}

func TestTampering(t *testing.T) {
	s := open(t)
	text := string(signed(t, s))
	for name, bad := range map[string]string{
		"a member added":            strings.Replace(text, `{"id"`, `{"extra":1,"id"`, 1),
		"a duplicate added":         strings.Replace(text, `"rung":"gvisor"`, `"rung":"gvisor","rung":"microvm"`, 1),
		"members swapped":           strings.Replace(text, `"id":"one","rung":"gvisor"`, `"rung":"gvisor","id":"one"`, 1),
		"a number respelled":        strings.Replace(text, `"cpu_max":1.5`, `"cpu_max":1.50`, 1),
		"an integer beyond a float": strings.Replace(text, "18446744073709551615", "18446744073709551614", 1),
		"a nested signature":        strings.Replace(text, `"namespaces":{`, `"namespaces":{"signature":true,`, 1),
		"a second signature":        strings.Replace(text, `"signature":{`, `"signature":{"key":"","value":""},"signature":{`, 1),
		"no signature":              text[:strings.Index(text, `,"signature"`)] + "}",
		"a null signature":          text[:strings.Index(text, `"signature"`)] + `"signature":null}`,
		"a note in the signature":   strings.Replace(text, `"value"`, `"note":1,"value"`, 1),
		"a respelled signature key": strings.Replace(text, `"value"`, `"Value"`, 1),
		"a line break in base64":    strings.Replace(text, `"value":"`, `"value":"\n`, 1),
		"two records":               text + text,
		"an array":                  "[" + text + "]",
		"half a surrogate pair":     strings.Replace(text, "é", `\ud800`, 1),
		"two high surrogates":       strings.Replace(text, "é", `\ud800\ud800`, 1),
		"invalid UTF-8":             strings.Replace(text, "é", "\xff", 1),
		"nothing":                   "",
		"too deep":                  strings.Repeat("[", 20000),
	} {
		if bad == text {
			t.Fatalf("%s: the sample lacks the place to change", name)
		}
		if err := s.Verify([]byte(bad)); rung.KindOf(err) != rung.KindUnverified {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownMembersAreCovered(t *testing.T) {
	s := open(t)
	k, err := s.loadKey()
	if err != nil {
		t.Fatal(err)
	}
	body := `{"id":"x","from_the_future":{"a":[1,"},{"]}}`
	form, _, err := canonical([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	sig, err := json.Marshal(rung.Signature{Key: k.text, Value: encoding.EncodeToString(k.sign(form))})
	if err != nil {
		t.Fatal(err)
	}
	text := `{"signature":` + string(sig) + "," + body[1:]
	if err := s.Verify([]byte(text)); err != nil {
		t.Errorf("a signature in front: %v", err)
	}
	if err := s.Verify([]byte(strings.Replace(text, "},{", "},[", 1))); err == nil {
		t.Error("an unknown member was changed and passed")
	}
}

func TestAnotherKeyIsNotTrusted(t *testing.T) {
	a, b := open(t), open(t)
	if err := b.Verify(signed(t, a)); rung.KindOf(err) != rung.KindUnverified || !strings.Contains(err.Error(), "another key") {
		t.Error(err)
	}
}

func TestKeyFile(t *testing.T) {
	s := open(t)
	text := signed(t, s)
	file := filepath.Join(s.dir, keyFile)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	again, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Verify(text); err != nil {
		t.Errorf("the key was not kept: %v", err)
	}
	for name, spoil := range map[string]func() error{
		"readable by others": func() error { return os.Chmod(file, 0o644) },
		"damaged":            func() error { return errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, []byte("x"), 0o600)) },
		"a link":             func() error { return errors.Join(os.Remove(file), os.Symlink("/dev/zero", file)) },
		"a FIFO":             func() error { return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(name, err)
		}
		fresh, err := Open(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh.Sign(sample("x")); err == nil {
			t.Errorf("%s: a key was used or replaced", name)
		}
		fresh.Close()
		if name == "damaged" { // map order is random: leave a plain file for the others
			continue
		}
		os.Remove(file)
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Sixteen processes meet an empty directory at once: one key comes out, and each one's signature verifies with it.
func TestConcurrentFirstUseMakesOneKey(t *testing.T) {
	if dir := os.Getenv("AUDIT_FIRST_USE"); dir != "" {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Save(sample(fmt.Sprintf("p%d", os.Getpid()))); err != nil {
			t.Fatal(err)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "state")
	var cmds []*exec.Cmd
	for range 16 {
		cmd := exec.Command(self, "-test.run=^TestConcurrentFirstUseMakesOneKey$")
		cmd.Env = append(os.Environ(), "AUDIT_FIRST_USE="+dir)
		cmd.Stdout = &bytes.Buffer{}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, cmd.Stdout)
		}
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List(0)
	if err != nil || len(list) != 16 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	for _, e := range list {
		text, err := s.Load(e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(text); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "keys", ".new-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func FuzzVerify(f *testing.F) {
	s := open(f)
	text := signed(f, s)
	public, err := s.PublicKey()
	if err != nil {
		f.Fatal(err)
	}
	want, _, err := canonical(text)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"signature":{"key":"","value":""},"a":"\ud83d\ude00\/"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := Verify(b, public); err == nil {
			if got, _, _ := canonical(b); !bytes.Equal(got, want) {
				t.Errorf("another text verifies: %s", b)
			}
		}
		form, _, err := canonical(b)
		if err != nil {
			return
		}
		if !json.Valid(form) {
			t.Errorf("the signed form of %s is not JSON: %s", b, form)
		}
		if again, _, err := canonical(form); err != nil || !bytes.Equal(again, form) {
			t.Errorf("the signed form is not stable: %s then %s (%v)", form, again, err)
		}
	})
}
