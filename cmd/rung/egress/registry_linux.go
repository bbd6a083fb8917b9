package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/session"
)

// discoverTimeout bounds asking this host's package clients for their configuration.
const discoverTimeout = 30 * time.Second

// registries turns --registry into rules, and into what the clients inside need to ask the same registries as this host's.
// The gate's program reads the configuration, as the caller and not as the gate: this program stays small.
func (n *Network) registries(ctx context.Context, list []string, minAge string, o *control.Open) error {
	if len(list) == 0 {
		if minAge != "" {
			return rung.Errorf(rung.KindInvalid, "--min-age is about --registry, and there is none").WithHint("in a policy file it is min_age of a rule's registry")
		}
		return nil
	}
	if minAge != "" {
		list = append([]string{"--min-age", minAge}, list...)
	}
	program := held.FindProgram("rung-gate")
	if program == "" {
		return errNoGate
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"registries"}, list...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return rung.Errorf(rung.KindUnavailable, "find this host's registries: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var found control.Registries
	if err := json.Unmarshal(stdout.Bytes(), &found); err != nil {
		return rung.Errorf(rung.KindInternal, "find this host's registries: %w", err)
	}
	if found.Failed != nil {
		return found.Failed.Err()
	}
	o.Rules = append(o.Rules, found.Rules...)
	for name, value := range found.Env {
		n.env = append(n.env, name+"="+value)
	}
	slices.Sort(n.env)
	for path, data := range found.Files {
		n.inputs = append(n.inputs, session.Input{Inside: path, Data: data, Mode: 0o644})
	}
	n.notes = append(n.notes, found.Notes...)
	return nil
}
