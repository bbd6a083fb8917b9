package confine

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/seccomp"
)

// Apply confines the calling process, all threads, for good. It must run before any other goroutine depends on the old
// view of the file system. Any error is final: the process must exit.
func Apply(raw json.RawMessage) (Report, error) {
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return Report{}, rung.Errorf(rung.KindInvalid, "confine: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func(*Config) error
	}{
		{"root", enterRoot},
		{"masks", mask},
		{"rlimits", setRlimits},
		{"landlock", restrict},
		{"seccomp", filter},
	} {
		if err := step.do(&c); err != nil {
			return Report{}, rung.Errorf(rung.KindUnavailable, "confine: %s: %w", step.name, err)
		}
	}
	return Report{LandlockABI: c.Landlock}, nil
}

// enterRoot makes the prepared tree the root and drops the old one, so that nothing outside it has a name any more
// (pivot_root(2), NOTES: pivot_root(".", ".")).
func enterRoot(c *Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	// The mounts of this namespace are copies of a more privileged one's and locked in place; a mount made here is not.
	if err := unix.Mount(c.Root, c.Root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Chdir(c.Root); err != nil {
		return err
	}
	// The kernel allows a new proc only where one is fully visible already, which after the pivot none is.
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// mask hides files behind /dev/null and directories behind an empty read-only tmpfs, as OCI runtimes do with maskedPaths.
// A path that this kernel does not have needs no mask.
func mask(c *Config) error {
	for _, p := range c.Masked {
		st, err := os.Lstat(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && st.IsDir() {
			err = unix.Mount("tmpfs", p, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=0")
		} else if err == nil {
			err = unix.Mount("/dev/null", p, "", unix.MS_BIND, "")
		}
		if err != nil {
			return &os.PathError{Op: "mask", Path: p, Err: err}
		}
	}
	for _, p := range c.ReadOnly {
		err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
			err = unix.Mount("", p, "", flags, "")
		}
		if err != nil {
			return &os.PathError{Op: "make read-only", Path: p, Err: err}
		}
	}
	return nil
}

func setRlimits(c *Config) error {
	for _, l := range c.Rlimits {
		if err := unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: l.Value, Max: l.Value}); err != nil {
			return err
		}
	}
	return nil
}

// restrict enforces exactly the ABI that was asked; go-landlock's strict mode fails rather than enforce less.
func restrict(c *Config) error {
	if c.Landlock == 0 {
		return nil
	}
	configs := []landlock.Config{
		landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6,
		landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
	}
	if c.Landlock > len(configs) {
		return rung.Errorf(rung.KindUnsupported, "ABI %d is newer than this program knows", c.Landlock)
	}
	rw, devices, terminals := landlock.RWDirs(c.Writable...), landlock.RWFiles(c.Devices...), landlock.RWDirs(ptsDir)
	if c.Landlock >= 2 {
		rw = rw.WithRefer() // moving files between two writable directories
	}
	if c.Landlock >= 5 {
		// Without it no terminal can be made or set up. Typing into one is the filter's to refuse.
		devices, terminals = devices.WithIoctlDev(), terminals.WithIoctlDev()
	}
	rules := []landlock.Rule{landlock.RODirs("/"), rw, devices, terminals, landlock.RWDirs("/proc")}
	for _, port := range c.Connect {
		rules = append(rules, landlock.ConnectTCP(port))
	}
	return configs[c.Landlock-1].Restrict(rules...)
}

// ptsDir is where the sandbox's own terminals appear.
const ptsDir = "/dev/pts"

func filter(c *Config) error {
	if len(c.Seccomp) == 0 {
		return nil
	}
	_, err := seccomp.Install(c.Seccomp, false)
	return err
}
