// Package flow judges the connections of one sandbox: where one is going, whether the policy lets it, and what must be read
// of it before a byte leaves. It dials the very address that was judged, and hands what has to be opened to package web.
//
// A connection comes in one of two ways. Over the link it has an address only, so its name is what that address was pinned
// for when the gate's DNS answered (package pin); the first bytes must then name the same. Through the proxy of a sandbox
// without an interface it names its destination itself, which is resolved and judged first.
package flow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/budget"
	"github.com/rung-dev/rung/internal/gate/hello"
	"github.com/rung-dev/rung/internal/gate/ledger"
	"github.com/rung-dev/rung/internal/gate/pin"
	"github.com/rung-dev/rung/internal/gate/rule"
	"github.com/rung-dev/rung/internal/gate/stream"
)

// Bounds of one connection.
const (
	dialTimeout  = 15 * time.Second
	firstTimeout = 15 * time.Second // until a client has said what it wants
	idleTimeout  = 10 * time.Minute // of a relayed connection on which nothing moves
)

// Target is where one connection goes.
type Target struct {
	Name   string         // in its normal form; "" for an address that a rule names
	Addr   netip.AddrPort // what the client chose; a stand-in where only a proxy resolves the name
	Rule   string
	Limits *rung.NetBudget // of the rule; nil for none
	Raw    bool            // any bytes may pass
	Opened bool            // TLS must be opened, to judge each request
}

// To is the target that a decision lets a connection have; for package web, which opens connections for single requests.
func To(name string, addr netip.AddrPort, d rule.Decision) Target { return to(name, addr, d, false) }

func to(name string, addr netip.AddrPort, d rule.Decision, raw bool) Target {
	t := Target{Name: name, Addr: addr, Rule: d.RuleName, Raw: raw}
	if d.Rule != nil {
		t.Limits = d.Rule.Limits
	}
	return t
}

func (t Target) port() int { return int(t.Addr.Port()) }

// Config is what a sandbox's flow works with.
type Config struct {
	Policy *rule.Policy
	Pins   *pin.Table
	Meter  *budget.Meter
	Ledger *ledger.Ledger
	// Dial connects to the target's address, or to another one that is pinned for the target's name, and judges it once
	// more. By is who judged it, for the record.
	Dial func(ctx context.Context, t Target) (c net.Conn, by string, err error)
	// Resolve asks for a name's addresses, judged; they are pinned by it. For the proxy only.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Inspect serves a connection request by request: plain HTTP, or TLS to be opened. names are who it may be for; with
	// TLS it is the one that the client named. first are bytes already read.
	Inspect func(ctx context.Context, c net.Conn, names []Target, first []byte, tls bool)
}

// Flow is one sandbox's. It is safe for concurrent use.
type Flow struct {
	Config
	mu    sync.Mutex
	rules map[string]*budget.Meter // of rules with limits, by name; guarded by mu
}

// New makes a flow.
func New(c Config) *Flow { return &Flow{Config: c, rules: map[string]*budget.Meter{}} }

// Accept says whether a connection to dst may be made at all; the error goes back as a reset. It is a denial already.
func (f *Flow) Accept(_ context.Context, dst netip.AddrPort) error {
	_, err := f.targets(dst)
	return err
}

// targets are what a connection to dst may be for: the names that it was resolved for and that may be connected to at its
// port, the one asked for last first, or the address itself. None is a denial, and an error.
func (f *Flow) targets(dst netip.AddrPort) (list []Target, err error) {
	names := f.Pins.Names(dst.Addr())
	for _, name := range names {
		if t, ok := f.target(name, dst); ok {
			list = append(list, t)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	d := f.Policy.Direct(dst.Addr().Unmap(), int(dst.Port()))
	if d.Allow {
		return []Target{to("", dst, d, true)}, nil
	}
	denial := rung.NetDenial{Layer: "tcp", Address: dst.Addr().String(), Port: int(dst.Port())}
	if len(names) > 0 { // resolved, but not for this port
		denial.Host, d = names[0], f.Policy.Connect(names[0], int(dst.Port()))
	}
	denial.Rule, denial.Reason, denial.Hint = d.RuleName, d.Reason, d.Hint
	f.Ledger.Deny(denial)
	return nil, errors.New(denial.Reason)
}

func (f *Flow) target(name string, dst netip.AddrPort) (Target, bool) {
	port := int(dst.Port())
	d := f.Policy.Connect(name, port)
	if !d.Allow {
		return Target{}, false
	}
	t := to(name, dst, d, f.Policy.Raw(name, port))
	t.Opened = f.Policy.Inspect(name, port)
	return t, true
}

// TCP serves one connection of the link until it has ended, and closes it.
func (f *Flow) TCP(ctx context.Context, c net.Conn, dst netip.AddrPort) {
	defer c.Close()
	list, err := f.targets(dst)
	if err != nil { // the pin ended between Accept and here
		stream.Abort(c)
		return
	}
	f.serve(ctx, c, list)
}

// serve carries one connection to one of the targets, which differ in their names only.
func (f *Flow) serve(ctx context.Context, c net.Conn, list []Target) {
	release, err := f.Meter.Open()
	if err != nil {
		f.overBudget(list[0], err)
		stream.Abort(c)
		return
	}
	defer release()
	metered := &meteredConn{Conn: c, meter: f.Meter, over: func(err error) { f.overBudget(list[0], err) }}
	if i := slices.IndexFunc(list, func(t Target) bool { return t.Raw }); i >= 0 {
		f.relay(ctx, metered, list[i], nil)
		return
	}
	first, err := firstByte(metered)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return // opened and closed: a probe of whether the port answers
		}
		f.silent(list[0])
		stream.Abort(c)
		return
	}
	if first != 0x16 { // a TLS record of a handshake (RFC 8446 5.1)
		f.Inspect(ctx, metered, list, []byte{first}, false)
		return
	}
	f.tls(ctx, metered, list, first)
}

