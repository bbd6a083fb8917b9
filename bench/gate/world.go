package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	nameServer = "203.0.113.53"
	bulkRaw    = "203.0.113.5:5001"
	bulkHello  = "203.0.113.5:443"
	echoAddr   = "203.0.113.6:5002"
	webAddr    = "203.0.113.7:443"
	mitmAddr   = "203.0.113.8:8080"
	bound      = 2 * time.Minute // for any one command
)

// world is the namespace, what runs in it, and where a client can be.
type world struct {
	options
	dir     string
	env     []string
	slirp   int // pid of a process in slirp4netns's namespace
	pasta   int
	running []*background
}

// background is a process that ends with its standard input, or by a kill.
type background struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

func newWorld(o options) (w *world, err error) {
	w = &world{options: o}
	if w.dir, err = os.MkdirTemp(o.programs, "w"); err != nil { // gate.sh removes it, should this program be killed
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := errors.Join(os.Chmod(o.programs, 0o755), os.Chmod(w.dir, 0o755), w.addresses(), w.policies()); err != nil {
		return nil, err
	}
	w.env = append(os.Environ(), "RUNG_STATE_DIR="+w.file("state"), "RUNG_RUNTIME_DIR="+w.file("run"), "SSL_CERT_FILE="+w.file("ca.pem"),
		"RUNG_GATE_RESOLV_CONF="+w.file("resolv.conf"), "RUNG_GATE_LINGER=10m")
	if _, err := w.start("up", filepath.Join(o.programs, "standin"), w.dir); err != nil {
		return nil, err
	}
	if _, err := w.start("up", filepath.Join(o.programs, "mitm"), w.dir, mitmAddr, "web.example="+webAddr); err != nil {
		return nil, err
	}
	if err := w.startPeers(); err != nil {
		return nil, err
	}
	for range 3 { // starts the gate; on a busy machine the first run may take too long for its own bounds
		if _, err = w.rung("hardened", "", nil, "/bin/true"); err == nil {
			break
		}
	}
	return w, err
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// close ends what was started. The gate ends when its directory is gone.
func (w *world) close() {
	if w.pasta != 0 { // what pasta started outlives it
		_ = syscall.Kill(w.pasta, syscall.SIGKILL)
	}
	for _, b := range w.running {
		b.stdin.Close()
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	}
	os.RemoveAll(w.dir)
}

// addresses: the stand-ins' on the loopback device; pasta wants an interface with a default route to copy, which leads
// nowhere.
func (w *world) addresses() error {
	list := [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "up0", "type", "veth", "peer", "name", "up1"},
		{"addr", "add", "203.0.113.129/25", "dev", "up0"},
		{"link", "set", "up0", "up"},
		{"link", "set", "up1", "up"},
		{"route", "add", "default", "dev", "up0"},
	}
	for _, a := range []string{nameServer, "203.0.113.5", "203.0.113.6", "203.0.113.7", "203.0.113.8"} {
		list = append(list, []string{"addr", "add", a + "/32", "dev", "lo"})
	}
	for _, args := range list {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// policies: budgets are out of the way, since they are not what is measured.
func (w *world) policies() error {
	head := "version: 1\negress:\n  mode: deny\n  budget: {connections: 512, connections_per_second: 100000, bytes_out: 1000GiB, bytes_in: 1000GiB, requests: 1000000000, lookups: 1000000000}\n"
	rules := `  rules:
    - {cidr: 203.0.113.5/32, ports: [5001], protocol: tcp}
    - {cidr: 203.0.113.6/32, ports: [5002], protocol: tcp}
    - {host: bulk.example, ports: [443]}
    - {host: web.example, ports: [443], methods: [GET, POST], paths: ["/v1/**"]}
`
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "    - {host: \"r%d.rules.example\", methods: [GET], paths: [\"/v%d/**\"]}\n", i, i)
	}
	return errors.Join(
		os.WriteFile(w.file("resolv.conf"), []byte("nameserver "+nameServer+"\n"), 0o644),
		os.WriteFile(w.file("few.yaml"), []byte(head+rules), 0o644),
		os.WriteFile(w.file("many.yaml"), []byte(head+rules+many.String()), 0o644),
		os.WriteFile(w.file("none.yaml"), []byte(head), 0o644))
}

// start starts a process that says a line when it is up; it dies with this one.
func (w *world) start(line, name string, args ...string) (*background, error) {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stderr = w.env, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &background{cmd, stdin, bufio.NewReader(stdout)}
	w.running = append(w.running, b)
	if line == "" {
		return b, nil
	}
	got, err := b.out.ReadString('\n')
	if err == nil && strings.TrimSpace(got) != line {
		err = fmt.Errorf("says %q", got)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return b, nil
}

// numbers runs a command and reads the numbers it prints.
func (w *world) numbers(args ...string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, errs.String(), out.String())
	}
	n := map[string]float64{}
	if out.Len() == 0 {
		return n, nil
	}
	return n, json.Unmarshal(out.Bytes(), &n)
}

// rungArgs is `rung run` on a rung with a policy ("": none given).
func (w *world) rungArgs(rung, policy string, more, command []string) []string {
	args := []string{filepath.Join(w.bin, "rung"), "run", "--quiet", "--template", "host", "--threat", "trusted", "--rung", rung}
	if rung == "process" || rung == "container" {
		args = append(args, "--accept-lower", rung)
	}
	if policy != "" {
		args = append(args, "--policy", w.file(policy+".yaml"))
	}
	return append(append(append(args, more...), "--"), command...)
}

func (w *world) rung(rung, policy string, more []string, command ...string) (map[string]float64, error) {
	return w.numbers(w.rungArgs(rung, policy, more, command)...)
}

// sandbox runs inside in a sandbox.
func (w *world) sandbox(rung, policy string, args ...string) (map[string]float64, error) {
	return w.rung(rung, policy, w.copied(), append([]string{"/work/inside"}, args...)...)
}

func (w *world) copied() []string {
	return []string{"--in", filepath.Join(w.programs, "inside") + ":/work/inside"}
}

// direct runs inside in the namespace of the servers.
func (w *world) direct(args ...string) (map[string]float64, error) {
	return w.numbers(append([]string{filepath.Join(w.programs, "inside")}, args...)...)
}

// within runs inside in the network namespace of a process.
func (w *world) within(pid int, args ...string) (map[string]float64, error) {
	return w.numbers(append([]string{"nsenter", "-t", strconv.Itoa(pid), "-n", filepath.Join(w.programs, "inside")}, args...)...)
}
