// Package image keeps templates: root file systems that sandboxes start from, read-only, and what is known about them.
//
// A template is a directory below the state directory:
//
//	<state>/templates/<name>/
//	    template.json  what Template says, one small file: the only thing a run reads
//	    rootfs/        the tree
//	    lock           held shared by every sandbox that uses the template, exclusively by who removes it
//
// There are three kinds. `host` is the default: the host's own /usr shown read-only below a generated /etc, made in a few
// milliseconds and made again when the host changed. `debian` and `oci` trees are built by the program rung-image, which
// alone links registry code; they enter the store through Begin and Commit.
//
// Ownership is a held lock, never a file's existence: a build happens in a directory named .new-<random>, locked while its
// builder lives, and appears under its name by one rename. What a killed builder leaves is invisible and removed by the
// next build, removal or listing.
//
// A tree is hostile input even after unpacking, since whoever made the image chose every name and link in it. Nothing in
// this package follows a link of a tree: everything goes through os.Root and Lstat (see Prepare).
package image

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// Kind says where a template comes from.
type Kind string

// The kinds of templates.
const (
	Host   Kind = "host"   // the host's /usr, read-only, and a generated /etc
	Debian Kind = "debian" // built from Debian's packages
	OCI    Kind = "oci"    // unpacked from a container image
)

// HostName is the name of the built-in template. No other template can have it.
const HostName = "host"

// OwnerBase is the first of the 65536 host ids that own the files of unpacked images when rung-image runs as root: far
// above the ids of accounts and of live sandboxes, so that no process on the host has one of them. Mounts that show such a
// tree map OwnerBase+n to n (see Template.OwnerBase).
const (
	OwnerBase  = 0x6fff0000
	OwnerCount = 65536
)

// Ids every tree knows; the names are in its passwd and group.
const (
	GuestUID = 990  // "rung": rung-guest
	UserUID  = 1000 // "user": the code's own account
)

// Template describes one root file system. Root and absolute bind sources are filled in when it is read, so that a state
// directory can be moved.
type Template struct {
	Format  int       `json:"format"` // of this file: see formatVersion
	Name    string    `json:"name"`
	Kind    Kind      `json:"kind"`
	Digest  string    `json:"digest"` // sha256:… of the content's identity; of the host's state for host
	Created time.Time `json:"created"`
	Source  Source    `json:"source"`
	Arch    string    `json:"arch"` // in Go's words: amd64, arm64

	Env        []string `json:"env,omitempty"` // "K=V"
	Workdir    string   `json:"workdir,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	User       string   `json:"user,omitempty"` // what the image asks for; sandboxes choose their own
	Packages   []string `json:"-"`              // name=version, for debian; only Inspect reads them, from a file of their own

	// OwnerBase is the host id that owns the tree's root-owned files: 0 where ids are as they are on disk.
	OwnerBase uint32   `json:"owner_base"`
	Binds     []Bind   `json:"binds,omitempty"`
	Notes     []string `json:"notes,omitempty"` // what is lost or changed against the source, in words

	Root string `json:"-"` // absolute path of rootfs
}

// Source names what a template was made from.
type Source struct {
	Reference string `json:"reference"`        // what the caller named: an image reference, a path, a variant
	Digest    string `json:"digest,omitempty"` // of the manifest it resolved to
}

// Bind shows the host path Source read-only at Target inside. A relative Source is below the template's directory on disk
// and absolute once read.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

const (
	formatVersion = 1
	maxJSON       = 4 << 20 // a template.json above this is damage: the package list of a full Debian is a tenth of it
)

// decode reads a template.json that lies in dir.
func decode(dir, name string, data []byte) (Template, error) {
	var t Template
	if err := json.Unmarshal(data, &t); err != nil {
		return Template{}, fmt.Errorf("template %s: damaged template.json: %w", name, err)
	}
	if t.Format != formatVersion {
		return Template{}, rung.Errorf(rung.KindConflict, "template %s: written by another version of rung (format %d, this one reads %d)",
			name, t.Format, formatVersion).WithHint("rung template rm " + name + ", then build or import it again")
	}
	if t.Name != name {
		return Template{}, fmt.Errorf("template %s: its template.json says %q", name, t.Name)
	}
	t.Root = filepath.Join(dir, "rootfs")
	for i, b := range t.Binds {
		if !filepath.IsAbs(b.Source) {
			t.Binds[i].Source = filepath.Join(dir, b.Source)
		}
	}
	// Looked up now and not when the template was made, so that an update of the host's bundle shows up.
	if bundle, ok := HostCABundle(); ok && t.Kind != Host {
		t.Binds = append(t.Binds, Bind{Source: bundle, Target: CAInside})
	}
	return t, nil
}

// encode writes a template.json; dir is where Commit will move the template to or where it was read from.
func (t Template) encode(dir string) ([]byte, error) {
	t.Format = formatVersion
	var binds []Bind
	for _, b := range t.Binds {
		if b.Target == CAInside {
			continue // decode adds the one of the day
		}
		if rel, ok := strings.CutPrefix(b.Source, dir+"/"); ok {
			b.Source = rel
		}
		binds = append(binds, b)
	}
	t.Binds = binds
	data, err := json.MarshalIndent(t, "", "  ")
	return append(data, '\n'), err
}
