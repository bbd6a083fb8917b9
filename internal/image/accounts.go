package image

import (
	"fmt"
	"strconv"
	"strings"
)

// account is one line of passwd or group: the fields that decide who is who, and the line.
type account struct {
	name string
	id   int // -1 where it is no number
	line string
}

func parseAccounts(text string) []account {
	var list []account
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.SplitN(line, ":", 4)
		if len(fields) < 3 {
			continue // no account: nothing that reads these files makes anything of it
		}
		id, err := strconv.Atoi(fields[2])
		if err != nil {
			id = -1
		}
		list = append(list, account{fields[0], id, line})
	}
	return list
}

// mergeAccounts returns the file with ours at its head after root, so that ours win a look-up by name or by id, and notes
// for those of the image that lose one.
func mergeAccounts(file, text string, root account, ours []account) (string, []string) {
	var notes []string
	var rest []string
	head := root.line
	for _, a := range parseAccounts(text) {
		if a.id == 0 && head == root.line {
			head = a.line
			continue
		}
		keep := true
		for _, o := range ours {
			switch {
			case a.name == o.name && a.id == o.id:
				keep = false
			case a.name == o.name:
				notes = append(notes, fmt.Sprintf("/etc/%s: the name %s is id %d here, not the image's %d", file, o.name, o.id, a.id))
			case a.id == o.id:
				notes = append(notes, fmt.Sprintf("/etc/%s: id %d, %q in the image, is %s here", file, o.id, a.name, o.name))
			}
		}
		if keep {
			rest = append(rest, a.line)
		}
	}
	lines := []string{head}
	for _, o := range ours {
		lines = append(lines, o.line)
	}
	return strings.Join(append(lines, rest...), "\n") + "\n", notes
}

// accounts writes passwd and group so that root, rung and user are in them.
func (p *preparer) accounts() {
	shell := "/bin/sh"
	for _, name := range []string{"bin/bash", "usr/bin/bash"} { // a link that leaves the tree by name is not followed
		if info, err := p.root.Stat(name); err == nil && info.Mode().IsRegular() {
			shell = "/bin/bash"
		}
	}
	passwd, notes := mergeAccounts("passwd", p.read("etc/passwd", 1<<20), account{"root", 0, "root:x:0:0:root:/root:" + shell}, []account{
		{"rung", GuestUID, fmt.Sprintf("rung:x:%d:%d:rung-guest:/:/usr/sbin/nologin", GuestUID, GuestUID)},
		{"user", UserUID, fmt.Sprintf("user:x:%d:%d:user:/home/user:%s", UserUID, UserUID, shell)},
	})
	p.file("etc/passwd", passwd, 0o644)
	group, more := mergeAccounts("group", p.read("etc/group", 1<<20), account{"root", 0, "root:x:0:"}, []account{
		{"rung", GuestUID, fmt.Sprintf("rung:x:%d:", GuestUID)},
		{"user", UserUID, fmt.Sprintf("user:x:%d:", UserUID)},
	})
	p.file("etc/group", group, 0o644)
	p.notes = append(append(p.notes, notes...), more...)
}
