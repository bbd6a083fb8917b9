//go:build linux

package secrets

import (
	"os"
	"strings"
	"testing"
)

// look is a secret's source that tells what it sees of the broker that asks it.
const look = `#!/bin/sh
{ cat /proc/$PPID/limits; tr '\0' ' ' < /proc/$PPID/cmdline; echo; tr '\0' '\n' < /proc/$PPID/environ; ls -l /proc/$PPID/fd; } > "$HOME/seen" 2>&1
setpriv --reuid 65534 --clear-groups cat /proc/$PPID/environ > "$HOME/other" 2>&1
printf %s VALUE
`

// TestBroker: the process that has a value in the clear leaves no core, is closed to other users, and has the value neither
// in its arguments nor in its environment; what its source prints is in no event.
func TestBroker(t *testing.T) {
	h, v := newHouse(t), value()
	if err := os.WriteFile(h.file("other"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	value := h.file("value")
	if err := os.WriteFile(value, []byte(v), 0o600); err != nil {
		t.Fatal(err)
	}
	source := h.file("source")
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(look, "printf %s VALUE", "cat "+value)), 0o755); err != nil {
		t.Fatal(err)
	}
	h.must("", "secret", "add", "KEY", "--exec", source)
	world.take()
	r := h.inside("container", []step{{"do": "http", "url": "https://api.example/headers", "header": map[string]string{"X-Api-Key": "${KEY}"}}},
		"--allow", "api.example", "--secret", "KEY@api.example")
	if got := world.take(); len(got) != 1 || got[0].Header.Get("X-Api-Key") != v {
		t.Errorf("%+v, %+v", got, r)
	}
	seen, err := os.ReadFile(h.file("seen"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(seen)), " ")
	if !strings.Contains(text, "Max core file size 0 0") || !strings.Contains(text, "rung-broker lease") || len(holds(seen, v)) > 0 {
		t.Errorf("%s", seen)
	}
	if other, err := os.ReadFile(h.file("other")); err != nil || !strings.Contains(string(other), "ermission denied") {
		t.Errorf("another user reads the broker: %q, %v", other, err)
	}
	if err := os.Remove(value); err != nil {
		t.Fatal(err)
	}
	h.nowhereOutside(v)
}
