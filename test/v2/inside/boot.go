//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// findRoot loads the kernel's modules, mounts the disk, puts the programs on it and goes on there.
func findRoot() error {
	for target, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := unix.Mount(kind, target, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := mountDisk(); err != nil {
		return err
	}
	programs, err := os.ReadDir("/bin")
	if err != nil {
		return err
	}
	if err := os.MkdirAll("/root/usr/local/bin", 0o755); err != nil {
		return err
	}
	for _, p := range programs {
		if err := copyProgram("/bin/"+p.Name(), "/root/usr/local/bin/"+p.Name()); err != nil {
			return err
		}
	}
	// The ram disk cannot be left by pivot_root(2); a mount moved over it can be the root all the same.
	err = errors.Join(unix.Chdir("/root"), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/"))
	if err != nil {
		return fmt.Errorf("enter the disk: %w", err)
	}
	return unix.Exec(self, []string{self, "boot"}, nil)
}

func loadModules() error {
	names, err := filepath.Glob("/modules/*.ko*")
	slices.Sort(names)
	for _, name := range names {
		flags := 0
		if !strings.HasSuffix(name, ".ko") {
			flags = unix.MODULE_INIT_COMPRESSED_FILE
		}
		f, e := os.Open(name)
		if e == nil {
			e = unix.FinitModule(int(f.Fd()), "", flags)
			f.Close()
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("load %s: %w", name, e))
		}
	}
	return err
}

// mountDisk waits for the disk, which its driver finds in its own time.
func mountDisk() error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		err := unix.Mount("/dev/vda", "/root", "ext4", 0, "")
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			devices, _ := filepath.Glob("/sys/bus/virtio/devices/*") // a well-formed pattern
			return fmt.Errorf("mount /dev/vda: %w (virtio devices: %v)", err, devices)
		}
	}
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// mountSystem mounts what systemd mounts, with its options.
func mountSystem() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	const bare = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	for _, m := range []struct {
		target, kind, data string
		flags              uintptr
	}{
		{"/proc", "proc", "", bare},
		{"/sys", "sysfs", "", bare},
		{"/dev", "devtmpfs", "", unix.MS_NOSUID},
		{"/dev/pts", "devpts", "ptmxmode=0666,mode=0620,gid=5", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"/run", "tmpfs", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
		{"/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot", bare},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return unix.Sethostname([]byte("v2"))
}

// Ordinary users of the virtual host.
const (
	tester = 1000 // has subordinate ids
	single = 1001 // has none
)

func writeAccounts() error {
	for name, text := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n" +
			"tester:x:1000:1000::/home/tester:/bin/bash\nsingle:x:1001:1001::/home/single:/bin/bash\n",
		"/etc/group":    "root:x:0:\ntty:x:5:\nnogroup:x:65534:\ntester:x:1000:\nsingle:x:1001:\n",
		"/etc/subuid":   "tester:100000:65536\n",
		"/etc/subgid":   "tester:100000:65536\n",
		"/etc/hostname": "v2\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for uid, name := range map[int]string{tester: "tester", single: "single"} {
		for _, dir := range []string{"/home/" + name, fmt.Sprintf("/run/user/%d", uid)} {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
				return err
			}
		}
	}
	return nil
}
