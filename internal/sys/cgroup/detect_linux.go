package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// Detect reads how this host keeps its control groups. It costs two small reads and no allocation worth naming; a host
// without control groups is not an error but Version 0, and Create then reports every limit as missing.
func Detect() (Layout, error) {
	mounts, err := slurp("/proc/self/mountinfo")
	if err != nil {
		return Layout{}, err
	}
	membership, err := slurp("/proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return Layout{}, nil // a kernel without control groups has no such file
	}
	if err != nil {
		return Layout{}, err
	}
	return parse(mounts, membership), nil
}

func slurp(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", rung.Errorf(rung.KindUnavailable, "detect control groups: %w", err).WithHint("mount /proc")
	}
	defer func() { _ = f.Close() }()
	// The kernel writes these files anew for each read, so few large reads.
	b := bytes.NewBuffer(make([]byte, 0, 16<<10))
	if _, err := b.ReadFrom(io.LimitReader(f, maxProc)); err != nil {
		return "", rung.Errorf(rung.KindUnavailable, "detect control groups: read %s: %w", name, err)
	}
	return b.String(), nil
}

// For returns the layout as that user of the host sees it: for a process that is root in a user namespace of the user's.
func (l Layout) For(uid int) Layout {
	l.user = &uid
	return l
}

// owner is whose groups these are, as a user id of the host.
func (l *Layout) owner() int {
	if l.user != nil {
		return *l.user
	}
	return os.Geteuid()
}

// root is the directory below which t's groups of this user live, made where that is ours to do. The returned text says
// why there is none.
func (l *Layout) root(t *tree, prepare bool) (*dir, string) {
	if t.readonly {
		return nil, t.mount + " is mounted read-only"
	}
	if l.Version == 2 {
		return l.root2(t, prepare)
	}
	name, fresh := l.parent1(t), false
	if prepare && l.owner() == 0 {
		err := l.mkdir(unix.AT_FDCWD, name)
		if fresh = err == nil; err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err.Error()
		}
	}
	d, err := openDir(unix.AT_FDCWD, name, name, t.controllers)
	if err != nil {
		return nil, err.Error()
	}
	if fresh && slices.Contains(t.controllers, "cpu") {
		d.yield("cpu.shares", 128)
	}
	if prepare {
		if err := unix.Faccessat(d.fd, ".", unix.W_OK, unix.AT_EACCESS); err != nil {
			d.close()
			return nil, name + " is not writable"
		}
	}
	return d, ""
}

// parent1 is the directory of all of this user's groups in a hierarchy of version 1.
func (l *Layout) parent1(t *tree) string {
	if uid := l.owner(); uid != 0 {
		return fmt.Sprintf("%s/%s-%d", t.mount, parent, uid)
	}
	return t.mount + "/" + parent
}

// yield makes all sandboxes together weigh an eighth of anything else that wants the processors: the caps alone let as many
// as the host has be taken, and a fork bomb then keeps whoever would end it waiting for many seconds. On a host that has
// nothing else to do it changes nothing, so a kernel that refuses is no error.
func (d *dir) yield(file string, weight int) { _ = d.write(file, strconv.Itoa(weight)) }

// root2 is root for version 2. The candidates are tried in order; all but the first are groups somebody delegated to us.
func (l *Layout) root2(t *tree, prepare bool) (*dir, string) {
	base, why := delegated(t, l.owner())
	if base == "" {
		return nil, why
	}
	b, err := openDir(unix.AT_FDCWD, base, base, nil)
	if err != nil {
		return nil, err.Error()
	}
	defer b.close()
	if prepare {
		if err := l.mkdir(b.fd, parent); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Sprintf("make %s/%s: %v", base, parent, err)
		}
	}
	d, err := openDir(b.fd, parent, base+"/"+parent, nil)
	if err != nil {
		return nil, err.Error()
	}
	d.controllers, why = handedDown(d)
	if prepare && len(d.controllers) < 3 { // the first start since boot: hand the controllers down, level by level
		if err := l.handDown(b, d); err != nil {
			why = err.Error()
		}
		d.yield("cpu.weight", 12)
		d.controllers, _ = handedDown(d)
	}
	if len(d.controllers) == 0 && prepare {
		d.close()
		return nil, why
	}
	return d, why
}

