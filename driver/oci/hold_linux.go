package oci

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"

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
	wall.Cmd = s.command(w, b.dir)
	if s.Runtime.Name == "crun" {
		wall.Cmd.Env = append(wall.Cmd.Env, shield(s.Runtime.Path, w.Dir)...)
	}
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

// shield protects crun's program from what runs inside and returns the environment that says so. crun protects itself: it
// shows itself read-only through a mount of its own and executes itself again from there (CVE-2019-5736), which takes two
// milliseconds and an unmount that waits for every processor. The same mount is made here, in a namespace where nobody but
// the holder could change it, and crun, which checks that it was executed from one, goes on at once. Where that fails it
// does as before, with its own file in the sandbox's directory: killed at the wrong moment it would leave one in /tmp.
func shield(program, dir string) []string {
	env := []string{"_LIBCONTAINER_STATEDIR=" + dir}
	if mount.BindRO(program, program, mount.BindOptions{}) == nil {
		env = append(env, "_LIBCONTAINER_CLONED_BINARY=1")
	}
	return env
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
