package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/seccomp"
)

// controlFD is the number of the control channel's descriptor inside: the first after stdio.
const controlFD = 3

// confinement is read by internal/guest/confine; a driver knows it only as what it writes.
type confinement struct {
	Root     string   `json:"root"`
	Masked   []string `json:"masked"`
	ReadOnly []string `json:"readonly"`
	Rlimits  []rlimit `json:"rlimits"`
	Writable []string `json:"writable"`
	Devices  []string `json:"devices"`
	Landlock int      `json:"landlock_abi"`
	Seccomp  []byte   `json:"seccomp"`
	Connect  []uint16 `json:"connect,omitempty"`
}

type rlimit struct {
	Resource int    `json:"resource"`
	Value    uint64 `json:"value"`
}

// Hold builds the wall in the holder: the file tree and fresh namespaces. rung-guest, started as their first process,
// enters the tree and confines itself before it serves anybody (internal/guest/confine).
func Hold(w *holder.Workshop) (*holder.Wall, error) {
	var s spec
	if err := json.Unmarshal(w.Spec, &s); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "process: %w", err)
	}
	s.Tree.Devices = true
	root, err := s.Tree.Build(w)
	if err != nil {
		return nil, err
	}
	guest := held.GuestConfig{ControlFD: controlFD, Init: true, DropCaps: true, User: held.User(s.Tree.UID), Workdir: "/work", Env: s.Env}
	filter := seccomp.Process
	if s.Network {
		filter = seccomp.Hardened // the same with internet sockets: the network namespace has loopback and nothing else
	}
	c := confinement{
		Root: root, Landlock: s.Landlock, Seccomp: seccomp.Filter(filter),
		Masked:   append(held.DefaultMasked(), held.MaskedPaths()...),
		ReadOnly: held.DefaultReadOnly(),
		Writable: []string{"/work", "/home/user", "/tmp", "/dev/shm", "/dev/pts"},
		Devices:  held.Devices(),
		Rlimits: []rlimit{
			{unix.RLIMIT_NOFILE, uint64(s.Limits.Files)}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_MEMLOCK, 64 << 10},
		},
	}
	if s.Network {
		c.Connect = []uint16{holder.ProxyPort}
	}
	if !s.IDs.Single() {
		c.Rlimits = append(c.Rlimits, rlimit{unix.RLIMIT_NPROC, held.UserProcesses(s.Limits)})
	} else {
		guest.User, guest.Spare = held.User(0), true
	}
	if guest.Confine, err = json.Marshal(c); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "process: %w", err)
	}
	// By its place in the tree: the ids of the new user namespace may not get to where the copy lies.
	cmd := command(w, filepath.Join(root, held.GuestInside), guest)
	// Network, IPC and UTS namespaces are the holder's, which are this sandbox's alone.
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP
	mapIDs(cmd.SysProcAttr, s.IDs)
	return &holder.Wall{Cmd: cmd}, nil
}

func mapIDs(attr *syscall.SysProcAttr, ids held.IDs) {
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(ids.Base), Size: int(ids.Count)}}
	attr.UidMappings, attr.GidMappings = m, m
	// A user who maps only himself may not set groups: dropping one could gain what it denies (user_namespaces(7)).
	attr.GidMappingsEnableSetgroups = !ids.Single()
	attr.Credential = &syscall.Credential{NoSetGroups: ids.Single()}
	if !ids.Single() {
		// rung-guest has a uid of its own from its first instruction; what it needs for walling itself in stays with it.
		attr.Credential.Uid, attr.Credential.Gid = held.GuestUID, held.GuestUID
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_SETPCAP}
	}
}

func command(w *holder.Workshop, guest string, config held.GuestConfig) *exec.Cmd {
	raw, err := json.Marshal(config)
	if err != nil {
		panic(err) // a struct of plain fields always marshals
	}
	return &exec.Cmd{
		Path: guest, Args: []string{held.GuestInside, "serve", string(raw)}, Dir: "/",
		Env:         []string{"PATH=" + held.GuestPath, "GOMAXPROCS=1"},
		ExtraFiles:  []*os.File{w.Control},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// HoldNone starts rung-guest with nothing around it.
func HoldNone(w *holder.Workshop) (*holder.Wall, error) {
	var s spec
	if err := json.Unmarshal(w.Spec, &s); err != nil {
		return nil, rung.Errorf(rung.KindInternal, "none: %w", err)
	}
	user := held.GuestUser{Name: "caller", UID: os.Geteuid(), GID: os.Getegid(), Home: w.Dir}
	config := held.GuestConfig{ControlFD: controlFD, User: user, Workdir: w.Dir, Env: s.Env}
	return &holder.Wall{Cmd: command(w, s.Tree.Guest, config)}, nil
}
