package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"v": "v", "v\n": "v", "v\r\n": "v", "v\n\n": "v\n", "a\nb\n": "a\nb", " v ": " v ", "v\r": "v\r",
		"": "", "\n": "", "a\x00b": "",
		strings.Repeat("x", rung.MaxSecretValue) + "\r\n":   strings.Repeat("x", rung.MaxSecretValue),
		strings.Repeat("x", rung.MaxSecretValue+1):          "",
		strings.Repeat("x", rung.MaxSecretValue) + "\r\n\n": "",
	} {
		got, err := Read(strings.NewReader(text))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%.20q (%d): %.20q (%d), %v", text, len(text), string(got), len(got), err)
		}
	}
}

func TestFileAndEnv(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(file, []byte("value\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if v, err := File(file); err != nil || string(v) != "value" {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{dir, pipe, filepath.Join(dir, "none"), "/dev/zero"} {
		if _, err := File(bad); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	t.Setenv("RUNG_TEST_VALUE", "v")
	if v, err := Env("RUNG_TEST_VALUE"); err != nil || string(v) != "v" {
		t.Errorf("%v", err)
	}
	if _, err := Env("RUNG_TEST_NO_VALUE"); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("%v", err)
	}
}

func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"op read op://v/i/f":    {"op", "read", "op://v/i/f"},
		`a  'b c' "d \"e\" \n"`: {"a", "b c", `d "e" \n`},
		`a\ b '' ""`:            {"a b", "", ""},
		`a "x'y" 'x"$y|'`:       {"a", "x'y", `x"$y|`},
		"get -f=a#b c~":         {"get", "-f=a#b", "c~"},
	} {
		if got, err := Split(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "  ", "''", "'a", `"a`, `a\`, "a | b", "a; b", "a $(b)", "a `b`", "a > b", "a *", "a\nb", "a\x00", "~/x", strings.Repeat("a", maxCommand+1)} {
		if got, err := Split(bad); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

func shell(script string, env ...string) Exec {
	return Exec{Argv: []string{"/bin/sh", "-c", script}, Env: env}
}

func TestExec(t *testing.T) {
	t.Setenv("RUNG_TEST_GIVEN", "given")
	t.Setenv("RUNG_TEST_KEPT", "kept")
	v, err := shell(`echo "$RUNG_TEST_GIVEN.$RUNG_TEST_KEPT."; test ! -t 0; cat`, "RUNG_TEST_GIVEN").Run(t.Context())
	if err != nil || string(v) != "given.." {
		t.Errorf("%q, %v", string(v), err)
	}
	if _, err := NewExec("sh -c true", []string{"A=b"}); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("%v", err)
	}
	e, err := NewExec("sh -c 'echo x'", nil)
	if err != nil || !filepath.IsAbs(e.Argv[0]) {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := NewExec("no-such-program-here", nil); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("%v", err)
	}
}

func TestExecFails(t *testing.T) {
	const value = "s3cr3t-value-0123"
	t.Setenv("RUNG_TEST_TOKEN", "tok-en")
	for script, kind := range map[string]rung.Kind{
		"exit 3": rung.KindUnavailable,
		"echo " + value + "; echo bad " + value + " >&2; exit 1": rung.KindUnavailable,
		"echo session $RUNG_TEST_TOKEN is over >&2; exit 1":      rung.KindUnavailable,
		"true":                           rung.KindInvalid,
		"cat /dev/zero":                  rung.KindInvalid,
		"yes":                            rung.KindInvalid,
		"yes >&2 & yes | head -c 70000":  rung.KindInvalid,
		"kill -9 $$":                     rung.KindUnavailable,
		"setsid sleep 5 & echo " + value: rung.KindInvalid,
	} {
		v, err := shell(script, "RUNG_TEST_TOKEN").Run(t.Context())
		if v != nil || rung.KindOf(err) != kind {
			t.Errorf("%s: %v", script, err)
			continue
		}
		text := err.Error() + rung.HintOf(err)
		if strings.Contains(text, value) || strings.Contains(text, "tok-en") || len(text) > 600 {
			t.Errorf("%s: shows %s", script, text)
		}
	}
}

func TestExecHangs(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := shell("echo $$ > " + dir + "/pid; sleep 300 & trap '' TERM; while :; do sleep 300; done").Run(ctx)
	if rung.KindOf(err) != rung.KindTimeout || time.Since(begin) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"plain words here":                      "plain words here",
		"token=ghp_0123456789abcdef is expired": "[redacted] is expired",
		"\x1b[31mred\x07\nnext":                 `\x1b[31mred\a next`,
		"a-very-long-hyphenated-word":           "a-very-long-hyphenated-word",
		"value abc":                             "value [redacted]",
	} {
		if got := redact(text, []string{"abc\n"}); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`op read "op://v/i f" 'x'`)
	f.Fuzz(func(t *testing.T, text string) {
		if words, err := Split(text); err == nil && len(words) == 0 {
			t.Errorf("%q: nothing and no error", text)
		}
	})
}
