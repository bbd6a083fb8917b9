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

	"golang.org/x/sys/unix"

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
	Lease   string    `json:"lease"`
	Expires time.Time `json:"expires"`
	Secrets []struct {
		Name        string `json:"name"`
		Placeholder string `json:"placeholder"`
	} `json:"secrets"`
	Identity []string      `json:"identity"`
	Failed   *rung.Failure `json:"failed"`
}

// Lease is what was lent for a run.
type Lease struct {
	ID        string
	Secrets   []string // names
	Audiences []string // of tokens of the task's identity
}

// Lease is what the broker lent for the run; nil where nothing was. Safe on nil.
func (n *Network) Lease() *Lease {
	if n == nil || n.leased.Lease == "" {
		return nil
	}
	l := &Lease{ID: n.leased.Lease, Audiences: n.leased.Identity}
	for _, s := range n.leased.Secrets {
		l.Secrets = append(l.Secrets, s.Name)
	}
	return l
}

// lease has the broker send the values of this run's secrets to the gate, and returns the placeholders as the variables that
// the sandbox gets. This process never holds a value.
func (n *Network) lease(ctx context.Context) (env []string, err error) {
	h := n.host
	o := leaseOrder{Sandbox: n.id, Agent: n.agent, Task: n.flags.Trace, Bindings: n.flags.bindings, Audiences: n.audiences(), TTL: n.ttl}
	if len(o.Bindings) == 0 && len(o.Audiences) == 0 {
		return nil, nil
	}
	conn, err := connectGate(n.socket)
	if err == nil {
		defer conn.Close()
		err = conn.Send(control.Request{Deliver: &control.Deliver{Token: n.opened.Token}})
	}
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "announce the lease to the gate: %w", err)
	}
	if n.leased, err = runBroker(ctx, h, conn, o); err != nil {
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
	for _, s := range n.leased.Secrets {
		env = append(env, s.Name+"="+s.Placeholder)
	}
	return env, nil
}

const (
	// brokerTimeout bounds a lease: its sources may ask vaults.
	brokerTimeout = 60 * time.Second
	// brokerGrace is how long a broker that was told to end may hold its output open.
	brokerGrace = 2 * time.Second
)

// Broker is rung-broker with those arguments, in our environment without what changes how a Go program behaves or dies: a
// trace of its stacks is nothing for a log.
func (h Host) Broker(ctx context.Context, args ...string) (*exec.Cmd, error) {
	program := held.FindProgram("rung-broker")
	if program == "" {
		return nil, rung.Errorf(rung.KindUnavailable, "rung-broker, which keeps secrets and revokes agents, is not found").
			WithHint("put it beside rung or in PATH; `make` builds it into bin/")
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"GOTRACEBACK", "GODEBUG", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "RUNG_STATE_DIR", "RUNG_RUNTIME_DIR"}, name)
	})
	cmd.Env = append(cmd.Env, "RUNG_STATE_DIR="+h.StateDir, "RUNG_RUNTIME_DIR="+h.RuntimeDir)
	return cmd, nil
}

// runBroker has the broker write a lease to conn. It ends with ctx, whatever the broker's sources do.
func runBroker(ctx context.Context, h Host, conn *control.Conn, o leaseOrder) (out leased, err error) {
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
	cmd, err := h.Broker(ctx, "lease")
	if err != nil {
		return out, err
	}
	cmd.Stdin, cmd.ExtraFiles, cmd.WaitDelay = bytes.NewReader(raw), []*os.File{socket}, brokerGrace
	var stdout, stderr bounded
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failed := cmd.Run()
	// Handing it over made the socket a blocking one, for us too: it is one open file.
	if err := unblock(conn); err != nil {
		return out, err
	}
	err = json.Unmarshal(stdout.data, &out)
	switch {
	case ctx.Err() != nil:
		return out, rung.Errorf(rung.KindTimeout, "the secrets of this run were not lent in time: %w", ctx.Err()).
			WithHint("rung secret check tells which source is slow")
	case err == nil && out.Failed != nil:
		return out, out.Failed.Err()
	case failed != nil:
		return out, rung.Errorf(rung.KindInternal, "rung-broker: %w: %.512q", failed, bytes.TrimSpace(stderr.data))
	case err != nil || out.Lease == "":
		return out, rung.Errorf(rung.KindInternal, "what the broker says of the lease: %w", err)
	}
	return out, nil
}

func unblock(conn *control.Conn) error {
	raw, err := conn.Raw().SyscallConn()
	if err == nil {
		if e := raw.Control(func(fd uintptr) { err = unix.SetNonblock(int(fd), true) }); e != nil {
			err = e
		}
	}
	if err != nil {
		return rung.Errorf(rung.KindInternal, "lease: the gate's socket: %w", err)
	}
	return nil
}

// bounded keeps the first megabyte; a broker says less.
type bounded struct{ data []byte }

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), 1<<20-len(b.data))]...)
	return len(p), nil
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
