//go:build linux

// Package guest is rung-guest: the agent inside every sandbox. It starts processes and does file work for the clients of
// one control channel, in every rung the same way.
//
// # Protocol
//
// HTTP/1.1, on each connection of the control channel (internal/sys/mux) or of a Unix socket:
//
//   - the Connect services process.Process and filesystem.Filesystem (see api/) in JSON
//   - GET and POST /files, GET /health, /metrics, /envs, as E2B clients use them
//   - GET /rung/v1/measure, what a user process here can and cannot do
//
// Extension headers, which other clients do not send: Rung-Replay on Connect replays kept output from a byte offset (one
// for both outputs, or "STDOUT,STDERR"); Rung-Nofollow: 1 on reads refuses symbolic links anywhere in a path, and anything
// but regular files and directories; Rung-Mode on POST /files sets the permission bits.
//
// # Trust
//
// The guest is not the user's code: it has a uid of its own, cannot be traced or signalled by user code, and holds only the
// capabilities to become the user and to signal. It is no witness either: once user code has run, nothing it says is
// evidence to the outside. It does all file work as the user, on paths that it resolves itself and never outside its root.
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rung-dev/rung/internal/guest/ident"
)

// Config is what `rung-guest serve` takes, as one JSON argument.
type Config struct {
	ControlFD int             `json:"control_fd"` // connected stream: the control channel; 0 with Listen
	Listen    string          `json:"listen"`     // path of a Unix socket to listen on instead, for tests
	User      ident.User      `json:"user"`       // who processes run as when a call names nobody
	Workdir   string          `json:"workdir"`    // where they run when a call names nothing; "" is the user's home
	Env       []string        `json:"env"`        // "K=V" that every process gets
	DropCaps  bool            `json:"drop_caps"`  // see package harden
	Init      bool            `json:"init"`       // PID 1 of a namespace of its own
	Spare     bool            `json:"spare"`      // make threads ahead: user code can use up the process cap we share with it
	Output    int             `json:"output_buffer"`
	Root      string          `json:"files_root"`        // file work stays below it; "" is "/"
	MaxUpload int64           `json:"max_upload"`        // bytes of one upload; 0 is as much as fits
	Confine   json.RawMessage `json:"confine,omitempty"` // package confine; absent in rungs with a container runtime
}

// defaultPath is what a process finds programs in when nothing else is said.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ParseConfig reads and checks the argument. Unknown fields are errors: host and guest come from one build.
func ParseConfig(arg string) (*Config, error) {
	dec := json.NewDecoder(strings.NewReader(arg))
	dec.DisallowUnknownFields()
	c := &Config{}
	if err := dec.Decode(c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return c, c.check()
}

func (c *Config) check() error {
	if (c.ControlFD > 0) == (c.Listen != "") {
		return errors.New("config: give control_fd or listen")
	}
	if c.ControlFD != 0 && c.ControlFD < 3 {
		return errors.New("config: control_fd is a standard descriptor")
	}
	if c.User.Name == "" || !strings.HasPrefix(c.User.Home, "/") || c.User.UID < 0 || c.User.GID < 0 {
		return errors.New("config: user needs name, ids and an absolute home")
	}
	if c.Workdir == "" {
		c.Workdir = c.User.Home
	}
	if c.Root == "" {
		c.Root = "/"
	}
	if !strings.HasPrefix(c.Workdir, "/") || !strings.HasPrefix(c.Root, "/") {
		return errors.New("config: workdir and files_root must be absolute")
	}
	for _, kv := range c.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			return errors.New("config: env must be K=V")
		}
	}
	return nil
}
