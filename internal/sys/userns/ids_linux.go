package userns

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// maxFile bounds what is read of /etc/subuid.
const maxFile = 4 << 20

// SubIDs are the subordinate ranges of an ordinary user, the largest of each kind; not ok when the user lacks either.
func SubIDs(user string, uid int) (uids, gids Range, ok bool) {
	u, okU := subIDs(read("/etc/subuid"), user, strconv.Itoa(uid))
	g, okG := subIDs(read("/etc/subgid"), user, strconv.Itoa(uid))
	return u, g, okU && okG
}

// read returns a file's text, "" when there is none: no file, no ranges.
func read(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return ""
	}
	return string(b)
}

// NewIDMap maps ids into the user namespace of pid through newuidmap and newgidmap, which may do for an ordinary user
// what the kernel refuses him: several ids, from his subordinate ranges.
func NewIDMap(ctx context.Context, pid int, uids, gids []rung.IDMap) error {
	if pid <= 0 {
		return rung.Errorf(rung.KindInvalid, "map ids of pid %d", pid)
	}
	if err := errors.Join(checkMaps(uids), checkMaps(gids)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		tool string
		maps []rung.IDMap
	}{{"newuidmap", uids}, {"newgidmap", gids}} {
		path, err := exec.LookPath(c.tool)
		if err != nil {
			return rung.Errorf(rung.KindUnavailable, "map ids: %s is not installed", c.tool).WithHint("install the package uidmap")
		}
		cmd := exec.CommandContext(ctx, path, append([]string{strconv.Itoa(pid)}, strings.Fields(mapText(c.maps))...)...)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if err != nil && ctx.Err() != nil { // a host under such load that nothing about its users is wrong
			return rung.Errorf(rung.KindUnavailable, "map ids: %s did not end in time: %w", c.tool, ctx.Err())
		}
		if err != nil {
			return rung.Errorf(rung.KindUnavailable, "map ids: %s: %w: %s", c.tool, err, bytes.TrimSpace(out)).
				WithHint("give the user ranges: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER")
		}
	}
	return nil
}

// MapSelf maps one id, the caller's own, into the user namespace of pid: what every user may do without help. Groups
// cannot be set in it, since a user could drop one that denies him access.
func MapSelf(pid int, insideUID, insideGID uint32) error {
	if pid <= 0 {
		return rung.Errorf(rung.KindInvalid, "map ids of pid %d", pid)
	}
	base := "/proc/" + strconv.Itoa(pid) + "/"
	uid := rung.IDMap{Inside: insideUID, Host: uint32(os.Geteuid()), Size: 1}
	gid := rung.IDMap{Inside: insideGID, Host: uint32(os.Getegid()), Size: 1}
	for _, w := range []struct{ name, text string }{
		{"setgroups", "deny"}, {"uid_map", mapText([]rung.IDMap{uid})}, {"gid_map", mapText([]rung.IDMap{gid})},
	} {
		err := os.WriteFile(base+w.name, []byte(w.text), 0)
		if w.name == "setgroups" && errors.Is(err, fs.ErrNotExist) {
			continue // before Linux 3.19
		}
		if err != nil {
			return rung.Errorf(rung.KindUnavailable, "map ids of pid %d: %w", pid, err)
		}
	}
	return nil
}
