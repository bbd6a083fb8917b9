package main

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/seccomp"
)

// confine walls the process in before it reads a byte of anybody's, and says how. System calls are always filtered; paths
// are restricted to reading what names a resolver, where the kernel has Landlock.
func confine() ([]string, error) {
	list := []string{"uid " + strconv.Itoa(unix.Getuid())}
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e == 0 {
		files := []string{"/etc/resolv.conf", "/etc/hosts"}
		if other := os.Getenv("RUNG_GATE_RESOLV_CONF"); filepath.IsAbs(other) { // read again when it changes
			files = append(files, other)
		}
		err := landlock.V1.RestrictPaths(landlock.ROFiles(files...).IgnoreIfMissing(), landlock.RODirs("/run/systemd/resolve", "/etc").IgnoreIfMissing())
		if err != nil {
			return nil, rung.Errorf(rung.KindInternal, "landlock: %w", err)
		}
		list = append(list, "landlock (reads below /etc; kernel ABI "+strconv.Itoa(int(abi))+")")
	}
	filter := seccomp.Filter(seccomp.Gate)
	if _, err := seccomp.Install(filter, false); err != nil {
		return nil, err
	}
	return append(list, "seccomp (allow-list)", "no-new-privileges"), nil
}