// handedDown lists those of our controllers that children of d get.
func handedDown(d *dir) (list []string, why string) {
	text, err := d.read("cgroup.subtree_control")
	if err != nil {
		return nil, err.Error()
	}
	have := strings.Fields(text)
	for _, c := range []string{"memory", "pids", "cpu"} {
		if slices.Contains(have, c) {
			list = append(list, c)
		}
	}
	return list, ""
}

// handDown enables our controllers for the children of each level. One write per controller, because one write with a
// controller that is not there enables none.
func (l *Layout) handDown(levels ...*dir) error {
	var failed error
	for _, d := range levels {
		have, _ := handedDown(d)
		for _, c := range []string{"memory", "pids", "cpu"} {
			if slices.Contains(have, c) {
				continue
			}
			err := d.write("cgroup.subtree_control", "+"+c)
			if errors.Is(err, unix.EBUSY) { // processes live in it: a delegated group, not the root
				if err = l.evacuate(d); err == nil {
					err = d.write("cgroup.subtree_control", "+"+c)
				}
			}
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// evacuate moves every process of d to its leaf rung-self. Processes fork while it looks, hence the rounds.
func (l *Layout) evacuate(d *dir) error {
	if err := l.mkdir(d.fd, self); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	leaf, err := openDir(d.fd, self, d.path+"/"+self, nil)
	if err != nil {
		return err
	}
	defer leaf.close()
	for range 5 {
		text, err := d.read("cgroup.procs")
		if err != nil || text == "" {
			return err
		}
		for pid := range strings.Lines(text) {
			if err := leaf.write("cgroup.procs", strings.TrimSpace(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return rung.Errorf(rung.KindConflict, "%s: processes keep appearing", d.path)
}

// delegated is the group below which we may make our own: the root for root, else our own group when it was delegated.
func delegated(t *tree, uid int) (base, why string) {
	if uid == 0 {
		return t.mount, ""
	}
	if t.own == "" {
		return "", "rung's own cgroup is not visible below " + t.mount
	}
	own := t.own
	if filepath.Base(own) == self { // an earlier start in this scope moved us
		own = filepath.Dir(own)
	}
	// A user's systemd owns the directories of all of the user's units, so that writable does not mean ours to use:
	// systemd marks what it has given away.
	if _, err := os.Stat("/run/systemd/system"); err == nil && !marked(own) {
		return "", own + " is not delegated to uid " + strconv.Itoa(uid)
	}
	for _, f := range []string{"", "/cgroup.procs", "/cgroup.subtree_control"} {
		if unix.Access(own+f, unix.W_OK) != nil {
			return "", own + f + " is not writable for uid " + strconv.Itoa(uid)
		}
	}
	return own, ""
}

func marked(dir string) bool {
	var b [8]byte
	n, err := unix.Getxattr(dir, "user.delegate", b[:])
	return err == nil && string(b[:n]) == "1"
}

func (l *Layout) mkdir(at int, name string) error {
	if err := unix.Mkdirat(at, name, 0o755); err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	if l.made != nil {
		if !filepath.IsAbs(name) {
			name = fmt.Sprintf("/proc/self/fd/%d/%s", at, name)
		}
		l.made(name)
	}
	return nil
}

// remedy is the command that would make controller available to this user.
func (l *Layout) remedy(controller string) string {
	uid, gid := l.owner(), os.Getegid()
	switch {
	case l.Version == 0:
		return "mount a cgroup2 file system at /sys/fs/cgroup"
	case uid == 0:
		return "make the cgroup file system writable here and enable the " + controller + " controller (kernel command line: cgroup_enable=" + controller + ")"
	case l.Version == 2:
		return "start it as: systemd-run --user --scope -p Delegate=yes -- rung …; if the controller is still missing, put" +
			" \"[Service]\\nDelegate=cpu memory pids\" into /etc/systemd/system/user@.service.d/rung.conf and log in again"
	}
	mount := "/sys/fs/cgroup/" + controller
	for i := range l.trees {
		if l.trees[i].has(controller) {
			mount = l.trees[i].mount
		}
	}
	return fmt.Sprintf("run once: sudo sh -c 'mkdir -p %[1]s/rung-%[2]d && chown -R %[2]d:%[3]d %[1]s/rung-%[2]d'", mount, uid, gid)
}
