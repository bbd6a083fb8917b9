package main

import "context"

// agentCmd is `rung agent`; rung-broker understands the rest.
type agentCmd struct {
	Args []string `arg:"" optional:"" passthrough:"all" name:"list|show|revoke|restore|jwks" help:"What to do, and its arguments: rung agent revoke --help."`
}

// Examples implements exampler.
func (*agentCmd) Examples() string {
	return `  rung agent revoke builder --reason 'leaked its key'
  rung agent list
  rung agent jwks > rung-keys.json
`
}

// Run implements runner.
func (c *agentCmd) Run(ctx context.Context, a *app) (int, error) {
	return a.broker(ctx, append([]string{"agent"}, orHelp(c.Args)...))
}
