package oci

import "encoding/json"

// The part of the OCI runtime specification that rung writes (github.com/opencontainers/runtime-spec, config.md and
// config-linux.md; a test checks it against that module's types). The module's own types describe every platform and
// resource there is, and making JSON encoders for all of them would cost each start a millisecond.

type config struct {
	Version     string            `json:"ociVersion"`
	Hostname    string            `json:"hostname,omitempty"`
	Root        root              `json:"root"`
	Process     *process          `json:"process"`
	Mounts      []mountPoint      `json:"mounts"`
	Linux       linux             `json:"linux"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type root struct {
	Path     string `json:"path"`
	Readonly bool   `json:"readonly"`
}

type process struct {
	User            user         `json:"user"`
	Args            []string     `json:"args"`
	Env             []string     `json:"env"`
	Cwd             string       `json:"cwd"`
	Capabilities    capabilities `json:"capabilities"`
	Rlimits         []rlimit     `json:"rlimits"`
	NoNewPrivileges bool         `json:"noNewPrivileges"`
}

type user struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

type capabilities struct {
	Bounding    []string `json:"bounding"`
	Effective   []string `json:"effective"`
	Inheritable []string `json:"inheritable,omitempty"`
	Permitted   []string `json:"permitted"`
	Ambient     []string `json:"ambient,omitempty"`
}

type rlimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

type mountPoint struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

type linux struct {
	Namespaces    []namespace `json:"namespaces"`
	UIDMappings   []idMapping `json:"uidMappings,omitempty"`
	GIDMappings   []idMapping `json:"gidMappings,omitempty"`
	MaskedPaths   []string    `json:"maskedPaths,omitempty"`
	ReadonlyPaths []string    `json:"readonlyPaths,omitempty"`
	// Seccomp is raw: crun tells an empty list of flags, which rung needs, from no list, and the module's type does not.
	Seccomp json.RawMessage `json:"seccomp,omitempty"`
}

type namespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

type idMapping struct {
	ContainerID uint32 `json:"containerID"`
	HostID      uint32 `json:"hostID"`
	Size        uint32 `json:"size"`
}
