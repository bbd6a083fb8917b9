// Package held is the half of a driver that all sandboxes with a holder share: names, locks, id ranges, control groups, the
// holder itself, and the file tree a sandbox starts from. A driver on top of it says only which wall to build.
//
// The other half runs in the holder process: see Tree and Enter, which a driver's build calls there.
package held

import (
	"os"
	"path/filepath"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/holder"
)

// Host says where rung keeps its things on this host. All paths are absolute.
type Host struct {
	StateDir   string // survives reboots: templates, blank disks, keys, records
	RuntimeDir string // does not: live sandboxes, id slots
	Guest      string // the rung-guest program
	// Seed waits for the start of a holder that is being started ahead, for the first sandbox that can use it, and returns it,
	// nil if that failed; it is nil itself if none is.
	Seed func() *holder.Seed
}

// Ids inside a sandbox, the same in every template (see internal/image).
const (
	GuestUID = 990  // "rung": rung-guest
	UserUID  = 1000 // "user": user code
)

// IDs are the ids of a sandbox as its holder's user namespace knows them: Base to Base+Count-1 are 0 to Count-1 inside. For
// root these are host ids, 65,536 of them. An ordinary user with subordinate ids has 1,024 for each sandbox, which takes
// rung-guest and user code but no odd owners of image files; one without has a single id, Base 0 and Count 1.
type IDs struct {
	Base  uint32 `json:"base"`
	Count uint32 `json:"count"`
}

// Single reports whether one id is all there is, so that rung-guest and user code share it.
func (i IDs) Single() bool { return i.Count == 1 }

const (
	rootCount     = 65536
	rootlessCount = 1024
)

const (
	// firstID is the first host id of slot 0: above the ranges that useradd hands out (login.defs SUB_UID_MAX,
	// 600,100,000) and that systemd uses for containers (up to 0x6FFFFFFF), below its foreign ids (0x7FFE0000).
	firstID = 0x70000000
	// firstHolderID is the uid of slot 0's holder; no sandbox maps these.
	firstHolderID = 0x6FFE0000
)

// Site is what one sandbox has on the host before its wall is built.
type Site struct {
	ID       string
	Dir      string // its runtime directory
	Slot     int
	IDs      IDs // that are this sandbox's alone while it lives
	Rootless bool
	HideV2   bool     // the cgroup v2 mount of a hybrid layout must be hidden from crun
	Join     []string // files into which the runtime's first thread writes its id (cgroup v1 "tasks")
	CgroupV2 string   // directory to start the runtime in, "" on v1 or without limits
	Guest    string   // the copy of rung-guest for sandboxes
}

// sandboxes is where the runtime directories of live sandboxes are.
func (h Host) sandbox(id string) string { return filepath.Join(h.RuntimeDir, "sandboxes", id) }

// rootless reports whether walls must be built with an ordinary user's means.
func rootless() bool { return os.Geteuid() != 0 }

var errNoGuest = rung.Errorf(rung.KindUnavailable, "rung-guest is not found").
	WithHint("put rung-guest beside rung or in PATH; `make` builds both into bin/")
