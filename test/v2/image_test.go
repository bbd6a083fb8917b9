//go:build linux

package v2

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kernelPackage is the distribution's package whose first dependency is the kernel for virtual machines. What it depends
// on moves with security updates; the test logs which version it got.
const kernelPackage = "linux-image-cloud-amd64"

// modules are what the kernel may not have built in, in the order of their dependencies.
var modules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "loop", "overlay"}

// packages are what the virtual host has installed, with all that they depend on. The test copies them from this host.
var packages = []string{"bash", "dash", "coreutils", "crun", "e2fsprogs", "uidmap", "util-linux", "mount", "python3-minimal"}

// cacheDir holds what is expensive to fetch or build; `make clean` removes it.
func cacheDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/v2")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// output runs a program of the host and skips the test when that cannot do what it is for.
func output(t *testing.T, dir, what, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("%s cannot be had: %s: %v: %s", what, name, err, lastLine(errs.String()))
	}
	return string(out)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// kernel is an unpacked kernel package.
type kernel struct {
	version string
	image   string
	modules []string // files, in the order of loading
}

// fetchKernel returns the kernel that apt offers now, or the newest cached one where apt has none.
func fetchKernel(t *testing.T) kernel {
	t.Helper()
	cache := cacheDir(t)
	name := ""
	if out, err := exec.CommandContext(t.Context(), "apt-cache", "depends", kernelPackage).Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if dep, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && name == "" {
				name = dep
			}
		}
	}
	if have, _ := filepath.Glob(filepath.Join(cache, "linux-image-*")); name == "" && len(have) > 0 {
		slices.Sort(have)
		name = filepath.Base(have[len(have)-1])
	}
	if name == "" {
		t.Skipf("the kernel package cannot be had: apt knows no %s (apt-get update)", kernelPackage)
	}
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err != nil {
		unpackKernel(t, name, dir)
	}
	k := kernel{image: filepath.Join(dir, "vmlinuz")}
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		t.Fatal(err)
	}
	k.version = name + " " + strings.TrimSpace(string(version))
	for _, m := range modules {
		files, _ := filepath.Glob(filepath.Join(dir, m+".ko*")) // a well-formed pattern
		k.modules = append(k.modules, files...)
	}
	return k
}

// unpackKernel downloads the package and keeps the kernel and its few modules in dir. Nothing is installed.
func unpackKernel(t *testing.T, name, dir string) {
	t.Helper()
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	// As root apt hands the download to a user of its own, who may not write here; then it downloads as root.
	output(t, tmp, "the kernel package", "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name)
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb")) // a well-formed pattern
	if len(debs) != 1 {
		t.Skipf("the kernel package cannot be had: apt-get download left %q", debs)
	}
	version := output(t, tmp, "the kernel package", "dpkg-deb", "-f", debs[0], "Version")
	cmd := exec.CommandContext(t.Context(), "dpkg-deb", "--fsys-tarfile", debs[0])
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = errors.Join(pick(pipe, tmp), cmd.Wait())
	}
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(tmp, "version"), []byte(version), 0o644), os.Remove(debs[0]))
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		t.Fatalf("unpack %s: %v", name, err)
	}
}

