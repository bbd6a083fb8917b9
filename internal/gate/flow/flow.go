// Package flow judges the connections of one sandbox: where one is going, whether the policy lets it, and what must be read
// of it before a byte leaves. It dials the very address that was judged, and hands what has to be opened to package web.
//
// A connection comes in one of two ways. Over the link it has an address only, so its name is what that address was pinned
// for when the gate's DNS answered (package pin); the first bytes must then name the same. Through the proxy of a sandbox
// without an interface it names its destination itself, which is resolved and judged first.
package flow

import (
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
	Addr   netip.AddrPort // what is dialled; the zero address with Proxied
	Rule   string
	Raw    bool // any bytes may pass
	Opened bool // TLS must be opened, to judge each request
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
	if len(f.targets(dst)) > 0 {
		return nil
	}
	d := f.Policy.Direct(dst.Addr().Unmap(), int(dst.Port()))
	if d.Allow {
		return nil
	}
	denial := rung.NetDenial{Layer: "tcp", Address: dst.Addr().String(), Port: int(dst.Port()), Rule: d.RuleName, Reason: d.Reason, Hint: d.Hint}
	if names := f.Pins.Names(dst.Addr()); len(names) > 0 { // resolved, but not for this port
		d = f.Policy.Connect(names[0], int(dst.Port()))
		denial.Host, denial.Rule, denial.Reason, denial.Hint = names[0], d.RuleName, d.Reason, d.Hint
	}
	f.Ledger.Deny(denial)
	return errors.New(denial.Reason)
}

// targets are the names that dst was resolved for and that may be connected to at its port, the one asked for last first.
func (f *Flow) targets(dst netip.AddrPort) (list []Target) {
	for _, name := range f.Pins.Names(dst.Addr()) {
		if t, ok := f.target(name, dst); ok {
			list = append(list, t)
		}
	}
	return list
}

func (f *Flow) target(name string, dst netip.AddrPort) (Target, bool) {
	port := int(dst.Port())
	d := f.Policy.Connect(name, port)
	if !d.Allow {
		return Target{}, false
	}
	return Target{Name: name, Addr: dst, Rule: d.RuleName, Raw: f.Policy.Raw(name, port), Opened: f.Policy.Inspect(name, port)}, true
}

// TCP serves one connection of the link until it has ended, and closes it.
func (f *Flow) TCP(ctx context.Context, c net.Conn, dst netip.AddrPort) {
	defer c.Close()
	list := f.targets(dst)
	if len(list) == 0 {
		d := f.Policy.Direct(dst.Addr().Unmap(), int(dst.Port()))
		if !d.Allow { // the pin ended between Accept and here
			f.deny(rung.NetDenial{Layer: "tcp", Address: dst.Addr().String(), Port: int(dst.Port()), Rule: d.RuleName, Reason: d.Reason, Hint: d.Hint})
			abort(c)
			return
		}
		list = []Target{{Addr: dst, Rule: d.RuleName, Raw: true}}
	}
	f.serve(ctx, c, list)
}

// serve carries one connection to one of the targets, which differ in their names only.
func (f *Flow) serve(ctx context.Context, c net.Conn, list []Target) {
	release, err := f.Meter.Open()
	if err != nil {
		f.overBudget(list[0], err)
		abort(c)
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
		abort(c)
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
	f.deny(d)
}

// tls reads who the connection is for before anything leaves.
func (f *Flow) tls(ctx context.Context, c *meteredConn, list []Target, first byte) {
	_ = c.SetReadDeadline(time.Now().Add(firstTimeout))
	h, err := hello.Read(io.MultiReader(oneByte(first), c))
	_ = c.SetReadDeadline(time.Time{})
	if err == nil {
		err = h.Check()
	}
	if err != nil {
		d := denial("tls", list[0])
		d.Reason, d.Hint = "not a TLS connection that can be judged: "+err.Error(), rung.HintOf(err)
		f.deny(d)
		abort(c.Conn)
		return
	}
	i := slices.IndexFunc(list, func(t Target) bool { return t.Name == h.ServerName })
	if i < 0 {
		d := denial("tls", list[0])
		d.Host = h.ServerName
		d.Reason = fmt.Sprintf("the connection names %q, but its address was resolved for %s", h.ServerName, list[0].Name)
		f.deny(d)
		abort(c.Conn)
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

func (f *Flow) deny(d rung.NetDenial) { f.Ledger.Deny(d) }

func (f *Flow) overBudget(t Target, err error) {
	d := denial("budget", t)
	d.Reason = err.Error()
	f.deny(d)
}

// relay carries bytes both ways. first are bytes of the client's that were read already.
func (f *Flow) relay(ctx context.Context, c *meteredConn, t Target, first []byte) {
	up, err := f.Connect(ctx, t)
	if err != nil {
		abort(c.Conn)
		return
	}
	defer up.Close()
	if len(first) > 0 {
		if _, err := up.Write(first); err != nil {
			abort(c.Conn)
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
			f.deny(d)
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
	limits := f.Policy.Limits(t.Rule)
	if limits == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.rules[t.Rule]
	if m == nil {
		m = budget.NewRule(*limits)
		f.rules[t.Rule] = m
	}
	return m
}
