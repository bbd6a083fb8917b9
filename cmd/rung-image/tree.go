//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rung-dev/rung/internal/image/unpack"
)

// treeJob makes a tree from one archive of a whole Debian system.
func treeJob(j job, root *os.Root) (result, error) {
	tree := unpack.New(root, j.Limits, j.Owners, nil)
	defer tree.Close()
	in := os.NewFile(fdInput, "tree")
	if err := tree.Add(unpack.Layer{Size: -1, Open: func() (io.ReadCloser, error) { return in, nil }}); err != nil {
		return result{}, err
	}
	packages, err := installed(root)
	if err != nil {
		return result{}, err
	}
	if err := forgetHost(root); err != nil {
		return result{}, err
	}
	r := result{
		Digest:   sum([]byte(j.Reference + "\n" + strings.Join(packages, "\n") + "\n")),
		Arch:     j.Arch,
		Packages: packages,
		Config:   config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}},
	}
	return finish(j, root, tree, r)
}

// installed lists name=version of all packages, sorted.
func installed(root *os.Root) ([]string, error) {
	data, err := readSmall(root, "var/lib/dpkg/status", 64<<20)
	if err != nil {
		return nil, fmt.Errorf("the tree's package database: %w", err)
	}
	var list []string
	for paragraph := range strings.SplitSeq(string(data), "\n\n") {
		fields := map[string]string{}
		for line := range strings.SplitSeq(paragraph, "\n") {
			if key, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
				fields[key] = value
			}
		}
		if strings.HasSuffix(fields["Status"], " installed") {
			list = append(list, fields["Package"]+"="+fields["Version"])
		}
	}
	if len(list) == 0 {
		return nil, errors.New("the tree has no packages")
	}
	slices.Sort(list)
	return list, nil
}

// forgetHost removes what tells how this host reaches its mirrors: proxies, and passwords in addresses.
func forgetHost(root *os.Root) error {
	if err := root.RemoveAll("etc/apt/apt.conf.d/99mmdebstrap"); err != nil {
		return err
	}
	files := []string{"etc/apt/sources.list"}
	if d, err := root.Open("etc/apt/sources.list.d"); err == nil {
		entries, err := d.ReadDir(-1)
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}
		for _, e := range entries {
			files = append(files, path.Join("etc/apt/sources.list.d", e.Name()))
		}
	}
	for _, name := range files {
		data, err := readSmall(root, name, 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := root.WriteFile(name, []byte(withoutPasswords(string(data))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withoutPasswords removes user:password@ from every address in a text.
func withoutPasswords(text string) string {
	parts := strings.Split(text, "://")
	for i := 1; i < len(parts); i++ {
		host := parts[i]
		if end := strings.IndexAny(host, "/ \t\n"); end >= 0 {
			host = host[:end]
		}
		if at := strings.LastIndex(host, "@"); at >= 0 {
			parts[i] = parts[i][at+1:]
		}
	}
	return strings.Join(parts, "://")
}

// readSmall reads a regular file of the tree, never a link.
func readSmall(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("/%s: not a file of at most %d bytes", name, limit)
	}
	return root.ReadFile(name)
}
