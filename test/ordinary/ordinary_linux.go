// Package ordinary runs a test program once more as a user who is not root.
package ordinary

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Run copies programs, name to source, and the running test program into a new folder of u's, executes the copy there with
// args, and returns what it printed. In its environment dirEnv names the folder and PATH is path. A failure of the copy
// is t's. args must have -test.timeout, which bounds the wait. The folder goes with the test.
func Run(t *testing.T, u *user.User, programs map[string]string, dirEnv, path string, args ...string) string {
	t.Helper()
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
	self := filepath.Join(dir, filepath.Base(os.Args[0]))
	if err := install("/proc/self/exe", self); err != nil {
		t.Fatal(err)
	}
	for name, from := range programs {
		if err := install(from, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "PATH=" + path, dirEnv + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as %s: %v", u.Username, err)
	}
	return string(out)
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
