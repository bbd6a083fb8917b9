package held

import (
	"os"
	"path/filepath"

	"github.com/rung-dev/rung/driver"
)

// Root is where the tree of the sandbox in dir is mounted, in the holder's mount namespace. An ordinary user's directories
// (home, XDG_RUNTIME_DIR) let nobody else through, not even the ids of his own sandbox: there it is in a place of the
// holder's own.
func Root(dir string, rootless bool) string {
	if rootless {
		return filepath.Join(passable, "root")
	}
	return filepath.Join(dir, "root")
}

// passable is a directory of every Linux system that everybody may pass through; the holder mounts a tmpfs over it.
const passable = "/dev/shm"

// Tree is the file system of one sandbox: the template, read-only or under a throw-away upper layer, with the sandbox's own
// writable places in it.
type Tree struct {
	Template   driver.Template `json:"template"`
	Guest      string          `json:"guest"`    // shown at GuestInside
	IDs        IDs             `json:"ids"`      // of the sandbox; the zero value = no user namespace, ids are the holder's own
	UID        int             `json:"uid"`      // owner of work and home, as an id inside
	Disk       int64           `json:"disk"`     // bytes for everything writable but /tmp
	Memory     int64           `json:"memory"`   // the sandbox's memory cap: bounds /tmp, and the disk where it must be memory
	Writable   bool            `json:"writable"` // the whole tree can be written to (rung container)
	Devices    bool            `json:"devices"`  // make /dev, /dev/shm, /dev/pts and /tmp too: no runtime does it
	StateDir   string          `json:"state_dir"`
	RuntimeDir string          `json:"runtime_dir"`
	Rootless   bool            `json:"rootless"`
	Files      []string        `json:"files,omitempty"` // driver.Spec.Files: where they are shown; see Place

	mappings map[uint32]*os.File // in the holder: see mapping
}
