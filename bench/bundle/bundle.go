// Package bundle writes the OCI bundles that the bare runtimes are measured with: what a person would write by hand who
// wants a plain container without a network, and nothing of what rung adds.
package bundle

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Options of one bundle. Exactly one of RootFS and Host is used.
type Options struct {
	RootFS string   // a directory that becomes the read-only root
	Host   bool     // the host's own /usr, read-only, in an empty root: what rung's template "host" shows
	Args   []string // the command
}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type,omitempty"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

type object = map[string]any

// Write makes dir a bundle: config.json and, for Host, the root it needs.
func Write(dir string, o Options) error {
	mounts := []mount{
		{"/proc", "proc", "proc", nil},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"/tmp", "tmpfs", "tmpfs", []string{"nosuid", "nodev"}},
	}
	root := o.RootFS
	if o.Host {
		root = filepath.Join(dir, "rootfs")
		var err error
		if mounts, err = hostRoot(root, mounts); err != nil {
			return err
		}
	}
	caps := []string{"CAP_KILL", "CAP_NET_BIND_SERVICE"}
	config := object{
		"ociVersion": "1.0.2",
		"process": object{
			"terminal": false, "user": object{"uid": 0, "gid": 0}, "args": o.Args, "cwd": "/", "noNewPrivileges": true,
			"env":          []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			"capabilities": object{"bounding": caps, "effective": caps, "permitted": caps},
		},
		"root":     object{"path": root, "readonly": true},
		"hostname": "bench",
		"mounts":   mounts,
		"linux": object{"namespaces": []object{
			{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
		}},
	}
	data, err := json.MarshalIndent(config, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
}

// hostRoot makes an empty root with the host's merged-usr links in it, and the bind of /usr.
func hostRoot(root string, mounts []mount) ([]mount, error) {
	for _, d := range []string{"usr", "proc", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, err
		}
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + l)
		if err != nil {
			continue // not on this architecture
		}
		if err := os.Symlink(target, filepath.Join(root, l)); err != nil && !errors.Is(err, fs.ErrExist) { // a bundle may be written twice
			return nil, err
		}
	}
	return append(mounts, mount{"/usr", "bind", "/usr", []string{"bind", "ro", "nosuid", "nodev"}}), nil
}
