//go:build linux

// Command inside is the first process of the virtual host that test/v2 boots, three times over: as /init of the initial ram
// disk it finds the disk and makes it the root, as "boot" it mounts what a system mounts and collects orphans, and as
// "cases" it tries rung and reports (see report.go for the protocol).
package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

const self = "/usr/local/bin/inside"

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "boot":
		err = boot()
	case len(os.Args) > 1 && os.Args[1] == "cases":
		err = cases()
	case os.Getpid() == 1:
		err = findRoot()
	default:
		fmt.Fprintln(os.Stderr, "this program belongs into the virtual machine of test/v2")
		os.Exit(2)
	}
	if err != nil {
		report("fail", "boot", err.Error())
	}
	if os.Getpid() == 1 {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // the virtual machine ends instead
	}
}

// boot starts the cases in a process of their own and collects every process that ends, as the first process must.
func boot() error {
	if err := mountSystem(); err != nil {
		return err
	}
	if err := writeAccounts(); err != nil {
		return err
	}
	cmd := exec.Command(self, "cases")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == cmd.Process.Pid || err != nil && err != unix.EINTR {
			return nil
		}
	}
}
