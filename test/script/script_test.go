//go:build linux

package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Stories may take long only by hanging, which is what many of them are about.
func TestStories(t *testing.T) {
	testscript.Run(t, params(t, "testdata/story", turn{}))
}

// TestEachRung tells the same stories on every rung, as root and as an ordinary user.
func TestEachRung(t *testing.T) {
	for _, name := range []string{"none", "process", "container", "hardened", "gvisor"} {
		t.Run(name, func(t *testing.T) { testscript.Run(t, params(t, "testdata/each", turn{rung: name})) })
		t.Run(name+"-user", func(t *testing.T) { testscript.Run(t, params(t, "testdata/each", turn{rung: name, asUser: true})) })
	}
}

// turn is one column of the matrix.
type turn struct {
	rung   string
	asUser bool // as the ordinary user
}

// flags are what `run` stands for.
func (r turn) flags() []string {
	f := []string{"-q", "--rung", r.rung}
	switch r.rung {
	case "none":
		f = append(f, "--i-know-this-is-not-a-sandbox")
	case "process", "container", "hardened":
		f = append(f, "--accept-lower", r.rung)
	}
	if r.asUser {
		f = append(f, "--best-effort-limits")
	}
	return f
}

func params(t *testing.T, dir string, r turn) testscript.Params {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can play both root and ordinary users")
	}
	bin := programs(t)
	if r.asUser {
		if _, err := testUser(); err != nil {
			t.Skip(err)
		}
	}
	if r.rung == "gvisor" {
		if _, err := os.Stat(filepath.Join(bin, "runsc")); err != nil {
			t.Skip("runsc is not built (make bin/runsc)")
		}
	}
	return testscript.Params{
		Dir: dir, WorkdirRoot: root(t), RequireUniqueNames: true,
		Setup:     func(env *testscript.Env) error { return setup(env, bin, r) },
		Cmds:      commands(),
		Condition: r.condition,
	}
}

// root is where stories work: short, since the path of a Unix socket has at most 107 bytes, and open to the ordinary user.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() || os.Getenv("RUNG_KEEP") == "" {
			_ = os.RemoveAll(dir)
		}
	})
	return dir
}

// story is what the commands know of the script they run in.
type story struct {
	turn
	short      string   // where all that stories leave on disk is, below a name that is short whatever the story is called
	dirs       []string // runtime directories of everybody in the story
	state      []string
	watch      *watch
	people     map[string]*person
	background map[string]*background
}

func setup(env *testscript.Env, bin string, r turn) error {
	short, err := os.MkdirTemp(filepath.Dir(env.WorkDir), "")
	if err != nil {
		return err
	}
	s := &story{turn: r, short: short, people: map[string]*person{}, background: map[string]*background{}}
	if s.watch, err = newWatch(); err != nil {
		return err
	}
	mine := filepath.Join(short, "r")
	if err := errors.Join(os.Chmod(short, 0o755), os.Chmod(env.WorkDir, 0o777), s.place(mine, 0, 0)); err != nil {
		return err
	}
	var run []string
	if r.rung != "" {
		if run, err = s.argv([]string{"run"}); err != nil {
			return err
		}
	}
	env.Values[storyKey{}] = s
	env.Vars = append(env.Vars, "PATH="+bin+":"+env.Getenv("PATH"), "HOME="+env.WorkDir,
		"RUNG_STATE_DIR="+mine+"/state", "RUNG_RUNTIME_DIR="+mine+"/run", "RUNG="+r.rung, "RUN="+strings.Join(run, " "))
	env.Defer(func() {
		s.stop()
		s.watch.close()
	})
	return nil
}

type storyKey struct{}

func of(ts *testscript.TestScript) *story { return ts.Value(storyKey{}).(*story) }

// programs returns the directory with rung and its helpers: RUNG_BIN, or a fresh build.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("RUNG_BIN"); dir != "" {
		return dir
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "rsbin")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/",
		"./cmd/rung", "./cmd/rung-guest", "./cmd/rung-gate", "./cmd/rung-broker", "./cmd/rung-image", "./cmd/rung-strip")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	runsc, err := filepath.Abs("../../bin/runsc")
	if err != nil {
		return "", err
	}
	if _, missing := os.Stat(runsc); missing == nil {
		err = os.Symlink(runsc, dir+"/runsc")
	}
	return dir, errors.Join(err, os.Chmod(dir, 0o755))
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("RUNG_BIN") == "" {
		if dir, err := built(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// condition returns what a story may ask of its turn and its host, beyond exec:NAME of testscript.
func (r turn) condition(cond string) (bool, error) {
	kind, value, _ := strings.Cut(cond, ":")
	switch kind {
	case "rung":
		return r.rung == value, nil
	case "user":
		return r.asUser, nil
	case "root":
		return !r.asUser, nil
	case "has":
		_, err := os.Stat(value)
		return err == nil, nil
	}
	return false, fmt.Errorf("unknown condition %s; known: rung:NAME user root has:PATH", cond)
}
