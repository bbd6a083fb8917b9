package main

import "context"

// secretCmd is `rung secret`; rung-broker understands the rest.
type secretCmd struct {
	Args []string `arg:"" optional:"" passthrough:"all" name:"add|list|rm|check" help:"What to do, and its arguments: rung secret add --help."`
}

// Examples implements exampler.
func (*secretCmd) Examples() string {
	return `  rung secret add GITHUB_TOKEN                           asks on the terminal, does not show it
  pass show api | rung secret add API_KEY
  rung secret add DB --exec 'vault kv get -field=password secret/db' --exec-env VAULT_ADDR
  rung secret check
`
}

// Run implements runner.
func (c *secretCmd) Run(ctx context.Context, a *app) (int, error) {
	return a.broker(ctx, append([]string{"secret"}, orHelp(c.Args)...))
}

// orHelp lets the helper tell what there is where nothing was asked.
func orHelp(args []string) []string {
	if len(args) == 0 {
		return []string{"--help"}
	}
	return args
}
