package gate

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/authority"
	"github.com/rung-dev/rung/internal/gate/budget"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/gate/dns"
	"github.com/rung-dev/rung/internal/gate/flow"
	"github.com/rung-dev/rung/internal/gate/ledger"
	"github.com/rung-dev/rung/internal/gate/pin"
	"github.com/rung-dev/rung/internal/gate/registry"
	"github.com/rung-dev/rung/internal/gate/rule"
	"github.com/rung-dev/rung/internal/gate/secret"
	"github.com/rung-dev/rung/internal/gate/sigv4"
	"github.com/rung-dev/rung/internal/gate/web"
)

// session is one sandbox's: its policy, what it has used, and the link it comes from.
type session struct {
	id, token string
	outside   Outside
	egress    rung.Egress
	policy    *rule.Policy
	client    *control.Conn
	link      *net.UnixConn // our end
	theirs    *os.File      // the holder's end, until it is sent

	ledger     *ledger.Ledger
	meter      *budget.Meter
	pins       *pin.Table
	dns        *dns.Server
	flow       *flow.Flow
	authority  *authority.CA // nil when no TLS is opened
	pool       *web.Pool
	swap       *secret.Swap
	registries *registry.Set
	judges     sync.Map // rule name to *registry.Judge
	leases     leases
	approvals  approvals
	proxied    proxied
	signer     *sigv4.Signer
	forgets    *forgetting // the process's; nil until the session is open

	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // the link has ended, or will never begin
	quiet  chan struct{} // the same, a little earlier: what it served is not taken down yet, but nothing more comes
	once   sync.Once
}

