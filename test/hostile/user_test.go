//go:build linux

package hostile

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/driver/oci"
)

// userEnv names the ordinary user that root runs these tests as; `make test` creates him.
const userEnv = "RUNG_TEST_USER"

// TestOrdinaryUser attacks the walls once more as they are built by somebody who is not root: with subordinate ids, and
// with one id for everything.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is the ordinary user")
	}
	name := os.Getenv(userEnv)
	if name == "" {
		name = "rung-tester"
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("%v; `make test` creates one, or set %s", err, userEnv)
	}
	for what, path := range map[string]string{"with-subordinate-ids": os.Getenv("PATH"), "with-one-id": "/none"} {
		t.Run(what, func(t *testing.T) { asUser(t, u, path) })
	}
}

// asUser runs TestWalls in a folder and a program of the user's. A path without newuidmap leaves him one id.
func asUser(t *testing.T, u *user.User, path string) {
	uid, _ := strconv.Atoi(u.Uid) // Linux: always a number
	gid, _ := strconv.Atoi(u.Gid) // Linux: always a number
	dir, err := os.MkdirTemp("", "rung-u-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	from := map[string]string{
		"hostile.test": "/proc/self/exe", "rung": place("rung"), "rung-guest": place("rung-guest"), "probe": place("probe"), "evil": place("evil"),
	}
	for name, program := range map[string]string{"runsc": oci.ForRung(rung.GVisor).Path, "crun": held.FindProgram("crun")} {
		if program != "" {
			from[name] = program
		}
	}
	for name, src := range from {
		if err := install(src, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "hostile.test"), "-test.v", "-test.run=^(TestWalls|TestDiskFills)$", "-test.timeout=5m")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "PATH=" + path, dirEnv + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as %s: %v", u.Username, err)
	}
	for line := range strings.Lines(string(out)) {
		t.Log(strings.TrimSpace(line))
	}
}

func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
