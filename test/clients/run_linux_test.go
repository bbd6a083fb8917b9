package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

// patience bounds one run of rung; Python in gVisor starts slowly on a busy machine.
const patience = 4 * time.Minute

// row is one run: a client and what becomes of it.
type row struct {
	name     string
	flags    []string
	policy   string // a policy file's text, "" for none
	in       []string
	script   string   // for sh, in /work
	code     int      // -1: any but 0, -2: any
	out      string   // a pattern that standard output or error of the client matches
	refused  []string // hosts that the record and the log must have as refused; * is any
	hint     string   // what rung must say would help
	packages []string // name@version, each must be in the record with a digest
	only     []string // rungs, none for all
}

func rungs() []string { return []string{"process", "container", "hardened", "gvisor"} }

// place is where rung runs: its state, and its environment.
type place struct {
	dir, bin string
	env      []string
	user     *syscall.Credential // nil for this process's own
}

var builtAsk = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "rcask")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/ask", "./ask")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir + "/ask", os.Chmod(dir, 0o755)
})

// newPlace makes state of its own, so that a gate of its own serves it.
func newPlace(t *testing.T, env ...string) *place {
	t.Helper()
	bin := os.Getenv("RUNG_BIN")
	if bin == "" {
		t.Skip("RUNG_BIN does not name rung's programs (make unit does)")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root has every rung")
	}
	dir, err := os.MkdirTemp("/tmp", "rc") // short, and open to everybody who must pass: see unix(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &place{dir: dir, bin: bin}
	p.env = append(append(os.Environ(), "RUNG_GATE_LINGER=2s", "RUNG_STATE_DIR="+dir+"/state", "RUNG_RUNTIME_DIR="+dir+"/run",
		"PATH="+bin+":"+os.Getenv("PATH")), env...)
	return p
}

// asUser is the same place for an ordinary user, or a skip where there is none.
func (p *place) asUser(t *testing.T) *place {
	t.Helper()
	name := os.Getenv("RUNG_TEST_USER")
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("no ordinary user: RUNG_TEST_USER=%s: %v", name, err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	own := filepath.Join(p.dir, "u")
	if err := errors.Join(err1, err2, os.MkdirAll(own, 0o755), os.Chown(own, uid, gid)); err != nil {
		t.Fatal(err)
	}
	q := &place{dir: own, bin: p.bin, user: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	q.env = append(slices.Clone(p.env), "HOME="+u.HomeDir, "USER="+name, "RUNG_STATE_DIR="+own+"/state", "RUNG_RUNTIME_DIR="+own+"/run")
	return q
}

// result is what one run came to.
type result struct {
	code     int
	out, err string
	record   struct {
		ID      string        `json:"id"`
		Denied  []rung.Denied `json:"denied"`
		Network *rung.Network `json:"network"`
	}
	log string
}

// rung runs one command of rung's.
func (p *place) rung(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "rung"), args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.dir, time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("rung %q: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

var recordLine = regexp.MustCompile(`(?m)^rung: \w+, template .*; record: (/\S+)$`)

func (p *place) run(t *testing.T, on string, r row) result {
	t.Helper()
	args := []string{"run", "--threat", "trusted", "--rung", on, "--accept-lower", on, "--timeout", "3m"}
	if p.user != nil {
		args = append(args, "--best-effort-limits")
	}
	if r.policy != "" {
		file := filepath.Join(p.dir, "policy-"+strconv.FormatInt(time.Now().UnixNano(), 36)+".yaml")
		if err := os.WriteFile(file, []byte(r.policy), 0o644); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
		args = append(args, "--policy", file)
	}
	for _, in := range r.in {
		args = append(args, "--in", in)
	}
	args = append(append(args, r.flags...), "--", "sh", "-c", "export PATH=$PATH:/usr/local/go/bin; cd /work; "+r.script)
	var res result
	res.code, res.out, res.err = p.rung(t, args...)
	m := recordLine.FindStringSubmatch(res.err)
	if m == nil {
		t.Fatalf("no record: exit %d\n%s\n%s", res.code, res.out, res.err)
	}
	data, err := os.ReadFile(m[1])
	if err == nil {
		err = json.Unmarshal(data, &res.record)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, res.log, _ = p.rung(t, "log", "--json", "--sandbox", res.record.ID)
	return res
}

// check runs a row and says what is not as it must be.
func (p *place) check(t *testing.T, on string, r row) {
	t.Helper()
	if len(r.only) > 0 && !slices.Contains(r.only, on) {
		t.Skipf("not on %s", on)
	}
	res := p.run(t, on, r)
	bad := func(format string, args ...any) { t.Helper(); t.Errorf(format, args...) }
	switch {
	case r.code == -2:
	case r.code == -1 && res.code == 0, r.code >= 0 && res.code != r.code:
		bad("exit %d, want %d", res.code, r.code)
	}
	if r.out != "" && !regexp.MustCompile(r.out).MatchString(res.out+res.err) {
		bad("the output does not match %q", r.out)
	}
	for _, host := range r.refused {
		if !slices.ContainsFunc(res.record.Denied, func(d rung.Denied) bool { return d.Network != nil && (d.Network.Host == host || host == "*") }) {
			bad("the record has no refusal of %s", host)
		}
		if !hasEvent(res.log, host) {
			bad("the log has no event of %s", host)
		}
	}
	if len(r.refused) == 0 {
		for _, d := range res.record.Denied {
			if d.Network != nil {
				bad("refused: %+v", *d.Network)
			}
		}
	}
	if r.hint != "" && !strings.Contains(res.err, r.hint) {
		bad("rung does not say %q", r.hint)
	}
	for _, name := range r.packages {
		if res.record.Network == nil || !slices.ContainsFunc(res.record.Network.Packages, func(p rung.Package) bool {
			return p.Name+"@"+p.Version == name && strings.HasPrefix(p.Digest, "sha256:")
		}) {
			bad("the record has no package %s with its digest", name)
		}
	}
	if t.Failed() {
		t.Logf("exit %d\n%s\n%s\nrecord %+v %+v\n%s", res.code, res.out, res.err, res.record.Denied, res.record.Network, res.log)
	}
}

// hasEvent looks for a refused use of the network among events.
func hasEvent(log, host string) bool {
	for line := range strings.Lines(log) {
		var e struct {
			Kind, Decision string
			Fields         struct{ Host string }
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Kind == "net" && e.Decision == "deny" && (e.Fields.Host == host || host == "*") {
			return true
		}
	}
	return false
}
