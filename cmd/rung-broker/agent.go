package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/agent"
	"github.com/rung-dev/rung/internal/broker/identity"
)

// agentCmd is `rung agent`.
type agentCmd struct {
	List    agentListCmd    `cmd:"" help:"List agents that are revoked or have live sandboxes."`
	Show    agentShowCmd    `cmd:"" help:"Tell whether an agent is revoked, and its live sandboxes."`
	Revoke  agentRevokeCmd  `cmd:"" help:"Refuse the agent from now on, end its leases and its sandboxes, and tell how long that took."`
	Restore agentRestoreCmd `cmd:"" help:"Let a revoked agent work again."`
	Jwks    agentJWKSCmd    `cmd:"" help:"Print the JWK Set by which a service verifies the identity of tasks."`
}

// known is what is told about an agent.
type known struct {
	Agent     string    `json:"agent"`
	Revoked   bool      `json:"revoked"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	Reason    string    `json:"reason,omitempty"`
	Sandboxes []string  `json:"sandboxes"` // alive
}

// needRuntime refuses to look for sandboxes nowhere.
func (a *app) needRuntime() error {
	if !filepath.IsAbs(a.runtime) {
		return rung.Errorf(rung.KindInvalid, "RUNG_RUNTIME_DIR is not an absolute path; rung sets it").WithHint("rung agent --help")
	}
	return nil
}

// look returns what is known about all agents. An error may come with what could be told.
func (a *app) look() (map[string]known, error) {
	if err := a.needRuntime(); err != nil {
		return nil, err
	}
	marks, err := agent.Marks(a.state)
	if err != nil {
		return nil, err
	}
	all := map[string]known{}
	for _, m := range marks {
		all[m.Agent] = known{Agent: m.Agent, Revoked: true, RevokedAt: m.RevokedAt, Reason: m.Reason, Sandboxes: []string{}}
	}
	boxes, err := agent.Sandboxes(a.runtime)
	wall := agent.Host{RuntimeDir: a.runtime}
	for name, ids := range boxes {
		ids = slices.DeleteFunc(ids, func(id string) bool { alive, err := wall.Alive(id); return err == nil && !alive })
		if k, marked := all[name]; len(ids) > 0 || marked {
			k.Agent, k.Sandboxes = name, ids
			all[name] = k
		}
	}
	return all, err
}

type agentListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Run implements runner.
func (c *agentListCmd) Run(_ context.Context, a *app) error {
	all, failed := a.look()
	list := []known{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	if c.JSON {
		if err := a.json(list); err != nil {
			return err
		}
		return failed
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tSTATE\tSANDBOXES")
	for _, k := range list {
		state := "active"
		if k.Revoked {
			state = "revoked " + k.RevokedAt.Format("2006-01-02 15:04")
		}
		fmt.Fprintf(w, "%s\t%s\t%d\n", k.Agent, state, len(k.Sandboxes))
	}
	if err := w.Flush(); err != nil {
		return rung.Errorf(rung.KindInternal, "write the result: %w", err)
	}
	return failed
}

type agentShowCmd struct {
	Name string `arg:"" help:"Agent."`
}

// Run implements runner.
func (c *agentShowCmd) Run(_ context.Context, a *app) error {
	if err := rung.ValidName(c.Name); err != nil {
		return err
	}
	all, failed := a.look()
	k, ok := all[c.Name]
	if !ok {
		k = known{Agent: c.Name, Sandboxes: []string{}} // any name may be an agent's
	}
	if err := a.json(k); err != nil {
		return err
	}
	return failed
}

type agentRevokeCmd struct {
	Name   string `arg:"" help:"Agent."`
	Reason string `help:"Why; agent show and refused runs' owners see it." placeholder:"TEXT"`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Run implements runner. Marking comes first: whatever starts after it is refused, whatever was there is ended. A lease ends
// with its sandbox: the gate forgets the values when the link of the sandbox closes.
func (c *agentRevokeCmd) Run(ctx context.Context, a *app) error {
	begin := time.Now()
	if err := a.needRuntime(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	mark, markErr := agent.Mark(ctx, a.state, c.Name, c.Reason)
	if markErr != nil && rung.KindOf(markErr) != rung.KindTimeout {
		return markErr // not revoked: nothing is killed for half a measure
	}
	killed, err := agent.Kill(ctx, a.runtime, c.Name, agent.Host{RuntimeDir: a.runtime})
	zero := rung.Millis(time.Since(begin).Microseconds()) / 1000
	slices.Sort(killed.Sandboxes)
	if err == nil {
		err = markErr
	}
	fields := map[string]any{"sandboxes": killed.Sandboxes, "complete": err == nil}
	if err == nil {
		fields["time_to_zero_ms"] = zero
	}
	a.tell("agent", "revoke", c.Name, c.Reason, fields)
	if c.JSON {
		out := map[string]any{"agent": c.Name, "revoked_at": mark.RevokedAt, "sandboxes": killed.Sandboxes, "complete": err == nil}
		if err == nil {
			out["time_to_zero_ms"] = zero
		}
		if e := a.json(out); e != nil {
			return e
		}
		return err
	}
	fmt.Fprintf(a.out, "agent %s is revoked: no new sandbox, no new lease\n", c.Name)
	if n := len(killed.Sandboxes); n > 0 {
		fmt.Fprintf(a.out, "ended with their leases: %s\n", strings.Join(killed.Sandboxes, ", "))
	}
	if err == nil {
		fmt.Fprintf(a.out, "time to zero: %v\n", zero)
	}
	return err
}

type agentRestoreCmd struct {
	Name string `arg:"" help:"Agent."`
}

// Run implements runner.
func (c *agentRestoreCmd) Run(_ context.Context, a *app) error {
	if err := agent.Restore(a.state, c.Name); err != nil {
		return err
	}
	a.tell("agent", "restore", c.Name, "", nil)
	fmt.Fprintf(a.out, "agent %s may work again\n", c.Name)
	return nil
}

type agentJWKSCmd struct{}

// Run implements runner.
func (*agentJWKSCmd) Run(_ context.Context, a *app) error {
	key, err := identity.Load(a.state)
	if err != nil {
		return err
	}
	doc, err := key.JWKS()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s\n", doc)
	return nil
}
