//go:build linux

package posture

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rung-dev/rung"
)

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

const askEnv = "POSTURE_TEST_WHEREAMI"

func TestMain(m *testing.M) {
	if os.Getenv(askEnv) != "" {
		if err := json.NewEncoder(os.Stdout).Encode(Whereami(Here())); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// ask runs this test binary inside something and returns its answer.
func ask(t *testing.T, name string, args ...string) Where {
	t.Helper()
	tool, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), askEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("%s cannot run here: %v", name, err)
	}
	var w Where
	if err := json.Unmarshal(out, &w); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return w
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Real namespaces without a filter: never more than a container, and the reasons are named.
func TestInRealNamespaces(t *testing.T) {
	w := ask(t, "bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr",
		"--ro-bind-try", "/lib", "/lib", "--ro-bind-try", "/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
		"--ro-bind", self(t), "/test", "/test")
	if w.Base != rung.Container || !has(append(w.Holes, w.LoweredBy...), "KRN-01") {
		t.Errorf("%+v", w)
	}
	if !w.Measured.NoNewPrivs || len(w.Measured.Interfaces) != 1 {
		t.Errorf("measured: %+v", w.Measured)
	}
}

// A process of its own user namespace only is no container.
func TestInAUserNamespaceOnly(t *testing.T) {
	w := ask(t, "unshare", "--user", "--map-root-user", self(t))
	if w.Base != rung.Process && w.Base != rung.MicroVM { // the test's machine may be a microVM
		t.Errorf("%+v", w)
	}
}

// An image without anything in it but this binary, under a real runtime with its own defaults.
func TestInARealContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the runtime's default configuration needs root")
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("runc is not installed")
	}
	dir := t.TempDir()
	for _, d := range []string{"proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, self(t), filepath.Join(dir, "rootfs", "test"))
	spec := exec.Command(runc, "spec")
	spec.Dir = dir
	if out, err := spec.CombinedOutput(); err != nil {
		t.Skipf("runc spec: %v %s", err, out)
	}
	patch(t, filepath.Join(dir, "config.json"))
	id := "rung-posture-test-" + filepath.Base(filepath.Dir(dir))
	w := ask(t, "runc", "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, id)
	if w.Rung != rung.Container || w.Base != rung.Container || !has(w.Holes, "PRV-17") {
		t.Errorf("%+v", w)
	}
}

func patch(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	process := c["process"].(map[string]any)
	process["terminal"], process["args"], process["env"] = false, []string{"/test"}, []string{askEnv + "=1"}
	if text, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}

func has(list []Finding, id string) bool {
	for _, f := range list {
		if f.ID == id {
			return true
		}
	}
	return false
}
