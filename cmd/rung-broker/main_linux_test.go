package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

const value = "s3cr3t-val/ue-0123456789+zyx"

// TestMain is rung-broker itself where the tests start it.
func TestMain(m *testing.M) {
	switch os.Getenv("RUNG_BROKER_TEST") {
	case "main":
		main()
	case "harden":
		err := harden()
		dumpable, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		var core unix.Rlimit
		err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_CORE, &core))
		fmt.Println(dumpable, core.Cur, core.Max, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// host is a state directory, and everything that was ever printed about it.
type host struct {
	t       *testing.T
	dir     string
	printed bytes.Buffer
}

func newHost(t *testing.T) *host { return &host{t: t, dir: t.TempDir()} }

func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "RUNG_BROKER_TEST=main", "RUNG_STATE_DIR="+h.dir+"/state", "RUNG_RUNTIME_DIR="+h.dir+"/run", "VALUE="+value)
	return cmd
}

// run returns what was printed, and the exit code.
func (h *host) run(stdin string, args ...string) (string, int) {
	h.t.Helper()
	cmd := h.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	h.printed.Write(out)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return string(out), 0
}

func (h *host) must(stdin string, args ...string) string {
	h.t.Helper()
	out, code := h.run(stdin, args...)
	if code != 0 {
		h.t.Fatalf("%v: exit code %d: %s", args, code, out)
	}
	return out
}

func (h *host) fails(want string, args ...string) {
	h.t.Helper()
	if out, code := h.run("", args...); code != rung.ExitError || !strings.Contains(out, want) {
		h.t.Errorf("%v: exit code %d, %s", args, code, out)
	}
}

// search fails for a value in any form, in what was printed and in every file.
func (h *host) search() {
	h.t.Helper()
	look := func(where string, text []byte) {
		for _, form := range []string{
			value, url.QueryEscape(value), hex.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte(value))[:36],
			base64.StdEncoding.EncodeToString([]byte("x" + value))[4:36], base64.StdEncoding.EncodeToString([]byte("xx" + value))[4:36], "s3cr3t-val",
		} {
			if bytes.Contains(text, []byte(form)) {
				h.t.Errorf("%s has the value as %s: %.500q", where, form, text)
			}
		}
	}
	look("the output", h.printed.Bytes())
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "given") {
			return err
		}
		text, err := os.ReadFile(path)
		look(path, text)
		return err
	})
	if err != nil {
		h.t.Error(err)
	}
}

func TestValuesAreNowhere(t *testing.T) {
	h := newHost(t)
	given := h.dir + "/given"
	if err := os.WriteFile(given, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.must(value+"\n", "secret", "add", "A")
	h.must("", "secret", "add", "B", "--from-env", "VALUE")
	h.must("", "secret", "add", "C", "--from-file", given)
	h.must("", "secret", "add", "D", "--exec", "cat "+given)
	h.must("", "secret", "add", "E", "--exec", "sh -c 'echo $VALUE; echo bad $VALUE >&2; exit 1'", "--exec-env", "VALUE")
	h.fails("a value is never given", "secret", "add", "F", value)
	h.fails("a value is never given", "secret", "add", "F", "--", value)
	h.fails("not repeated", "secret", "add", "F", "--value="+value)
	h.fails("not repeated", "secret", "add", "F", "--"+value)
	h.fails("a secret's name", "secret", "add", "F="+value)
	h.fails("not set", "secret", "add", "F", "--from-env", value)
	h.fails("exists", "secret", "add", "A", "--from-env", "VALUE")
	h.fails("a secret's name", "secret", "rm", value)
	h.fails("a secret's name", "secret", "check", value)
	h.must(value, "secret", "add", "A", "--replace")
	if out := h.must("", "secret", "check", "A", "B", "C", "D"); strings.Count(out, ": ok") != 4 {
		t.Errorf("%s", out)
	}
	h.fails("[redacted]", "secret", "check", "E")
	var list []map[string]any
	if err := json.Unmarshal([]byte(h.must("", "secret", "list", "--json")), &list); err != nil || len(list) != 5 {
		t.Errorf("%v, %v", list, err)
	}
	h.must("", "secret", "list")
	h.must("", "secret", "rm", "A", "B")
	h.fails("no secret A", "secret", "rm", "A")
	h.search()
}

func TestHardened(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "RUNG_BROKER_TEST=harden")
	if out, err := cmd.Output(); err != nil || string(out) != "0 0 0 <nil>\n" {
		t.Errorf("%s, %v", out, err)
	}
	h := newHost(t)
	h.must("", "secret", "add", "LIMIT", "--exec", "sh -c 'test $(ulimit -Hc) = 0 && echo none'")
	if out := h.must("", "secret", "check"); !strings.Contains(out, "LIMIT: ok") {
		t.Errorf("a source's program may dump core: %s", out)
	}
}

