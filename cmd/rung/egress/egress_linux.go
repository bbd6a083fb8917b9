package egress

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/image"
	"github.com/rung-dev/rung/internal/session"
	"github.com/rung-dev/rung/internal/sys/holder"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// maxPolicy bounds a policy file.
const maxPolicy = 1 << 20

// wish is what the command line says about the network.
func (c *Flags) wish() (control.Open, error) {
	o := control.Open{Version: control.Version, Allow: c.Allow}
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
	switch n, err := b.ReadFrom(io.LimitReader(f, maxPolicy+1)); {
	case err != nil:
		return nil, rung.Errorf(rung.KindInvalid, "--policy: %w", err)
	case n > maxPolicy:
		return nil, rung.Errorf(rung.KindInvalid, "--policy %q: longer than %s", name, rung.FormatBytes(maxPolicy))
	}
	return b.Bytes(), nil
}

// Network is one run's session with the gate; nil where nothing speaks.
type Network struct {
	conn   *control.Conn
	socket string // of the gate that serves this run
	opened control.Opened
	link   *os.File
	id     string
	host   Host
	flags  *Flags
	rung   rung.Rung
	agent  string
	ttl    time.Duration // of leases
	leased leased
	asker  *Asker
	env    []string // what the registries' clients need
	files  []driver.File
	inputs []session.Input
	notes  []string
	done   chan control.Summary // what the gate told last; closed when it went without
}

// Host is where this rung keeps its things.
type Host struct{ StateDir, RuntimeDir string }

// Want is what one run needs.
type Want struct {
	ID      string
	Agent   string
	Asker   *Asker // nil when there is nobody to ask
	Rung    rung.Rung
	Default rung.EgressMode // the threat's
	Timeout time.Duration   // of the run
}

// Open asks the gate for a session. It returns nil where the sandbox gets no network: by the caller's wish, by the threat's
// default, or because this host has none for an ordinary user; why then says which.
func Open(ctx context.Context, h Host, f *Flags, w Want) (n *Network, why string, err error) {
	open, err := f.wish()
	if err != nil {
		return nil, "", err
	}
	open.ID, open.Default, open.Agent, open.Asks = w.ID, w.Default, w.Agent, w.Asker != nil
	asked := open.Mode != "" || len(open.Allow) > 0 || open.Policy != nil || len(f.Registry) > 0 || len(open.Secrets) > 0
	switch {
	case open.Mode == rung.EgressNone || w.Default == rung.EgressNone && !asked:
		return nil, "", nil
	case w.Rung == rung.None && asked:
		return nil, "", rung.Errorf(rung.KindInvalid, "rung none has the host's own network: no rule holds there")
	case w.Rung == rung.None:
		return nil, "", nil
	}
	if why := noInterface(w.Rung); why != nil {
		if asked {
			return nil, "", why
		}
		return nil, why.Error(), nil
	}
	n = &Network{id: w.ID, agent: w.Agent, asker: w.Asker, rung: w.Rung, ttl: w.Timeout + leaseSlack, host: h, flags: f, done: make(chan control.Summary, 1)}
	if err := n.registries(ctx, f.Registry, f.MinAge, &open); err != nil {
		return nil, "", err
	}
	if err := n.open(ctx, open); err != nil {
		return nil, "", err
	}
	if n.opened.Egress.Mode == rung.EgressNone {
		n.Close()
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

func (n *Network) open(ctx context.Context, open control.Open) error {
	var err error
	if n.conn, n.socket, err = n.host.dialGate(ctx); err != nil {
		return err
	}
	var reply control.Reply
	if err = n.conn.Send(control.Request{Open: &open}); err == nil {
		n.link, err = n.conn.Receive(&reply)
	}
	switch {
	case err != nil:
		err = rung.Errorf(rung.KindUnavailable, "the gate does not answer: %w", err).WithHint("see " + gateLog(n.socket))
	case reply.Failed != nil:
		err = reply.Failed.Err()
	case reply.Opened == nil || n.link == nil && reply.Opened.Egress.Mode != rung.EgressNone:
		err = rung.Errorf(rung.KindInternal, "the gate's answer is none")
	}
	if err != nil {
		n.Close()
		return err
	}
	n.opened = *reply.Opened
	_ = n.conn.Raw().SetDeadline(time.Time{})
	go n.listen()
	return nil
}

// listen takes the gate's messages until its connection ends, which close or the gate's own end brings about.
func (n *Network) listen() {
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
		case m.Approval != nil:
			go n.ask(*m.Approval) // the gate waits with few at once
		}
	}
}

