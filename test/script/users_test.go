//go:build linux

package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// person is an ordinary user that stories act as, with state and runtime directories of his own.
type person struct {
	uid, gid string
	home     string
}

// people are the words that stories have for users, and the account behind each. asuser is the one `make testuser` makes;
// the others differ in what they were given, are made when a story asks for them, and stay.
var people = map[string]struct {
	account string
	add     []string // options of useradd
}{
	"asuser":      {},
	"undelegated": {"rung-undelegated", nil},
	"delegated":   {"rung-delegated", nil},
	"single":      {"rung-single", []string{"-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0"}},
}

// accounts serialises useradd, which locks /etc/passwd without patience.
var accounts sync.Mutex

func account(word string) (*user.User, error) {
	p := people[word]
	if p.account == "" {
		return testUser()
	}
	accounts.Lock()
	defer accounts.Unlock()
	u, err := user.Lookup(p.account)
	if err == nil {
		return u, nil
	}
	add := append(append([]string{"--no-create-home", "--shell", "/bin/sh"}, p.add...), p.account)
	if out, err := exec.Command("useradd", add...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("useradd %s: %w: %s", p.account, err, out)
	}
	return user.Lookup(p.account)
}

// testUser is the ordinary user that `make testuser` creates.
func testUser() (*user.User, error) {
	name := os.Getenv("RUNG_TEST_USER")
	if name == "" {
		name = "rung-tester"
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("no ordinary user %s (make testuser): %w", name, err)
	}
	return u, nil
}

// person makes the directories of a user of this story, once.
func (s *story) person(word string) (*person, error) {
	if p := s.people[word]; p != nil {
		return p, nil
	}
	u, err := account(word)
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	p := &person{uid: u.Uid, gid: u.Gid, home: filepath.Join(s.short, word[:1])}
	if err := s.place(p.home, uid, gid); err != nil {
		return nil, err
	}
	s.people[word] = p
	return p, nil
}

// place makes a home with state and runtime directories, and watches the latter.
func (s *story) place(home string, uid, gid int) error {
	for _, d := range []string{"", "run", "run/sandboxes", "state"} {
		d = filepath.Join(home, d)
		if err := errors.Join(os.MkdirAll(d, 0o711), os.Chmod(d, 0o711), os.Chown(d, uid, gid)); err != nil {
			return err
		}
	}
	s.dirs = append(s.dirs, filepath.Join(home, "run"))
	s.state = append(s.state, filepath.Join(home, "state"))
	return s.watch.add(filepath.Join(home, "run", "sandboxes"))
}

// as is the command line that runs args as that user.
func (p *person) as(args []string) []string {
	return append([]string{
		"env", "RUNG_STATE_DIR=" + p.home + "/state", "RUNG_RUNTIME_DIR=" + p.home + "/run", "HOME=" + p.home,
		"setpriv", "--reuid=" + p.uid, "--regid=" + p.gid, "--init-groups", "--",
	}, args...)
}

// cmdDelegate does what rung tells an administrator to do for a user, for as long as the story lasts.
func cmdDelegate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: delegate")
	}
	p, err := of(ts).person("delegated")
	ts.Check(err)
	uid, _ := strconv.Atoi(p.uid)
	gid, _ := strconv.Atoi(p.gid)
	for _, c := range []string{"memory", "pids", "cpu"} {
		dir := "/sys/fs/cgroup/" + c + "/rung-" + p.uid
		ts.Check(os.MkdirAll(dir, 0o755))
		ts.Defer(func() { _ = os.Remove(dir) })
		files, err := filepath.Glob(dir + "/*")
		ts.Check(err)
		for _, f := range append(files, dir) {
			ts.Check(os.Chown(f, uid, gid))
		}
	}
}
