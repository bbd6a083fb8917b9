package oci

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/mount"
)

// controlFD is the number of the control channel's descriptor inside: the first after stdio.
const controlFD = 3

// Hold builds the wall in the holder: the file tree, the seccomp listener's socket, the runtime's command. The bundle is the
// client's work (see Create).
func Hold(w *holder.Workshop) (*holder.Wall, error) {
	var s spec
	if err := json.Unmarshal(w.Spec, &s); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "oci: %w", err)
	}
	wall := &holder.Wall{}
	b := s.bundle(w.ID, w.Dir)
	var err error
	if b.listener != "" {
		if wall.Notify, err = listen(b.listener); err != nil {
			return nil, err
		}
	}
	if _, err := s.Tree.Build(w); err != nil {
		return nil, err
	}
	if s.Runtime.Name == "crun" && !strings.HasPrefix(w.Dir, "/tmp/") {
		// crun protects itself by a file it makes in /tmp and unlinks; killed between the two it would leave one behind.
		if err := mount.Tmpfs("/tmp", mount.TmpfsOptions{Size: 1 << 20, Inodes: 64, Mode: 0o1777}); err != nil {
			return nil, err
		}
	}
	wall.Cmd = s.command(w, b.dir)
	return wall, nil
}

// bundle says where the bundle of the sandbox in dir is and what it refers to.
func (s spec) bundle(id, dir string) bundle {
	b := bundle{spec: s, id: id, root: held.Root(dir, s.Rootless), dir: filepath.Join(dir, "bundle")}
	if s.Rung == rung.Hardened {
		b.listener = filepath.Join(dir, "notify.sock")
	}
	return b
}

// command runs the runtime in the foreground: its process lives as long as the container and cleans up after it.
func (s *spec) command(w *holder.Workshop, bundle string) *exec.Cmd {
	state := filepath.Join(w.Dir, "runtime")
	var args []string
	switch s.Runtime.Name {
	case "crun":
		// rung makes the control group and starts the runtime in it, so the runtime need not touch cgroups at all.
		args = []string{"--root", state, "--cgroup-manager", "disabled", "run", "--preserve-fds", "1"}
	case "runsc":
		// Every way to the host that runsc could open is named shut, also where that is the default today.
		args = []string{
			"--root", state, "--platform", "systrap", "--network", s.network(), "--ignore-cgroups",
			"--host-uds", "none", "--host-fifo", "none", "--net-raw=false", "--overlay2", "none",
		}
		if s.Rootless {
			args = append(args, "--rootless")
		}
		args = append(args, "run", "--pass-fd", "3:3")
	default:
		args = []string{"--root", state, "run", "--preserve-fds", "1"}
	}
	args = append(args, "--bundle", bundle, w.ID)
	return &exec.Cmd{
		Path: s.Runtime.Path, Args: append([]string{s.Runtime.Name}, args...), Dir: w.Dir,
		ExtraFiles: []*os.File{w.Control},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR=" + w.Dir},
	}
}

// network is runsc's word for what its own network stack is connected to: nothing, or the interface that the holder made. It
// reads and writes that interface's frames itself; the host's stack never does.
func (s *spec) network() string {
	if s.Network {
		return "sandbox"
	}
	return "none"
}

// listen binds the socket on which the runtime hands over the seccomp listener.
func listen(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "oci: seccomp listener: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil { // whatever the caller's umask says
		return nil, rung.Errorf(rung.KindInternal, "oci: seccomp listener: %w", err)
	}
	f, err := l.File()
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "oci: seccomp listener: %w", err)
	}
	return f, nil
}

func (b bundle) write() error {
	doc, err := b.document()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(doc)
	if err == nil {
		err = os.Mkdir(b.dir, 0o711)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "config.json"), raw, 0o600)
	}
	if err != nil {
		return rung.Errorf(rung.KindInternal, "oci: write bundle: %w", err)
	}
	return nil
}
