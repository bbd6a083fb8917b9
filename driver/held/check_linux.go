package held

import (
	"os"
	"os/user"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/cgroup"
	"github.com/rung-dev/rung/internal/sys/userns"
)

// Hybrid reports whether this host mounts cgroup v1 controllers with a version 2 hierarchy beside them, which crun refuses
// while the latter holds any controller.
func Hybrid() bool {
	var v1, v2 unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &v1) == nil && v1.Type == unix.TMPFS_MAGIC &&
		unix.Statfs("/sys/fs/cgroup/unified", &v2) == nil && v2.Type == unix.CGROUP2_SUPER_MAGIC
}

// SingleID reports whether sandboxes get only one id, the caller's: an ordinary user without subordinate ids. rung-guest
// and user code then share it.
func SingleID() bool {
	if !rootless() {
		return false
	}
	_, _, ok := subordinate()
	return !ok
}

// subordinate returns the caller's subordinate ranges, and whether they can be mapped here.
func subordinate() (uids, gids userns.Range, ok bool) {
	if FindProgram("newuidmap") == "" || FindProgram("newgidmap") == "" {
		return uids, gids, false
	}
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return uids, gids, false
	}
	uids, gids, ok = userns.SubIDs(u.Username, os.Geteuid())
	return uids, gids, ok && uids.Size >= rootlessCount && gids.Size >= rootlessCount
}

// layouts is how this host keeps its control groups, looked up once: it costs a tenth of a millisecond, every run asks
// several times, and it does not change while a system is up.
var layouts = sync.OnceValues(cgroup.Detect)

// CheckHost tells what every wall with a holder needs of this host. limits are those it cannot enforce.
func CheckHost() (limits, notes []string, err error) {
	layout, err := layouts()
	if err != nil {
		return nil, nil, err
	}
	limits = layout.Lacks()
	if !rootless() {
		return limits, nil, nil
	}
	notes = append(notes, "as an ordinary user: files of the host show as nobody's, and work and home are memory within the memory cap")
	if SingleID() {
		notes = append(notes, "no subordinate ids (newuidmap, /etc/subuid): one id inside, so rung-guest and user code are not apart")
	}
	if raw, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && string(raw) == "0\n" {
		return limits, notes, rung.Errorf(rung.KindUnavailable, "user namespaces are switched off (user.max_user_namespaces=0)").
			WithHint("sysctl user.max_user_namespaces=10000, or run as root")
	}
	return limits, notes, nil
}