// silent denies a connection on which its client waits for the server to speak first.
func (f *Flow) silent(t Target) {
	d := denial("tcp", t)
	d.Reason = "the client sent no request: only HTTP and TLS pass here, and in them the client speaks first"
	d.Hint = "--allow " + net.JoinHostPort(t.Name, strconv.Itoa(t.port())) + "/tcp"
	f.Ledger.Deny(d)
}

// tls reads who the connection is for before anything leaves.
func (f *Flow) tls(ctx context.Context, c *meteredConn, list []Target, first byte) {
	_ = c.SetReadDeadline(time.Now().Add(firstTimeout))
	h, err := hello.Read(io.MultiReader(bytes.NewReader([]byte{first}), c))
	_ = c.SetReadDeadline(time.Time{})
	if err == nil {
		err = h.Check()
	}
	if err != nil {
		d := denial("tls", list[0])
		d.Reason, d.Hint = "not a TLS connection that can be judged: "+err.Error(), rung.HintOf(err)
		f.Ledger.Deny(d)
		stream.Abort(c.Conn)
		return
	}
	i := slices.IndexFunc(list, func(t Target) bool { return t.Name == h.ServerName })
	if i < 0 {
		d := denial("tls", list[0])
		d.Host = h.ServerName
		d.Reason = fmt.Sprintf("the connection names %q, but its address was resolved for %s", h.ServerName, list[0].Name)
		f.Ledger.Deny(d)
		stream.Abort(c.Conn)
		return
	}
	if list[i].Opened {
		f.Inspect(ctx, c, list[i:i+1], h.Raw, true)
		return
	}
	f.relay(ctx, c, list[i], h.Raw)
}

func denial(layer string, t Target) rung.NetDenial {
	d := rung.NetDenial{Layer: layer, Host: t.Name, Port: t.port(), Rule: t.Rule}
	if t.Addr.Addr().IsValid() {
		d.Address = t.Addr.Addr().String()
	}
	return d
}

func (f *Flow) overBudget(t Target, err error) {
	d := denial("budget", t)
	d.Reason = err.Error()
	f.Ledger.Deny(d)
}

// relay carries bytes both ways. first are bytes of the client's that were read already.
func (f *Flow) relay(ctx context.Context, c *meteredConn, t Target, first []byte) {
	up, err := f.Connect(ctx, t)
	if err != nil {
		stream.Abort(c.Conn)
		return
	}
	defer up.Close()
	if len(first) > 0 {
		if _, err := up.Write(first); err != nil {
			stream.Abort(c.Conn)
			return
		}
	}
	stop := context.AfterFunc(ctx, func() { c.Close(); up.Close() })
	defer stop()
	splice(c, up)
}

// Connect dials a target within its rule's limits, and notes it. The connection gives its place back when it is closed. A
// failure to connect is no denial unless the address was refused.
func (f *Flow) Connect(ctx context.Context, t Target) (net.Conn, error) {
	release := func() {}
	meter := f.ruleMeter(t)
	if meter != nil {
		var err error
		if release, err = meter.Open(); err != nil {
			f.overBudget(t, err)
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	up, by, err := f.Dial(ctx, t)
	if err != nil {
		release()
		if rung.KindOf(err) == rung.KindRefused {
			d := denial("tcp", t)
			d.Reason, d.Hint = err.Error(), rung.HintOf(err)
			f.Ledger.Deny(d)
		}
		return nil, err
	}
	a := rung.NetAllowed{Host: t.Name, Port: t.port(), Rule: t.Rule, Checked: by}
	if to, ok := up.RemoteAddr().(*net.TCPAddr); ok && by == "gate" {
		a.Address = to.AddrPort().Addr().Unmap().String()
	}
	f.Ledger.Allow(a)
	held := &heldConn{Conn: up, release: release}
	if meter == nil {
		return held, nil
	}
	// Seen from the outside, what is read comes in.
	return &meteredConn{Conn: held, meter: reversed{meter}, over: func(err error) { f.overBudget(t, err) }}, nil
}

func (f *Flow) ruleMeter(t Target) *budget.Meter {
	if t.Limits == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.rules[t.Rule]
	if m == nil {
		m = budget.NewRule(*t.Limits)
		f.rules[t.Rule] = m
	}
	return m
}
