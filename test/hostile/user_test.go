//go:build linux

package hostile

import (
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/driver/oci"
	"github.com/rung-dev/rung/test/ordinary"
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
	from := map[string]string{
		"rung": place("rung"), "rung-guest": place("rung-guest"), "probe": place("probe"), "evil": place("evil"),
	}
	for name, program := range map[string]string{"runsc": oci.ForRung(rung.GVisor).Path, "crun": held.FindProgram("crun")} {
		if program != "" {
			from[name] = program
		}
	}
	out := ordinary.Run(t, u, from, dirEnv, path, "-test.v", "-test.run=^(TestWalls|TestDiskFills)$", "-test.timeout=5m")
	for line := range strings.Lines(out) {
		t.Log(strings.TrimSpace(line))
	}
}
