package cgroup

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Lacks tells which limits Create would report as missing, without making or moving anything. It believes permissions and
// lists of controllers; only Create, which reads every limit back, knows.
func (l Layout) Lacks() []string {
	var list []string
	for _, c := range []string{"memory", "pids", "cpu"} {
		if why := l.lacks(c); why != "" {
			list = append(list, c+": "+why+"; "+l.remedy(c))
		}
	}
	return list
}

func (l *Layout) lacks(controller string) string {
	i := slices.IndexFunc(l.trees, func(t tree) bool { return t.has(controller) })
	if i < 0 {
		return noController
	}
	t := &l.trees[i]
	switch {
	case t.readonly:
		return t.mount + " is mounted read-only"
	case l.Version == 1:
		name := l.parent1(t)
		if l.owner() == 0 {
			name = t.mount
		}
		if err := unix.Access(name, unix.W_OK); err != nil {
			return name + " is not writable: " + err.Error()
		}
		return ""
	}
	base, why := delegated(t, l.owner())
	if base == "" {
		return why
	}
	d, err := openDir(unix.AT_FDCWD, base, base, nil)
	if err != nil {
		return err.Error()
	}
	defer d.close()
	have, err := d.read("cgroup.controllers")
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(strings.Fields(have), controller) {
		return base + " was not given the controller"
	}
	return ""
}
