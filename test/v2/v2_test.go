//go:build linux

package v2

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bound is how long the virtual machine may run; it needs about three minutes on two idle cores, and shares them in `make test`.
const bound = 12 * time.Minute

// kernelArgs: no output but ours on the console (the kernel's news of memory kills would break our lines), and the end of
// the virtual machine instead of a reboot.
const kernelArgs = "console=ttyS0 loglevel=1 panic=-1 reboot=t no_timer_check mitigations=off 8250.nr_uarts=1"

func TestCgroupV2(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the virtual machine is x86-64 only")
	}
	if testing.Short() {
		t.Skip("boots a virtual machine; not with -short")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("qemu-system-x86_64 is not installed (make testdeps)")
	}
	k := fetchKernel(t)
	t.Logf("kernel: %s", k.version)
	disk := rootDisk(t)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu,
		"-M", "pc",
		"-accel", "tcg", "-cpu", "max,la57=off", "-smp", "2", "-m", "1536",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", k.image, "-initrd", initrd(t, k), "-append", kernelArgs,
		"-drive", "id=d,file="+disk+",format=raw,if=none,snapshot=on", "-device", "virtio-blk-pci,drive=d")
	console, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // whose end is what the virtual machine dies with
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var qemuErrors strings.Builder
	cmd.Stderr = &qemuErrors
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := follow(t, console)
	if err := cmd.Wait(); err != nil || !done {
		t.Errorf("the virtual machine did not finish its cases: %v %v %s", err, ctx.Err(), qemuErrors.String())
	}
}

// maxLine and maxConsole bound what is read of the console.
const (
	maxLine    = 64 << 10
	maxConsole = 16 << 20
)

// follow reads the console to its end and makes one subtest of each case. The protocol, by lines (see inside/report.go):
//
//	v2: note TEXT          for the log
//	v2: pass NAME TEXT     case NAME held
//	v2: fail NAME TEXT     it did not; TEXT says how
//	v2: done               all cases were tried
//
// Everything else belongs to the case before it in time and is shown with the failure that follows.
func follow(t *testing.T, console io.Reader) (done bool) {
	t.Helper()
	lines := bufio.NewScanner(io.LimitReader(console, maxConsole))
	lines.Buffer(make([]byte, maxLine), maxLine)
	var rest []string
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		_, after, ok := strings.Cut(line, "v2: ")
		if !ok {
			rest = append(rest, line)
			continue
		}
		word, text, _ := strings.Cut(after, " ")
		name, text, _ := strings.Cut(text, " ")
		switch word {
		case "note":
			t.Logf("%s %s", name, text)
		case "pass":
			t.Run(name, func(t *testing.T) { t.Log(text) })
		case "fail":
			t.Run(name, func(t *testing.T) { t.Errorf("%s\n%s", text, strings.Join(rest, "\n")) })
		case "done":
			done = true
		}
		rest = nil
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("read the console: %v", err)
	}
	if len(rest) > 0 && !done {
		t.Logf("console:\n%s", strings.Join(rest, "\n"))
	}
	return done
}
