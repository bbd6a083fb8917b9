// Package control is what rung and the gate's process say to each other, on Unix sockets of the host that no sandbox sees.
//
// A client of the gate's socket sends one of three requests as its first message. Open makes a session for one sandbox;
// the answer carries one end of a socket pair, the link, which goes to the sandbox's holder. Deliver hands over a lease with
// secret values for an open session, told by the session's token. Ping asks what the gate is and how busy.
//
// The holder sends on the link the descriptor that the sandbox's traffic comes from, and keeps the link open: when the last
// copy closes, the sandbox is gone and its session ends. The client's own connection carries denials as they happen and,
// after Finish or the link's end, the Summary. A session lives until both have closed.
package control

import (
	"time"

	"github.com/rung-dev/rung"
)

// Version changes with every change of these messages; a client starts a gate of its own version.
const Version = 1

// Request is what a client sends. The first message on a connection sets exactly one of Open, Deliver and Ping; later ones
// set Finish or Answer.
type Request struct {
	Open    *Open    `json:"open,omitempty"`
	Deliver *Deliver `json:"deliver,omitempty"`
	Ping    bool     `json:"ping,omitempty"`
	Finish  bool     `json:"finish,omitempty"` // the sandbox is gone: send the Summary
	Answer  *Answer  `json:"answer,omitempty"`
}

// Open asks for a session.
type Open struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // of the sandbox
	Agent   string `json:"agent,omitempty"`
	// The policy as its owner wrote it: the gate reads it, so that no other program has to, and says what it understood.
	Mode    rung.EgressMode      `json:"mode"`              // "" leaves it to Policy, and then to Default
	Default rung.EgressMode      `json:"default"`           // the threat's
	Allow   []string             `json:"allow,omitempty"`   // --allow, each a rule
	Policy  []byte               `json:"policy,omitempty"`  // a policy file
	Rules   []rung.EgressRule    `json:"rules,omitempty"`   // what the registries of the host's clients come to
	Asks    bool                 `json:"asks"`              // the client answers Approval
	Secrets []rung.SecretBinding `json:"secrets,omitempty"` // whose values come by Deliver; until then nothing passes
}

// Deliver announces a lease: the next message on the connection is a rung.Lease itself, which the broker's process writes, so
// that no value goes through the client's.
type Deliver struct {
	Token string `json:"token"`
}

// Answer settles an Approval.
type Answer struct {
	Number int  `json:"number"`
	Yes    bool `json:"yes"`
}

// Reply is what the gate sends.
type Reply struct {
	Opened   *Opened         `json:"opened,omitempty"` // with the link as the message's file
	Failed   *rung.Failure   `json:"failed,omitempty"`
	Done     bool            `json:"done,omitempty"` // Deliver was taken
	Status   *Status         `json:"status,omitempty"`
	Denied   *rung.NetDenial `json:"denied,omitempty"` // a cause seen for the first time, or ten times as often as told last
	Approval *Approval       `json:"approval,omitempty"`
	Summary  *Summary        `json:"summary,omitempty"`
}

// Opened is the answer to Open.
type Opened struct {
	Token     string      `json:"token"`               // for Deliver; names the session to nobody else
	Egress    rung.Egress `json:"egress"`              // the policy as understood; with mode none there is no link
	Authority []byte      `json:"authority,omitempty"` // PEM of the session's certificate authority; empty when TLS stays closed
	Notes     []string    `json:"notes,omitempty"`     // what is weaker here, in words
}

// Approval asks the sandbox's owner about one request. Unanswered, it is refused after ApprovalTimeout.
type Approval struct {
	Number  int    `json:"number"`
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Request string `json:"request"`
	Rule    string `json:"rule"`
}

// ApprovalTimeout bounds the wait for an Answer.
const ApprovalTimeout = 60 * time.Second

// Status is the answer to Ping.
type Status struct {
	Version  int       `json:"version"`
	Build    string    `json:"build"` // the program's version
	PID      int       `json:"pid"`
	UID      int       `json:"uid"`
	Started  time.Time `json:"started"`
	Sessions int       `json:"sessions"`
	Confined []string  `json:"confined"` // how the gate is walled in itself
}

// Summary is everything a session was used for.
type Summary struct {
	Denied   []rung.NetDenial  `json:"denied"`
	Allowed  []rung.NetAllowed `json:"allowed"`
	Packages []rung.Package    `json:"packages"`
	Usage    rung.NetUsage     `json:"usage"`
}

// Registries is what `rung-gate registries [--min-age AGE] KIND[:PACKAGE,…]…` prints: what the registries of this host's clients come to.
type Registries struct {
	Rules  []rung.EgressRule `json:"rules,omitempty"`
	Env    map[string]string `json:"env,omitempty"`   // for the sandbox
	Files  map[string][]byte `json:"files,omitempty"` // for the sandbox, by absolute path inside
	Notes  []string          `json:"notes,omitempty"`
	Failed *rung.Failure     `json:"failed,omitempty"`
}
