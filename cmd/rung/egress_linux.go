package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/policy"
	"github.com/rung-dev/rung/internal/registries"
	"github.com/rung-dev/rung/internal/session"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// maxPolicy bounds a policy file.
const maxPolicy = 1 << 20

func cutEnv(kv string) (name, value string, ok bool) { return strings.Cut(kv, "=") }

// wish is what the command line says about the network.
func (c *egressFlags) wish() (control.Open, error) {
	o := control.Open{Version: control.Version, Agent: c.Agent, Allow: c.Allow}
	var err error
	if c.Egress != "" {
		if o.Mode, err = rung.ParseEgressMode(c.Egress); err != nil {
			return o, err
		}
	}
	if o.Mode == rung.EgressNone && (len(c.Allow) > 0 || len(c.Registry) > 0 || len(c.Secret) > 0) {
		return o, rung.Errorf(rung.KindInvalid, "--egress none goes with no --allow, --registry or --secret: there is no network to allow anything on")
	}
	if c.Policy != "" {
		if o.Policy, err = readPolicy(c.Policy); err != nil {
			return o, err
		}
	}
	for _, s := range c.Secret {
		b, err := rung.ParseSecretFlag(s)
		if err != nil {
			return o, err
		}
		o.Secrets = append(o.Secrets, b)
	}
	c.bindings = o.Secrets
	for _, list := range [][]string{c.Allow, c.Registry} {
		if slices.Contains(list, "") {
			return o, rung.Errorf(rung.KindInvalid, "an empty --allow or --registry allows nothing: leave it out")
		}
	}
	return o, nil
}

func readPolicy(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "--policy: %w", err)
	}
	defer f.Close()
	var b bytes.Buffer
	if n, err := b.ReadFrom(io.LimitReader(f, maxPolicy+1)); err != nil || n > maxPolicy {
		return nil, rung.Errorf(rung.KindInvalid, "--policy %s: not a file of at most %s: %w", oneLine(name), rung.FormatBytes(maxPolicy), err)
	}
	return b.Bytes(), nil
}

// network is one run's session with the gate; nil where nothing speaks.
type network struct {
	conn   *control.Conn
	opened control.Opened
	link   *os.File
	id     string
	rung   rung.Rung
	ttl    time.Duration // of leases
	env    []string      // what the registries' clients need
	files  []driver.File
	inputs []session.Input
	notes  []string
	done   chan control.Summary // what the gate told last; closed when it went without
	denied func(rung.NetDenial)
}

// openNetwork asks the gate for a session. It returns nil where the sandbox gets no network: by the caller's wish, by the
// threat's default, or because this host has none for an ordinary user; why then says which.
func (h *host) openNetwork(ctx context.Context, c *runCmd, d policy.Decision, id string) (n *network, why string, err error) {
	open, err := c.wish()
	if err != nil {
		return nil, "", err
	}
	r := d.Rung
	open.ID, open.Default = id, d.Egress
	asked := open.Mode != "" || len(open.Allow) > 0 || open.Policy != nil || len(c.Registry) > 0 || len(open.Secrets) > 0
	if open.Mode == rung.EgressNone || open.Default == rung.EgressNone && !asked || r == rung.None {
		if asked && open.Mode != rung.EgressNone {
			return nil, "", rung.Errorf(rung.KindInvalid, "rung none has the host's own network: no rule holds there")
		}
		return nil, "", nil
	}
	if why := noInterface(r); why != nil {
		if asked {
			return nil, "", why
		}
		return nil, why.Error(), nil
	}
	n = &network{id: id, rung: r, ttl: c.Timeout + leaseSlack, done: make(chan control.Summary, 1)}
	if err := n.registries(ctx, c.Registry, &open); err != nil {
		return nil, "", err
	}
	if err := n.open(ctx, h, open); err != nil {
		return nil, "", err
	}
	if n.opened.Egress.Mode == rung.EgressNone {
		n.close()
		return nil, "", nil
	}
	return n, "", nil
}

// noInterface says why a sandbox on this rung cannot have an interface here, nil if it can.
func noInterface(r rung.Rung) error {
	if r == rung.Process {
		return nil
	}
	return tap.Usable()
}

func (n *network) open(ctx context.Context, h *host, open control.Open) error {
	var err error
	if n.conn, err = h.dialGate(ctx); err != nil {
		return err
	}
	var reply control.Reply
	if err = n.conn.Send(control.Request{Open: &open}); err == nil {
		n.link, err = n.conn.Receive(&reply)
	}
	switch {
	case err != nil:
		err = rung.Errorf(rung.KindUnavailable, "the gate does not answer: %w", err).WithHint("see " + gateLog(h.gateSocket()))
	case reply.Failed != nil:
		err = reply.Failed.Err()
	case reply.Opened == nil || n.link == nil && reply.Opened.Egress.Mode != rung.EgressNone:
		err = rung.Errorf(rung.KindInternal, "the gate's answer is none")
	}
	if err != nil {
		n.close()
		return err
	}
	n.opened = *reply.Opened
	_ = n.conn.Raw().SetDeadline(time.Time{})
	go n.listen()
	return nil
}

