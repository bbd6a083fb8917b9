//go:build linux

package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dirEnv is the folder with this run's programs; it says too that the tests are in their own network namespace.
const dirEnv = "RUNG_SECRETS_DIR"

func TestMain(m *testing.M) { os.Exit(stage(m)) }

// stage builds the programs and runs the tests again where no network is but what they make.
func stage(m *testing.M) int {
	if os.Getenv(dirEnv) != "" {
		if err := network(); err != nil {
			fmt.Fprintln(os.Stderr, "secrets: the network namespace:", err)
			return 1
		}
		return m.Run()
	}
	if os.Geteuid() != 0 {
		fmt.Println("skipped: only root can make a network namespace with addresses of its own")
		return 0
	}
	dir, err := os.MkdirTemp("/tmp", "rsec") // short: socket paths have little room
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Chmod(dir, 0o755), programs(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "secrets:", err)
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), dirEnv+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// programs puts rung's own into the folder, and the one that runs inside.
func programs(dir string) error {
	build := func(packages ...string) error {
		cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", dir + "/"}, packages...)...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		return cmd.Run()
	}
	if err := build("./inside"); err != nil {
		return err
	}
	from, err := filepath.Abs("../../bin")
	if bin := os.Getenv("RUNG_BIN"); bin != "" {
		from = bin
		for _, name := range []string{"rung", "rung-guest", "rung-gate", "rung-broker", "rung-image"} {
			err = errors.Join(err, os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)))
		}
	} else if err == nil {
		err = build("../../cmd/rung", "../../cmd/rung-guest", "../../cmd/rung-gate", "../../cmd/rung-broker", "../../cmd/rung-image")
	}
	runsc := filepath.Join(from, "runsc")
	if _, missing := os.Stat(runsc); missing == nil {
		err = errors.Join(err, os.Symlink(runsc, filepath.Join(dir, "runsc")))
	}
	return err
}

func program(name string) string { return filepath.Join(os.Getenv(dirEnv), name) }

// bound is how long any one command may take on a slow machine.
const bound = 3 * time.Minute

// house is one installation of rung: its state, its gate, its environment.
type house struct {
	*testing.T
	dir string
	env []string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rsh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // the gate ends by that, too
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := &house{T: t, dir: dir}
	if err := os.WriteFile(h.file("resolv.conf"), []byte("nameserver "+nameServer+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.file("ca.pem"), world.authority, 0o644); err != nil {
		t.Fatal(err)
	}
	h.env = []string{
		"PATH=" + os.Getenv(dirEnv) + ":" + os.Getenv("PATH"), "HOME=" + dir, "RUNG_STATE_DIR=" + h.file("state"), "RUNG_RUNTIME_DIR=" + h.file("run"),
		"SSL_CERT_FILE=" + h.file("ca.pem"), "RUNG_GATE_RESOLV_CONF=" + h.file("resolv.conf"), "RUNG_GATE_LINGER=2m", // while its memory is searched; it ends with its directory
	}
	return h
}

func (h *house) file(name string) string { return filepath.Join(h.dir, name) }

// command is rung with arguments, bounded.
func (h *house) command(args ...string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	cmd := exec.CommandContext(ctx, program("rung"), args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = h.env, h.dir, 10*time.Second
	return cmd, cancel
}

// rung runs it and returns what it printed, and its exit code.
func (h *house) rung(stdin string, args ...string) (stdout, stderr string, code int) {
	h.Helper()
	cmd, cancel := h.command(args...)
	defer cancel()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		h.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must is rung that succeeds.
func (h *house) must(stdin string, args ...string) string {
	h.Helper()
	out, errs, code := h.rung(stdin, args...)
	if code != 0 {
		h.Fatalf("rung %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// walls are the rungs that have a gate.
func walls() []string { return []string{"process", "container", "hardened", "gvisor"} }

// on runs a test on each rung.
func on(t *testing.T, f func(t *testing.T, h *house, wall string)) {
	for _, wall := range walls() {
		t.Run(wall, func(t *testing.T) {
			if _, err := os.Stat(program("runsc")); wall == "gvisor" && err != nil {
				t.Skip("runsc is not built (make bin/runsc)")
			}
			f(t, newHouse(t), wall)
		})
	}
}

func flags(wall string) []string {
	f := []string{"run", "-q", "--rung", wall, "--timeout", "2m", "--in", program("inside") + ":/work/inside"}
	if wall != "gvisor" {
		f = append(f, "--accept-lower", wall)
	}
	return f
}

// step and result are those of the program inside.
type step map[string]any

type result struct {
	Do     string              `json:"do"`
	Err    string              `json:"err"`
	Status int                 `json:"status"`
	Proto  string              `json:"proto"`
	Header map[string][]string `json:"header"`
	Body   string              `json:"body"`
	Found  []string            `json:"found"`
	Looked map[string]int64    `json:"looked"`
}

func script(steps []step) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, s := range steps {
		_ = enc.Encode(s) // maps of text and numbers always encode
	}
	return b.String()
}

// inside runs steps in a sandbox with these further flags.
func (h *house) inside(wall string, steps []step, more ...string) []result {
	h.Helper()
	out, errs, code := h.rung(script(steps), append(append(flags(wall), more...), "--", "/work/inside")...)
	if code != 0 {
		h.Fatalf("exit %d: %s%s\ngate: %s", code, out, errs, h.gateLog())
	}
	return h.results(strings.NewReader(out), len(steps))
}

func (h *house) results(r io.Reader, n int) (list []result) {
	h.Helper()
	for dec := json.NewDecoder(r); ; {
		var one result
		if err := dec.Decode(&one); err != nil {
			if len(list) != n {
				h.Fatalf("%d results of %d steps: %v", len(list), n, err)
			}
			return list
		}
		if one.Do != "waiting" {
			list = append(list, one)
		}
	}
}

func (h *house) gateLog() string {
	all, _ := filepath.Glob(h.file("run") + "/gate-*.log")
	var b strings.Builder
	for _, name := range all {
		text, _ := os.ReadFile(name)
		b.Write(text)
	}
	return b.String()
}

// add stores a secret.
func (h *house) add(name, value string) {
	h.Helper()
	h.must(value, "secret", "add", name)
}