// Give adds to a task what its sandbox needs of the network.
func (n *Network) Give(ctx context.Context, t *session.Task) error {
	if n == nil {
		return nil
	}
	env := append(patience(), n.env...)
	placeholders, err := n.lease(ctx)
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
	// Its own name too, which git and others look up: the gate would refuse it, and tell of it.
	hosts := "127.0.0.1 localhost " + n.id + "\n::1 localhost ip6-localhost ip6-loopback " + n.id + "\n"
	n.files = append(n.files, driver.File{Path: "/etc/hosts", Data: []byte(hosts)})
	if len(n.opened.Authority) > 0 || os.Getenv("SSL_CERT_FILE") != "" {
		bundle, err := n.bundle()
		if err != nil {
			return err
		}
		n.files = append(n.files, driver.File{Path: image.CAInside, Data: bundle})
	}
	// What the caller sets by --env comes last and wins.
	t.Env = append(append(env, placeholders...), t.Env...)
	t.Inputs = append(n.inputs, t.Inputs...)
	t.Link, t.Files = &driver.Link{Gate: n.link}, n.files
	return nil
}

// caVariables are where programs that bring authorities of their own look for others.
func caVariables() []string {
	return []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}
}

// patience shortens npm's waits of 10 and 60 seconds before it asks again for a name that was refused: no second answer of the
// gate's is another one, and a run has a minute by default.
func patience() []string {
	return []string{"NPM_CONFIG_FETCH_RETRY_MINTIMEOUT=500", "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT=2000"}
}

// proxyEnv tells clients of the gate's proxy, the only thing that answers in a sandbox of rung process.
func proxyEnv() (env []string) {
	at := "127.0.0.1:" + strconv.Itoa(holder.ProxyPort)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		env = append(env, name+"=http://"+at)
	}
	env = append(env, "NODE_USE_ENV_PROXY=1") // without it Node's fetch knows no proxy; from Node 22.21 and 24 on
	return append(env, "ALL_PROXY=socks5h://"+at, "all_proxy=socks5h://"+at, "NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1")
}

// bundle is the host's bundle, or the one that its user names instead, with the session's authority after it.
func (n *Network) bundle() ([]byte, error) {
	var list []byte
	path := os.Getenv("SSL_CERT_FILE")
	if path == "" {
		path, _ = image.HostCABundle()
	}
	if path != "" {
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

// Started closes what only the holder keeps once the sandbox stands: its end is then the link's end. Safe on nil.
func (n *Network) Started() {
	if n != nil && n.link != nil {
		n.link.Close()
		n.link = nil
	}
}

// summaryTimeout bounds the wait for the gate's account of a run that is over.
const summaryTimeout = 5 * time.Second

// Finish asks for the gate's account and puts it into the record. A gate that went took its account with it: that is said.
func (n *Network) Finish(rec *rung.Record) {
	if n == nil {
		return
	}
	defer n.Close()
	n.Started()
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

// Close ends the session. Safe on nil and more than once.
func (n *Network) Close() {
	if n == nil {
		return
	}
	n.Started()
	if n.conn != nil {
		n.conn.Close()
	}
}

// leaseSlack is how much longer than the run a lease lives: starting and ending take time too.
const leaseSlack = 2 * time.Minute