// listen takes the gate's messages until its connection ends, which close or the gate's own end brings about.
func (n *network) listen() {
	defer close(n.done)
	for {
		var m control.Reply
		if _, err := n.conn.Receive(&m); err != nil {
			return
		}
		switch {
		case m.Summary != nil:
			n.done <- *m.Summary
			return
		case m.Denied != nil && n.denied != nil:
			n.denied(*m.Denied)
		case m.Approval != nil:
			_ = n.conn.Send(control.Request{Answer: &control.Answer{Number: m.Approval.Number}}) // nobody to ask: no
		}
	}
}

// give adds to a task what its sandbox needs of the network.
func (n *network) give(ctx context.Context, h *host, c *runCmd, t *session.Task) error {
	if n == nil {
		return nil
	}
	env := append([]string{}, n.env...)
	placeholders, err := n.lease(ctx, h, c)
	if err != nil {
		return err
	}
	for _, name := range caVariables() {
		env = append(env, name+"="+image.CAInside)
	}
	if n.rung == rung.Process {
		env = append(env, proxyEnv()...)
	} else {
		text := "nameserver " + tap.GatewayV4().String() + "\noptions edns0 timeout:5 attempts:2\n"
		n.files = append(n.files, driver.File{Path: "/etc/resolv.conf", Data: []byte(text)})
	}
	if len(n.opened.Authority) > 0 {
		bundle, err := n.bundle()
		if err != nil {
			return err
		}
		n.files = append(n.files, driver.File{Path: image.CAInside, Data: bundle})
	}
	// What the caller sets by --env comes last and wins.
	t.Env = append(append(env, placeholders...), t.Env...)
	t.Inputs = append(n.inputs, t.Inputs...)
	t.Link, t.Files, t.Linked = &driver.Link{Gate: n.link}, n.files, n.started
	return nil
}

// caVariables are where programs that bring authorities of their own look for others.
func caVariables() []string {
	return []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}
}

// proxyEnv tells clients of the gate's proxy, the only thing that answers in a sandbox of rung process.
func proxyEnv() (env []string) {
	at := "127.0.0.1:" + strconv.Itoa(holder.ProxyPort)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		env = append(env, name+"=http://"+at)
	}
	return append(env, "ALL_PROXY=socks5h://"+at, "all_proxy=socks5h://"+at, "NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1")
}

// bundle is the host's bundle with the session's authority after it.
func (n *network) bundle() ([]byte, error) {
	var list []byte
	if path, ok := image.HostCABundle(); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, rung.Errorf(rung.KindUnavailable, "the host's certificate authorities: %w", err)
		}
		list = data
	}
	if len(list) > 0 && list[len(list)-1] != '\n' {
		list = append(list, '\n')
	}
	return append(list, n.opened.Authority...), nil
}

// started closes what only the holder keeps from now on.
func (n *network) started() {
	if n != nil && n.link != nil {
		n.link.Close()
		n.link = nil
	}
}

// summaryTimeout bounds the wait for the gate's account of a run that is over.
const summaryTimeout = 5 * time.Second

// finish asks for the gate's account and puts it into the record. A gate that went took its account with it: that is said.
func (n *network) finish(rec *rung.Record) {
	if n == nil {
		return
	}
	defer n.close()
	_ = n.conn.Raw().SetWriteDeadline(time.Now().Add(summaryTimeout))
	_ = n.conn.Send(control.Request{Finish: true}) // a gate that is gone shows in what comes
	rec.Egress = string(n.opened.Egress.Mode)
	rec.Network = &rung.Network{Rules: len(n.opened.Egress.Rules), Notes: append(n.notes, n.opened.Notes...)}
	if n.rung == rung.Process {
		rec.Network.Notes = append(rec.Network.Notes, "through a proxy on the loopback address: programs that know no proxy have no network")
	}
	select {
	case s, ok := <-n.done:
		if !ok {
			rec.Network.Notes = append(rec.Network.Notes, "the gate ended before it told what was used and refused")
			return
		}
		rec.Network.Allowed, rec.Network.Packages, rec.Network.Usage = s.Allowed, s.Packages, &s.Usage
		for _, d := range s.Denied {
			rec.Denied = append(rec.Denied, rung.Denied{Network: &d, Count: d.Count, First: d.First})
		}
	case <-time.After(summaryTimeout):
		rec.Network.Notes = append(rec.Network.Notes, "the gate did not tell in time what was used and refused")
	}
}

func (n *network) close() {
	if n == nil {
		return
	}
	n.started()
	if n.conn != nil {
		n.conn.Close()
	}
}

// leaseSlack is how much longer than the run a lease lives: starting and ending take time too.
const leaseSlack = 2 * time.Minute

// registries turns --registry into rules, and into what the clients inside need to ask the same registries as this host's.
func (n *network) registries(ctx context.Context, list []string, o *control.Open) error {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	for _, text := range list {
		kind, packages, err := registries.Parse(text)
		if err != nil {
			return err
		}
		found, err := registries.Discover(ctx, kind, os.Getenv)
		if err != nil {
			return err
		}
		for _, r := range found.Rules {
			r.Registry.Packages = packages
			o.Rules = append(o.Rules, r)
		}
		for name, value := range found.Env {
			n.env = append(n.env, name+"="+value)
		}
		for path, data := range found.Files {
			n.inputs = append(n.inputs, session.Input{Inside: path, Data: data, Mode: 0o644})
		}
		n.notes = append(n.notes, found.Notes...)
	}
	slices.Sort(n.env)
	return nil
}

// discoverTimeout bounds asking this host's package clients for their configuration.
const discoverTimeout = 30 * time.Second
