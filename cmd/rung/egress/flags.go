// Package egress gives a run its network: it asks the gate for a session, starting the gate where none runs, has the broker
// lend it the run's secrets, and puts the gate's account into the record. It is rung's side of internal/gate, and links
// nothing of the gate but its messages: what is parsed, resolved or opened is in the gate's own process.
package egress

import "github.com/rung-dev/rung"

// Flags say what may leave the sandbox, and with which secrets.
type Flags struct {
	Egress   string   `help:"What passes without a rule: none (no network at all), deny (nothing) or open (public addresses). Default: deny; none for --threat compute and adversarial." placeholder:"MODE"`
	Allow    []string `help:"Let a destination through: HOST[:PORT], *.SUFFIX, CIDR:PORT, or HOST:PORT/tcp for other protocols than HTTP." sep:"none" placeholder:"DEST"`
	Registry []string `help:"Let npm, pypi, go or debian read packages, all or the named ones; hosts come from the client's configuration here." sep:"none" placeholder:"KIND[:PKG,…]"`
	MinAge   string   `help:"Refuse versions that a --registry got less than so long ago: 7d, 36h." placeholder:"AGE"`
	Policy   string   `help:"Rules from a file; see docs/policy.md." placeholder:"FILE"`
	Secret   []string `help:"Let the gate use a secret on requests to hosts; the sandbox sees a placeholder in the variable NAME." sep:"none" placeholder:"NAME@HOST[:OPTIONS]"`
	Agent    string   `help:"Which agent this run is for: names its events, and ends with rung agent revoke." placeholder:"NAME"`
	Trace    string   `help:"Id of the call that this run is part of, for events (default: TRACEPARENT)." placeholder:"ID"`

	bindings []rung.SecretBinding // what Secret says
}
