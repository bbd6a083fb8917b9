//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/image/unpack"
)

// unpackMain is the child of job.go.
func unpackMain() int {
	r, err := unpackJob(os.Stdin)
	if err != nil {
		r = result{Error: rung.Fail(err)}
	}
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(json.NewEncoder(out).Encode(r), out.Flush()); err != nil {
		return rung.ExitError
	}
	return 0
}

func unpackJob(in io.Reader) (result, error) {
	var j job
	if err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&j); err != nil {
		return result{}, err
	}
	debug.SetMemoryLimit(512 << 20) // a soft limit: it makes the collector work, not the program fail
	if err := limitSelf(j.Limits); err != nil {
		return result{}, err
	}
	root, spool, err := openHandles()
	if err != nil {
		return result{}, err
	}
	defer root.Close()
	defer spool.Close()
	var notes []string
	locked, err := confine()
	if err != nil {
		return result{}, fmt.Errorf("landlock: %w", err)
	}
	if !locked {
		notes = append(notes, "unpacked without Landlock, which this kernel lacks")
	}
	var r result
	if j.Mode == fromTree {
		r, err = treeJob(j, root)
	} else {
		r, err = imageJob(j, root, spool)
	}
	r.Notes = append(r.Notes, notes...)
	return r, err
}

func openHandles() (root, spool *os.Root, err error) {
	if root, err = os.OpenRoot(fdPath(fdRoot)); err != nil {
		return nil, nil, err
	}
	if spool, err = os.OpenRoot(fdPath(fdSpool)); err != nil {
		return nil, nil, err
	}
	return root, spool, nil
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func limitSelf(l unpack.Limits) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return err
	}
	size := uint64(l.Bytes) // the spool holds files of a layer's size
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size})
}

// confine lets this process write only below its two directories and read only what name resolution and certificates need.
// It is the second wall: the first is that this process is nobody on the host. False where the kernel has no Landlock.
func confine() (bool, error) {
	if v, err := llsys.LandlockGetABIVersion(); err != nil || v < 2 { // 2: links between directories
		return false, nil
	}
	read := []string{
		"/etc", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/run/systemd/resolve", "/run/resolvconf",
		"/run/NetworkManager", "/proc", "/sys/kernel/mm/transparent_hugepage",
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if path := os.Getenv(name); path != "" {
			read = append(read, filepath.Dir(path))
		}
	}
	return true, landlock.V2.RestrictPaths(
		landlock.RWDirs(fdPath(fdRoot), fdPath(fdSpool)).WithRefer(),
		landlock.RODirs(read...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
	)
}

// imageJob makes a tree from a container image.
func imageJob(j job, root, spool *os.Root) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), jobTime)
	defer cancel()
	var src *source
	var err error
	if j.Mode == fromRegistry {
		src, err = openRegistry(ctx, j)
	} else {
		src, err = openArchive(os.NewFile(fdInput, "archive"), spool, j)
	}
	if err != nil {
		return result{}, err
	}
	if src.digest == j.Have {
		return result{Unchanged: true, Digest: src.digest, Resolved: src.resolved, Arch: src.arch}, nil
	}
	tree := unpack.New(root, j.Limits, j.Owners, newProgress(j.Progress, "unpacking"))
	defer tree.Close()
	for i, l := range src.layers {
		if err := tree.Add(l); err != nil {
			return result{}, typed(err, "layer %d of %d", i+1, len(src.layers))
		}
	}
	return finish(j, root, tree, result{Digest: src.digest, Resolved: src.resolved, Arch: src.arch, Config: src.config})
}

// typed adds where an error happened and keeps its kind and hint on the outside.
func typed(err error, format string, args ...any) error {
	return rung.Errorf(rung.KindOf(err), "%s: %w", fmt.Sprintf(format, args...), err).WithHint(rung.HintOf(err))
}

func finish(j job, root *os.Root, tree *unpack.Tree, r result) (result, error) {
	wipe(j.Progress)
	notes, err := image.Prepare(root)
	if err != nil {
		return result{}, err
	}
	r.Stats = tree.Stats()
	r.Notes = append(r.Stats.Notes(), notes...)
	return r, r.Config.check()
}
