//go:build linux

package main

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
)

const debootRole = "__bootstrap"

// bootstrap is one run of mmdebstrap. It writes the tree as an archive to its standard output, so that our own child
// unpacks it and no tool of the host ever writes in a template.
type bootstrap struct {
	Release  string   `json:"release"`
	Packages []string `json:"packages"`
	Sources  []string `json:"sources"`
	Dir      string   `json:"dir"` // scratch
}

// bootstrap runs mmdebstrap and unpacks what it writes.
func (a *app) bootstrap(ctx context.Context, b *image.Build, spec bootstrap, j job) (result, error) {
	if err := spec.check(); err != nil {
		return result{}, err
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return result{}, rung.Errorf(rung.KindUnavailable, "mmdebstrap is not installed").WithHint("apt-get install mmdebstrap uidmap")
	}
	spec.Dir = b.Dir
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return result{}, err
	}
	defer r.Close()
	cmd, log, err := spec.command(ctx, w)
	if err != nil {
		return result{}, errors.Join(err, w.Close())
	}
	stop := a.elapsed("building " + j.Variant + " from Debian's packages")
	defer stop()
	built := make(chan error, 1)
	go func() {
		err := runHere(cmd)
		built <- errors.Join(err, w.Close())
	}()
	res, unpackErr := a.do(ctx, b, j, r)
	_ = r.Close()         // mmdebstrap must not wait for a reader that is gone
	if unpackErr != nil { // for a reason of its own, or because there was no archive
		cancel()
	}
	buildErr := <-built
	kind := rung.KindOf(unpackErr)
	if buildErr != nil && kind != rung.KindExhausted && kind != rung.KindRefused && !errors.Is(unpackErr, context.Canceled) {
		return result{}, rung.Errorf(rung.KindUnavailable, "mmdebstrap: %w\n%s", buildErr, printableLines(log.tail())).
			WithHint("apt-get update must work on this host; as an ordinary user, /etc/subuid and /etc/subgid must have a range for you")
	}
	return res, unpackErr
}

// command prepares mmdebstrap. As root it runs in mount and process namespaces of its own, where /etc/subuid names the
// range that owns unpacked trees: maintainer scripts then run as root of that range, and everything ends with this process.
func (b bootstrap) command(ctx context.Context, out *os.File) (*exec.Cmd, *logTail, error) {
	log := &logTail{}
	var cmd *exec.Cmd
	if os.Geteuid() == 0 {
		tmp := filepath.Join(b.Dir, "tmp")
		if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(tmp, 0o777|os.ModeSticky)); err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(b)
		if err != nil {
			return nil, nil, err
		}
		cmd = exec.CommandContext(ctx, "/proc/self/exe", debootRole)
		cmd.Stdin = bytes.NewReader(text)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC}
	} else {
		cmd = exec.CommandContext(ctx, "mmdebstrap", b.args()...)
		cmd.Stdin = strings.NewReader(strings.Join(b.Sources, "\n"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // it removes its scratch directory
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	}
	cmd.Dir = "/"
	cmd.Env = append(childEnv(os.Environ()), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "TMPDIR=/tmp", "HOME=/")
	cmd.Stdout, cmd.Stderr = out, log
	cmd.WaitDelay = 10 * time.Second
	return cmd, log, nil
}

// args are mmdebstrap's: manuals and translations are left out, nobody reads them in a sandbox.
func (b bootstrap) args() []string {
	args := []string{
		"--mode=unshare", "--variant=minbase", "--format=tar",
		"--include=" + strings.Join(b.Packages, ","),
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
	}
	if dump, err := exec.Command("apt-config", "dump").Output(); err == nil {
		for _, o := range aptOptions(string(dump)) {
			args = append(args, "--aptopt="+o)
		}
	}
	return append(args, b.Release, "-", "-")
}

// debootMain becomes mmdebstrap inside the namespaces that command made.
func debootMain() int {
	if err := debootExec(os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "prepare mmdebstrap: %v\n", err)
	}
	return rung.ExitError
}

func debootExec(in io.Reader) error {
	var b bootstrap
	if err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&b); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	ids := filepath.Join(b.Dir, "subids")
	if err := os.WriteFile(ids, fmt.Appendf(nil, "root:%d:%d\n", image.OwnerBase, image.OwnerCount), 0o644); err != nil {
		return err
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if err := unix.Mount(ids, file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w (apt-get install passwd uidmap)", file, err)
		}
	}
	sources, err := feedSources(b)
	if err != nil {
		return err
	}
	// Scratch in the build's directory: what a killed mmdebstrap leaves is swept with it.
	if err := unix.Mount(filepath.Join(b.Dir, "tmp"), "/tmp", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("/tmp: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	program, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(sources.Fd()), 0, 0); err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{"mmdebstrap"}, b.args()...), os.Environ())
}

func feedSources(b bootstrap) (*os.File, error) {
	path := filepath.Join(b.Dir, "sources")
	if err := os.WriteFile(path, []byte(strings.Join(b.Sources, "\n")), 0o600); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// elapsed shows how long something takes, where a person looks.
func (a *app) elapsed(label string) (stop func()) {
	if a.quiet || !isTerminal(a.stderr) {
		return func() {}
	}
	done := make(chan struct{})
	start := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(a.stderr, "\rrung-image: %s: %d s\x1b[K", label, int(time.Since(start).Seconds()))
			case <-done:
				fmt.Fprint(a.stderr, "\r\x1b[K")
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// logTail keeps the end of what a program says, for the error message.
type logTail struct{ last []byte }

func (l *logTail) Write(p []byte) (int, error) {
	const most = 4096
	l.last = append(l.last, p...)
	if len(l.last) > most {
		l.last = append(l.last[:0], l.last[len(l.last)-most:]...)
	}
	return len(p), nil
}

func (l *logTail) tail() string { return strings.TrimSpace(string(l.last)) }

func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = "  " + printable(l)
	}
	return strings.Join(lines, "\n")
}
