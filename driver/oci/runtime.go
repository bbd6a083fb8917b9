package oci

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
)

// Runtime is an OCI runtime found on this host.
type Runtime struct {
	Name string `json:"name"` // crun, runc or runsc
	Path string `json:"path"`
}

// Find looks for the named runtimes beside this program first, then in PATH and the sbin directories, and returns the
// first that exists; the zero Runtime if none does.
func Find(names ...string) Runtime {
	for _, name := range names {
		if path := held.FindProgram(name); path != "" {
			return Runtime{Name: name, Path: path}
		}
	}
	return Runtime{}
}

// ForRung returns the runtime for a rung: runsc for gvisor and nothing else ever; crun (measured: less than half of runc's
// start time), then runc, for the others.
func ForRung(r rung.Rung) Runtime {
	if r == rung.GVisor {
		return Find("runsc")
	}
	return Find("crun", "runc")
}

// version asks the runtime, through the host's version cache, since asking runsc costs several milliseconds.
func (r Runtime) version(ctx context.Context, host held.Host) (string, error) {
	out, err := host.Version(ctx, r.Path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(out, "\n")
	line = strings.Replace(line, " version", "", 1)
	if !strings.HasPrefix(line, r.Name) {
		line = r.Name + " " + line
	}
	return strings.TrimSpace(line), nil
}

// missing explains how to get a runtime.
func missing(r rung.Rung) error {
	if r == rung.GVisor {
		return rung.Errorf(rung.KindUnavailable, "runsc (gVisor) is not found beside rung or in PATH").
			WithHint("`make` builds bin/runsc from the pinned gVisor module")
	}
	return rung.Errorf(rung.KindUnavailable, "neither crun nor runc is found").WithHint("apt-get install crun")
}

func usable(r Runtime) bool {
	st, err := os.Stat(r.Path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 && filepath.IsAbs(r.Path)
}