// newSession makes a session of what a client wants, or says why it cannot be had.
func newSession(ctx context.Context, c *control.Conn, o *control.Open, out Outside) (*session, error) {
	if o.Version != control.Version {
		return nil, rung.Errorf(rung.KindConflict, "this gate speaks version %d, rung %d", control.Version, o.Version)
	}
	if err := rung.ValidName(o.ID); err != nil {
		return nil, err
	}
	egress, err := understand(o)
	if err != nil {
		return nil, err
	}
	policy, err := rule.Compile(egress)
	if err != nil {
		return nil, err
	}
	egress.Mode, egress.Rules, egress.Budget = policy.Mode(), policy.Rules(), policy.Budget()
	s := &session{
		id: o.ID, token: rand.Text(), outside: out, egress: egress, policy: policy, client: c,
		meter: budget.New(egress.Budget), pins: pin.New(time.Now), swap: secret.New(), registries: registry.NewSet(),
		signer: sigv4.New(),
		gone:   make(chan struct{}),
		quiet:  make(chan struct{}),
	}
	s.leases.expect(o.Secrets, egress)
	s.approvals.ask = func(a control.Approval) bool { return o.Asks && c.Send(control.Reply{Approval: &a}) == nil }
	s.ledger = ledger.New(func(e ledger.Event) {
		if e.Denied != nil {
			_ = c.Send(control.Reply{Denied: e.Denied}) // a client that is gone reads the summary or nothing
		}
	})
	s.ledger.Grade = s.grade
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.pool = web.NewPool(upstream{s}, out.Roots)
	s.dns = s.newDNS()
	s.flow = flow.New(flow.Config{
		Policy: policy, Pins: s.pins, Meter: s.meter, Ledger: s.ledger, Dial: s.leave, Resolve: s.resolve, Inspect: s.inspect,
	})
	if err := s.prepare(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepare makes what the sandbox gets before it starts.
func (s *session) prepare() error {
	if s.egress.Mode == rung.EgressNone {
		return nil
	}
	if s.policy.Opens() {
		ca, err := authority.New(s.id)
		if err != nil {
			return err
		}
		s.authority = ca
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return rung.Errorf(rung.KindExhausted, "gate: link: %w", err)
	}
	s.theirs = os.NewFile(uintptr(fds[1]), "link")
	mine := os.NewFile(uintptr(fds[0]), "link")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		return rung.Errorf(rung.KindInternal, "gate: link: %w", err)
	}
	s.link, _ = conn.(*net.UnixConn)
	return nil
}

// serve speaks with the client until both it and the link are gone, or it has its summary.
func (s *session) serve() {
	opened := control.Opened{Token: s.token, Egress: s.egress, Notes: append(s.policy.Notes(), s.outside.Notes...)}
	if s.authority != nil {
		opened.Authority = s.authority.PEM()
	}
	var files []*os.File
	if s.theirs != nil {
		files = append(files, s.theirs)
	}
	err := s.client.Send(control.Reply{Opened: &opened}, files...)
	if s.theirs != nil {
		s.theirs.Close()
	}
	if err != nil || s.link == nil {
		close(s.quiet)
		close(s.gone)
		return
	}
	go s.attend()
	for {
		var r control.Request
		file, err := s.client.Receive(&r)
		if file != nil {
			file.Close()
		}
		if err != nil {
			<-s.gone // the sandbox may outlive its client
			return
		}
		switch {
		case r.Finish:
			s.finish()
			return
		case r.Answer != nil:
			s.approvals.answer(*r.Answer)
		}
	}
}

// endTimeout is how long a finished sandbox's link may take to close before its account is given all the same.
const endTimeout = time.Second

func (s *session) finish() {
	select {
	case <-s.quiet:
	case <-time.After(endTimeout):
	}
	snapshot := s.ledger.Snapshot()
	_ = s.client.Send(control.Reply{Summary: &control.Summary{
		Denied: snapshot.Denied, Allowed: snapshot.Allowed, Packages: snapshot.Packages, Usage: s.meter.Usage(),
	}}) // a client that is gone needs none
}

// attend waits for what the holder sends, serves it, and notices the sandbox's end, which ends its leases whatever its
// client does: a revocation kills the sandbox, and a client may be stopped.
func (s *session) attend() {
	defer close(s.gone)
	defer s.drop()
	defer s.cancel()
	quiet := sync.OnceFunc(func() { close(s.quiet) })
	defer quiet()
	var kind [1]byte
	file, n, err := control.ReceiveFile(s.link, kind[:])
	if err != nil || n != 1 || file == nil {
		return
	}
	served, err := s.connect(kind[0], file)
	if err != nil {
		s.ledger.Deny(rung.NetDenial{Layer: "link", Reason: "the sandbox's link cannot be served: " + err.Error()})
		return
	}
	defer served.end()
	// Nothing more comes: the read ends when the holder does. A byte would be a protocol error, and ends the session too.
	_, _ = s.link.Read(kind[:])
	served.flush()
	quiet() // taking down a network stack takes milliseconds that nobody needs to wait for
}

// close ends everything of the session. Idempotent.
func (s *session) close() {
	s.once.Do(func() {
		s.cancel()
		if s.link != nil {
			s.link.Close() // attend ends by that
		}
		select {
		case <-s.gone:
		case <-time.After(endTimeout): // a session that never served
		}
		s.pool.Close()
		if s.authority != nil {
			s.authority.Close()
		}
		s.drop()
		s.ledger.Close()
	})
}

// inspect serves one connection request by request.
func (s *session) inspect(ctx context.Context, c net.Conn, names []flow.Target, first []byte, secure bool) {
	t := names[0]
	if !secure {
		t, first = choose(c, names, first)
	}
	var leaf func(string) (*tls.Certificate, error)
	if s.authority != nil {
		leaf = s.authority.Leaf
	}
	err := web.Serve(ctx, web.Session{
		Client: c, Read: first, Name: t.Name, Port: int(t.Addr.Port()), TLS: secure, Leaf: leaf,
		Judge: judge{s}, Pool: s.pool, Secrets: s.swap, Sink: sink{s},
	})
	if rejected := new(tls.AlertError); secure && errors.As(err, rejected) {
		s.ledger.Deny(rung.NetDenial{
			Layer: "tls", Host: t.Name, Port: int(t.Addr.Port()), Rule: t.Rule,
			Reason: "the client did not accept the certificate with which this host's requests are judged: it has a trust store of its own",
			Hint:   "point the client at /etc/ssl/certs/ca-certificates.crt",
		})
	}
}

// upstream opens connections for requests that were judged, to an address that is pinned for their name.
type upstream struct{ *session }

// Dial implements web.Upstream.
func (u upstream) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	addrs := u.pins.Addrs(name)
	if len(addrs) == 0 { // the answer's time is over, the connection is not: ask again
		var err error
		if addrs, err = u.resolve(ctx, name); err != nil {
			return nil, err
		}
	}
	d := u.policy.Connect(name, port)
	if !d.Allow {
		return nil, rung.Errorf(rung.KindRefused, "%s", d.Reason).WithHint(d.Hint)
	}
	return u.flow.Connect(ctx, flow.To(name, netip.AddrPortFrom(addrs[0], uint16(port)), d))
}
