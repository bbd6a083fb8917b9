//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/image/unpack"
)

const unpackRole = "__unpack"

// Descriptors of the child.
const (
	fdRoot  = 3 // the new tree
	fdSpool = 4 // scratch
	fdLock  = 5 // the build's lock: held until the last of the two processes is gone
	fdInput = 6 // the archive, where there is one
)

// mode says what the child makes a tree from.
type mode string

const (
	fromRegistry mode = "registry" // fetched by the child itself
	fromArchive  mode = "archive"  // an OCI layout or docker save archive on fdInput
	fromTree     mode = "tree"     // one archive of a whole Debian tree on fdInput
)

// job is what the child gets on its standard input.
type job struct {
	Mode      mode             `json:"mode"`
	Reference string           `json:"reference"`
	Auth      authn.AuthConfig `json:"auth"`
	Arch      string           `json:"arch"`
	Variant   string           `json:"variant,omitempty"`
	Pin       string           `json:"pin,omitempty"`
	Have      string           `json:"have,omitempty"` // digest of what is there already
	Owners    bool             `json:"owners"`
	Progress  bool             `json:"progress"`
	Limits    unpack.Limits    `json:"limits"`
}

// result is what it says on its standard output.
type result struct {
	Error     *rung.Failure `json:"error,omitempty"`
	Unchanged bool          `json:"unchanged,omitempty"`
	Digest    string        `json:"digest"`   // names the tree
	Resolved  string        `json:"resolved"` // what the reference led to
	Arch      string        `json:"arch"`
	Config    config        `json:"config"`
	Packages  []string      `json:"packages,omitempty"`
	Notes     []string      `json:"notes,omitempty"`
	Stats     unpack.Stats  `json:"stats"`
}

// config is the part of an image's configuration that templates keep.
type config struct {
	Env        []string `json:"env,omitempty"`
	Workdir    string   `json:"workdir,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	User       string   `json:"user,omitempty"`
}

const (
	maxResult = 4 << 20
	jobTime   = 30 * time.Minute
)

// do runs a job in a child that writes to b.Root, and checks its answer.
func (a *app) do(ctx context.Context, b *image.Build, j job, input *os.File) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	j.Limits = unpack.DefaultLimits()
	j.Owners = os.Geteuid() == 0
	j.Progress = !a.quiet && isTerminal(a.stderr)
	files, err := a.handles(b, j.Owners, input)
	if err != nil {
		return result{}, err
	}
	defer func() {
		for _, f := range files[:2] { // the lock is b's, the input the caller's
			_ = f.Close() // a handle only
		}
	}()
	text, err := json.Marshal(j)
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", unpackRole)
	cmd.Env = childEnv(os.Environ())
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(text)
	out := &cappedBuffer{limit: maxResult}
	cmd.Stdout, cmd.Stderr = out, a.stderr
	cmd.ExtraFiles = files
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = childAttr(j)
	if err := runHere(cmd); err != nil && ctx.Err() != nil {
		return result{}, ctx.Err()
	} else if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		return result{}, rung.Errorf(rung.KindUnavailable, "no user namespace to unpack in: %w", err).
			WithHint("images are never unpacked as root: allow user namespaces (sysctl user.max_user_namespaces), or run as an ordinary user")
	} else if err != nil {
		return result{}, fmt.Errorf("unpack: %w", err)
	}
	return out.result()
}

// handles opens what the child gets; it can reach none of it by name, since it is nobody on this host.
func (a *app) handles(b *image.Build, owners bool, input *os.File) ([]*os.File, error) {
	spool := filepath.Join(b.Dir, "spool")
	if err := os.Mkdir(spool, 0o700); err != nil {
		return nil, err
	}
	var files []*os.File
	for _, dir := range []string{b.Root, spool} {
		if owners {
			if err := os.Chown(dir, image.OwnerBase, image.OwnerBase); err != nil {
				return nil, err
			}
		}
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	files = append(files, b.Lock())
	if input != nil {
		files = append(files, input)
	}
	return files, nil
}

// childAttr puts the child of root in a user namespace where it is root over ids that are nobody's outside. One that needs
// no network has none.
func childAttr(j job) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if !j.Owners {
		return attr
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: image.OwnerBase, Size: image.OwnerCount}}
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWIPC
	if j.Mode != fromRegistry {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = ids, ids, true
	attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	return attr
}

// runHere starts and awaits a child on one thread: the kernel takes the end of the starting thread for the parent's death.
func runHere(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// childEnv lets through what the way to a registry depends on, and nothing else.
func childEnv(env []string) []string {
	keep := []string{"GOTRACEBACK=none"}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			keep = append(keep, kv)
		}
	}
	return keep
}

// cappedBuffer keeps at most limit bytes and remembers that there were more.
type cappedBuffer struct {
	bytes.Buffer
	limit int
	over  bool
}

func (c *cappedBuffer) Write(p []byte) (int, error) {
	if c.Len()+len(p) > c.limit {
		c.over = true
		return len(p), nil
	}
	return c.Buffer.Write(p)
}

// result reads the child's answer. A child that has parsed a hostile image may say anything, so nothing in it is used
// before it was checked: digests are digests, text is printable.
func (c *cappedBuffer) result() (result, error) {
	var r result
	if c.over {
		return r, errors.New("unpack: the answer is too long")
	}
	if err := json.Unmarshal(c.Bytes(), &r); err != nil {
		return r, fmt.Errorf("unpack: no answer: %w", err)
	}
	if r.Error != nil {
		err := rung.Errorf(r.Error.Kind, "%s", printable(r.Error.Msg))
		return r, err.WithHint(printable(r.Error.Hint))
	}
	if err := validDigest(r.Digest); err != nil {
		return r, err
	}
	if r.Resolved != "" {
		if err := validDigest(r.Resolved); err != nil {
			return r, err
		}
	}
	if err := r.Config.check(); err != nil {
		return r, err
	}
	for i, n := range r.Notes {
		r.Notes[i] = printable(n)
	}
	for i, p := range r.Packages {
		r.Packages[i] = printable(p)
	}
	r.Arch = printable(r.Arch)
	return r, nil
}

func validDigest(s string) error {
	hex, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return rung.Errorf(rung.KindInvalid, "%.100q is no digest", s).WithHint("a digest is sha256: and 64 hexadecimal digits")
	}
	return nil
}

// check refuses a configuration that no program could be started with.
func (c config) check() error {
	total := 0
	for _, list := range [][]string{c.Env, c.Entrypoint, c.Cmd, {c.Workdir, c.User}} {
		for _, s := range list {
			if total += len(s) + 1; strings.ContainsRune(s, 0) {
				return rung.Errorf(rung.KindRefused, "the image's configuration has a zero byte in %.100q", s)
			}
		}
	}
	if total > 256<<10 {
		return rung.Errorf(rung.KindRefused, "the image's configuration has %d bytes", total)
	}
	for _, kv := range c.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return rung.Errorf(rung.KindRefused, "the image sets an environment variable without a name: %.100q", kv)
		}
	}
	if c.Workdir != "" && !filepath.IsAbs(c.Workdir) {
		return rung.Errorf(rung.KindRefused, "the image's working directory %.100q is not absolute", c.Workdir)
	}
	return nil
}

// printable makes a text safe for a terminal.
func printable(s string) string {
	const most = 4096
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
