package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is a started program. All methods may be called from several goroutines at once.
type Child struct {
	PID int

	wait sync.Once
	err  error // set by wait
	// mu orders the child's collection and signals, so that none goes to somebody who got its number.
	mu        sync.Mutex
	collected bool // guarded by mu
}

// Start starts what cmd describes: Path, Args, Env, Dir, ExtraFiles, SysProcAttr, and standard descriptors that are nil (the
// null device) or an *os.File. Nothing of cmd is changed, and the environment is Env, also where that is empty.
func Start(cmd *exec.Cmd) (*Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	for i, std := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if std == nil {
			continue
		}
		f, ok := std.(*os.File)
		if !ok {
			return nil, fmt.Errorf("start %s: standard descriptor %d is a %T", cmd.Path, i, std)
		}
		files[i] = f.Fd()
	}
	for _, f := range cmd.ExtraFiles {
		files = append(files, f.Fd())
	}
	pid, err := syscall.ForkExec(cmd.Path, cmd.Args, &syscall.ProcAttr{Dir: cmd.Dir, Env: cmd.Env, Files: files, Sys: cmd.SysProcAttr})
	runtime.KeepAlive(cmd) // the files must not be closed before they are passed on
	if err != nil {
		return nil, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: err}
	}
	return &Child{PID: pid}, nil
}

// Kill ends the program; no error when it has ended.
func (c *Child) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.collected {
		return nil
	}
	return unix.Kill(c.PID, unix.SIGKILL)
}

// Wait waits for the program's end and collects it. The error, the same for every caller, is nil when it ended with status 0.
func (c *Child) Wait() error {
	c.wait.Do(func() { c.err = c.collect() })
	return c.err
}

func (c *Child) collect() error {
	// Ended, but not yet collected: its number is still its own.
	if err := retry(func() error { return unix.Waitid(unix.P_PID, c.PID, nil, unix.WEXITED|unix.WNOWAIT, nil) }); err != nil {
		return os.NewSyscallError("waitid", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collected = true
	var status unix.WaitStatus
	if err := retry(func() error { _, err := unix.Wait4(c.PID, &status, 0, nil); return err }); err != nil {
		return os.NewSyscallError("wait4", err)
	}
	switch {
	case status.Signaled():
		return errors.New("signal: " + status.Signal().String())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