// TestLease is the whole way of a value: standard input, file, lease, socket.
func TestLease(t *testing.T) {
	h := newHost(t)
	h.must(value, "secret", "add", "A")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	gate, theirs := os.NewFile(uintptr(pair[0]), "gate"), os.NewFile(uintptr(pair[1]), "theirs")
	defer gate.Close()
	cmd := h.command("lease")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdin = strings.NewReader(`{"sandbox":"r1","agent":"a","ttl_ns":60000000000,"bindings":[{"name":"A","hosts":["h.example"]}]}`)
	out, err := cmd.CombinedOutput()
	theirs.Close()
	h.printed.Write(out)
	if err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	message, err := io.ReadAll(gate)
	if err != nil || len(message) < 4 || int(binary.BigEndian.Uint32(message)) != len(message)-4 ||
		!bytes.Contains(message, []byte(base64.StdEncoding.EncodeToString([]byte(value)))) {
		t.Errorf("the gate did not get the value: %v", err)
	}
	var a struct {
		Secrets []struct{ Name, Placeholder string }
	}
	if err := json.Unmarshal(out, &a); err != nil || len(a.Secrets) != 1 || !rung.IsPlaceholder(a.Secrets[0].Placeholder) {
		t.Errorf("%s, %v", out, err)
	}
	h.search()
}

// TestLeaseGoesToASocketOnly: a file or a pipe would keep the values.
func TestLeaseGoesToASocketOnly(t *testing.T) {
	h := newHost(t)
	h.must(value, "secret", "add", "A")
	f, err := os.OpenFile(h.dir+"/out", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, extra := range [][]*os.File{nil, {f}} {
		cmd := h.command("lease")
		cmd.ExtraFiles = extra
		cmd.Stdin = strings.NewReader(`{"sandbox":"r1","agent":"a","ttl_ns":60000000000,"bindings":[{"name":"A","hosts":["h.example"]}]}`)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "RUNG_RUNTIME_DIR=") })
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no connection to a gate") ||
			!strings.Contains(string(out), `{"failed":{"kind":"invalid"`) {
			t.Errorf("%s, %v", out, err)
		}
	}
	h.search()
}

func TestAgents(t *testing.T) {
	h := newHost(t)
	if out := h.must("", "agent", "show", "a"); !strings.Contains(out, `"revoked":false`) {
		t.Errorf("%s", out)
	}
	var r struct {
		Agent    string
		Complete bool
		Zero     float64 `json:"time_to_zero_ms"`
	}
	if err := json.Unmarshal([]byte(h.must("", "agent", "revoke", "a", "--reason", "why\x1b[31m", "--json")), &r); err != nil || !r.Complete || r.Zero <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if out := h.must("", "agent", "revoke", "b"); !strings.Contains(out, "time to zero: ") || !strings.Contains(out, " ms\n") {
		t.Errorf("%s", out)
	}
	if out := h.must("", "agent", "list"); strings.Count(out, "revoked") != 2 {
		t.Errorf("%s", out)
	}
	if out := h.must("", "agent", "show", "a"); !strings.Contains(out, `"revoked":true`) || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	h.must("", "agent", "restore", "a")
	h.fails("not revoked", "agent", "restore", "a")
	h.fails("name", "agent", "revoke", "../x")
	if out := h.must("", "agent", "jwks"); !strings.Contains(out, `"OKP"`) || strings.Contains(out, `"d"`) {
		t.Errorf("%s", out)
	}
}
