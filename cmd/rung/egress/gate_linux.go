package egress

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/sys/lock"
)

// gateUID is what the gate runs as when root starts it: below the holders' ids, an id that nothing else has.
const gateUID = 0x6FFDFFFF

// gateTimeout bounds every single exchange with the gate but the wait for a summary.
const gateTimeout = 15 * time.Second

// gateSocket is where the gate that this run needs listens: of this very program, and going out the way that the caller's
// environment says. After an upgrade, or with another HTTPS_PROXY, a run gets another gate; the old one ends by itself.
func (h Host) gateSocket(program string) (string, error) {
	info, err := os.Stat(program)
	if err != nil {
		return "", rung.Errorf(rung.KindUnavailable, "rung-gate: %w", err)
	}
	env := gateEnv(os.Environ())
	slices.Sort(env)
	which := sha256.New()
	fmt.Fprintln(which, control.Version, program, info.Size(), info.ModTime().UnixNano())
	for _, kv := range env {
		fmt.Fprintf(which, "%q\n", kv)
	}
	return filepath.Join(h.RuntimeDir, "gate-"+hex.EncodeToString(which.Sum(nil)[:6])+".sock"), nil
}

// dialGate connects to the running gate, and starts one where none runs. One gate serves all sandboxes of this runtime
// directory; it ends by itself when it has had nothing to do for a while.
func (h Host) dialGate(ctx context.Context) (c *control.Conn, path string, err error) {
	program := held.FindProgram("rung-gate")
	if program == "" {
		return nil, "", errNoGate
	}
	if path, err = h.gateSocket(program); err != nil {
		return nil, "", err
	}
	c, err = h.reachGate(ctx, program, path)
	return c, path, err
}

func (h Host) reachGate(ctx context.Context, program, path string) (*control.Conn, error) {
	if c, err := connectGate(path); err == nil {
		return c, nil
	}
	if err := os.MkdirAll(h.RuntimeDir, 0o711); err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "runtime directory: %w", err)
	}
	unlock, err := lockGate(ctx, filepath.Join(h.RuntimeDir, "gate.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c, err := connectGate(path); err == nil { // somebody else was faster
		return c, nil
	}
	if err := h.startGate(program, path); err != nil {
		return nil, err
	}
	c, err := connectGate(path)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "connect to the gate just started: %w", err).WithHint("see " + gateLog(path))
	}
	return c, nil
}

func connectGate(path string) (*control.Conn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(gateTimeout))
	return control.NewConn(c), nil
}

// lockGate lets one starter at a time through. The lock is the open file's and ends with this process at the latest.
func lockGate(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "lock the gate's start: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	if err = lock.Wait(ctx, f, true); err == nil {
		return func() { f.Close() }, nil
	}
	f.Close()
	if errors.Is(err, lock.ErrHeld) {
		return nil, rung.Errorf(rung.KindTimeout, "waiting for another rung to start the gate: %w", ctx.Err())
	}
	return nil, rung.Errorf(rung.KindUnavailable, "lock the gate's start: %w", err)
}

func gateLog(socket string) string { return socket + ".log" }

var errNoGate = rung.Errorf(rung.KindUnavailable, "rung-gate, the only way out of a sandbox, is not found").
	WithHint("put it beside rung or in PATH (`make` builds it into bin/), or run with --egress none")

// startGate listens for the gate and starts it on the listening socket, so that nobody has to wait until it is up: a
// connection made before waits in the socket's queue.
func (h Host) startGate(program, path string) error {
	if err := h.forgetGates(); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "listen for the gate: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil { // whatever the umask says
		return rung.Errorf(rung.KindUnavailable, "listen for the gate: %w", err)
	}
	listener, err := l.File()
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "listen for the gate: %w", err)
	}
	defer listener.Close()
	return spawnGate(program, path, listener, h.RuntimeDir)
}

// forgetGates removes the sockets and logs of gates that have ended. Nobody starts one meanwhile: the caller has the lock.
func (h Host) forgetGates() error {
	sockets, err := filepath.Glob(filepath.Join(h.RuntimeDir, "gate-*.sock"))
	if err != nil {
		return rung.Errorf(rung.KindInternal, "find ended gates: %w", err)
	}
	for _, path := range sockets {
		c, err := connectGate(path)
		if err == nil {
			c.Close()
			continue
		}
		if err := errors.Join(os.Remove(path), os.RemoveAll(gateLog(path))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return rung.Errorf(rung.KindUnavailable, "remove an ended gate's socket: %w", err)
		}
	}
	return nil
}

func spawnGate(program, path string, listener *os.File, runtime string) error {
	dir, err := os.Open(runtime)
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "runtime directory: %w", err)
	}
	defer dir.Close()
	log, err := os.OpenFile(gateLog(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return rung.Errorf(rung.KindUnavailable, "the gate's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(program, "serve") //nolint:noctx // it outlives this process, and ends by itself
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", log, []*os.File{listener, dir}
	cmd.Env = append(gateEnv(os.Environ()), "RUNG_GATE_OWNER="+strconv.Itoa(os.Geteuid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: gateUID, Gid: gateUID}
	}
	if err := cmd.Start(); err != nil {
		return rung.Errorf(rung.KindUnavailable, "start the gate: %w", err)
	}
	return cmd.Process.Release()
}

// gateEnv is what the gate needs to know of the caller's environment: how this host reaches the outside, and how long to
// stay.
func gateEnv(all []string) (env []string) {
	for _, kv := range all {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "RUNG_GATE_LINGER", "RUNG_GATE_RESOLV_CONF":
			env = append(env, kv)
		}
	}
	return env
}
