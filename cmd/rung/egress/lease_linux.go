package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver/held"
	"github.com/rung-dev/rung/internal/gate/control"
)

// leaseOrder is what `rung-broker lease` reads.
type leaseOrder struct {
	Sandbox   string               `json:"sandbox"`
	Agent     string               `json:"agent"`
	Task      string               `json:"task,omitempty"`
	Bindings  []rung.SecretBinding `json:"bindings"`
	Audiences []string             `json:"audiences,omitempty"`
	TTL       time.Duration        `json:"ttl_ns"`
}

// leased is what it prints: nothing secret.
type leased struct {
	Secrets []struct {
		Name        string `json:"name"`
		Placeholder string `json:"placeholder"`
	} `json:"secrets"`
}

// lease has the broker send the values of this run's secrets to the gate, and returns the placeholders as the variables that
// the sandbox gets. This process never holds a value.
func (n *Network) lease(ctx context.Context) (env []string, err error) {
	h, c := n.host, n.flags
	o := leaseOrder{Sandbox: n.id, Agent: c.Agent, Task: c.Trace, Bindings: c.bindings, Audiences: n.audiences(), TTL: n.ttl}
	if len(o.Bindings) == 0 && len(o.Audiences) == 0 {
		return nil, nil
	}
	conn, err := connectGate(h.gateSocket())
	if err == nil {
		defer conn.Close()
		err = conn.Send(control.Request{Deliver: &control.Deliver{Token: n.opened.Token}})
	}
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "announce the lease to the gate: %w", err)
	}
	out, err := runBroker(ctx, h, conn, o)
	if err != nil {
		return nil, err
	}
	var reply control.Reply
	_ = conn.Raw().SetDeadline(time.Now().Add(gateTimeout))
	if _, err := conn.Receive(&reply); err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "the gate did not take the lease: %w", err)
	}
	if reply.Failed != nil {
		return nil, reply.Failed.Err()
	}
	for _, s := range out.Secrets {
		env = append(env, s.Name+"="+s.Placeholder)
	}
	return env, nil
}

// brokerTimeout bounds a lease: its sources may ask vaults.
const brokerTimeout = 60 * time.Second

func runBroker(ctx context.Context, h Host, conn *control.Conn, o leaseOrder) (out leased, err error) {
	program := held.FindProgram("rung-broker")
	if program == "" {
		return out, rung.Errorf(rung.KindUnavailable, "rung-broker, which keeps the secrets, is not found").
			WithHint("put it beside rung or in PATH; `make` builds it into bin/")
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return out, rung.Errorf(rung.KindInternal, "lease: %w", err)
	}
	socket, err := conn.Raw().File()
	if err != nil {
		return out, rung.Errorf(rung.KindInternal, "lease: %w", err)
	}
	defer socket.Close()
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "lease")
	cmd.Env = append(os.Environ(), "RUNG_STATE_DIR="+h.StateDir)
	cmd.Stdin, cmd.ExtraFiles = bytes.NewReader(raw), []*os.File{socket}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "rung-broker: ")
		return out, rung.Errorf(rung.KindRefused, "secrets: %s", text)
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		return out, rung.Errorf(rung.KindInternal, "what the broker says of the lease: %w", err)
	}
	return out, nil
}

// audiences are whom the rules want a token of the task's identity for.
func (n *Network) audiences() (list []string) {
	for _, r := range n.opened.Egress.Rules {
		if r.Identity != "" {
			list = append(list, r.Identity)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
