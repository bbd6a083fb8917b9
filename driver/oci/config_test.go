package oci

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
)

func written(t *testing.T, r rung.Rung, runtime string) (*specs.Spec, []byte) {
	t.Helper()
	s := spec{
		Rung: r, Runtime: Runtime{Name: runtime, Path: "/bin/" + runtime}, Limits: rung.DefaultLimits(),
		IDs: held.IDs{Base: 1 << 20, Count: 65536}, Tree: held.Tree{UID: held.UserUID},
	}
	if r == rung.Container {
		s.Tree.UID = 0
	}
	doc, err := s.bundle("x1", "/run/rung/sandboxes/x1").document()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	// Every member rung writes is one of the specification, under the same name and of the same type.
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var c specs.Spec
	if err := dec.Decode(&c); err != nil {
		t.Fatalf("%s with %s: %v\n%s", r, runtime, err, raw)
	}
	return &c, raw
}

func TestConfigIsOfTheSpecification(t *testing.T) {
	for _, r := range []rung.Rung{rung.Container, rung.Hardened, rung.GVisor} {
		for _, runtime := range []string{"crun", "runc", "runsc"} {
			written(t, r, runtime)
		}
	}
}

// What hardened inverts, read back through the specification's own types.
func TestHardenedInvertsTheDefaults(t *testing.T) {
	c, _ := written(t, rung.Hardened, "crun")
	p := c.Process
	if !c.Root.Readonly || !p.NoNewPrivileges || p.Terminal || p.User.UID != held.GuestUID {
		t.Errorf("root %+v, process %+v", c.Root, p)
	}
	if caps := p.Capabilities; slices.Contains(caps.Bounding, "CAP_SYS_ADMIN") || len(caps.Bounding) != 4 {
		t.Errorf("capabilities of rung-guest: %v", caps.Bounding)
	}
	var kinds []string // network, IPC and UTS namespaces are the holder's, made before
	for _, ns := range c.Linux.Namespaces {
		if ns.Path != "" {
			t.Errorf("joins the %s namespace %s", ns.Type, ns.Path)
		}
		kinds = append(kinds, string(ns.Type))
	}
	for _, want := range []string{"user", "pid", "mount", "cgroup"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s namespace", want)
		}
	}
	for _, m := range c.Mounts {
		if m.Destination == "/sys" || m.Type == "bind" {
			t.Errorf("mounts %+v", m)
		}
		if !slices.Contains(m.Options, "nosuid") {
			t.Errorf("%s without nosuid", m.Destination)
		}
	}
	if len(c.Linux.Devices) != 0 || c.Linux.Seccomp == nil || c.Linux.Seccomp.ListenerPath == "" {
		t.Error("devices, or no seccomp listener")
	}
}

// crun takes the absence of flags for a wish for SPEC_ALLOW, which would switch a mitigation off.
func TestSeccompFlagsAreEmptyNotAbsent(t *testing.T) {
	for _, r := range []rung.Rung{rung.Container, rung.Hardened} {
		if _, raw := written(t, r, "crun"); !bytes.Contains(raw, []byte(`"flags":[]`)) {
			t.Errorf("%s: %s", r, raw)
		}
	}
}