// pick writes the kernel image and the wanted modules of a package into dir.
func pick(r io.Reader, dir string) error {
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Base(h.Name)
		if strings.HasPrefix(name, "vmlinuz-") {
			name = "vmlinuz"
		} else if m, _, ok := strings.Cut(name, ".ko"); !ok || !slices.Contains(modules, m) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

// rootDisk returns an ext4 image with the packages, cached by their versions.
func rootDisk(t *testing.T) string {
	t.Helper()
	args := []string{
		"depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks",
		"--no-replaces", "--no-enhances",
	}
	var names []string
	for line := range strings.Lines(output(t, "", "the virtual host's packages", "apt-cache", append(args, packages...)...)) {
		if name := strings.TrimSpace(line); line[0] >= 'a' && line[0] <= 'z' {
			names = append(names, name)
		}
	}
	// Alternatives that are not installed are an error to dpkg-query, and none to us.
	query := exec.CommandContext(t.Context(), "dpkg-query", append([]string{"-W", "-f", "${db:Status-Status} ${Package}:${Architecture} ${Version}\n"}, names...)...)
	list, _ := query.Output()
	var installed, versions []string
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "installed" {
			installed = append(installed, strings.TrimSuffix(f[1], ":all"))
			versions = append(versions, f[1]+" "+f[2])
		}
	}
	for _, p := range packages {
		if !slices.ContainsFunc(installed, func(s string) bool { n, _, _ := strings.Cut(s, ":"); return n == p }) {
			t.Skipf("package %s of the virtual host is not installed here (make deps)", p)
		}
	}
	slices.Sort(versions)
	sum := sha256.Sum256([]byte(strings.Join(versions, "\n")))
	image := filepath.Join(cacheDir(t), "root-"+hex.EncodeToString(sum[:8])+".ext4")
	if _, err := os.Stat(image); err != nil {
		buildRoot(t, image, installed)
	}
	return image
}

// skipped are paths of packages that no program needs.
var skipped = []string{"/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/usr/share/lintian"}

func buildRoot(t *testing.T, image string, installed []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a disk image with files of several owners")
	}
	var files bytes.Buffer
	for name := range strings.Lines(output(t, "", "the list of files", "dpkg-query", append([]string{"-L"}, installed...)...)) {
		name = strings.TrimSpace(name)
		wanted := strings.HasPrefix(name, "/") && !slices.ContainsFunc(skipped, func(p string) bool { return strings.HasPrefix(name, p) })
		if _, err := os.Lstat(name); wanted && err == nil && name != "/." {
			fmt.Fprintln(&files, strings.TrimPrefix(name, "/"))
		}
	}
	stage := t.TempDir()
	tmp := image + ".new"
	defer os.Remove(tmp)
	// Packages own the directories of a merged /usr, not the links to them, or the other way round.
	script := `cd "$1"; mkdir -p usr/lib64; for d in bin sbin lib lib64; do test ! -L /$d || ln -s usr/$d $d; done
		tar -C / -c --no-recursion --files-from=- | tar -x -p --keep-directory-symlink; truncate -s 4G "$2"; mkfs.ext4 -q -d "$1" "$2"`
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script, "sh", stage, tmp)
	cmd.Stdin = &files
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the root disk: %v: %s", err, out)
	}
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(image), "root-*.ext4")) // a well-formed pattern
	for _, o := range old {
		os.Remove(o)
	}
	if err := os.Rename(tmp, image); err != nil {
		t.Fatal(err)
	}
}

// initrd writes the initial ram disk: the program inside as /init, the modules, and rung's programs, which change too often
// to be part of the cached disk.
func initrd(t *testing.T, k kernel) string {
	t.Helper()
	dir := t.TempDir()
	build(t, "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "../../cmd/rung", "../../cmd/rung-guest", "../../cmd/rung-strip", "./inside")
	build(t, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/cgroup.test", "../../internal/sys/cgroup")
	image := filepath.Join(dir, "initrd")
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &cpio{w: f}
	for _, d := range []string{"dev", "proc", "sys", "root", "modules", "bin"} {
		c.add(d, modeDir, nil, 0, 0)
	}
	c.add("dev/console", modeChar, nil, 5, 1)
	c.file("init", filepath.Join(dir, "inside"))
	for i, m := range k.modules {
		c.file(fmt.Sprintf("modules/%d-%s", i, filepath.Base(m)), m)
	}
	for _, p := range []string{"rung", "rung-guest", "rung-strip", "inside", "cgroup.test"} {
		c.file("bin/"+p, filepath.Join(dir, p))
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	return image
}

func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v: %s", args[0], err, out)
	}
}
