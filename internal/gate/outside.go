package gate

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/address"
	"github.com/rung-dev/rung/internal/gate/flow"
	"github.com/rung-dev/rung/internal/gate/resolve"
)

// Outside is how this host reaches what is not this host.
type Outside struct {
	Resolver resolve.Resolver
	Roots    *x509.CertPool // whom upstream certificates are verified with
	// Proxy is asked for the upstream proxy of a URL; nil where the host has none.
	Proxy func(*url.URL) (*url.URL, error)
	Notes []string
}

// OutsideOfHost reads what the host's configuration says: resolv.conf and hosts, the bundle of certificate authorities,
// HTTPS_PROXY and NO_PROXY. getenv is os.Getenv. RUNG_GATE_RESOLV_CONF names another resolv.conf.
func OutsideOfHost(getenv func(string) string) (Outside, error) {
	var o Outside
	files, err := resolve.NewFiles(getenv("RUNG_GATE_RESOLV_CONF"), "")
	if err != nil {
		return o, err
	}
	o.Resolver = files
	if o.Roots, err = x509.SystemCertPool(); err != nil {
		return o, rung.Errorf(rung.KindUnavailable, "the host's certificate authorities: %w", err)
	}
	c := httpproxy.FromEnvironment()
	if c.HTTPSProxy == "" {
		return o, nil
	}
	u, err := url.Parse(c.HTTPSProxy)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return o, rung.Errorf(rung.KindInvalid, "HTTPS_PROXY: not an http:// or https:// URL").WithHint("unset it, or correct it")
	}
	o.Proxy = c.ProxyFunc()
	o.Notes = append(o.Notes, "the gate goes out through the host's proxy "+u.Host)
	return o, nil
}

// firstProxied is the first stand-in for names that only the proxy can resolve: 198.18.0.0/15, which has room for all that a
// session may have, belongs to nobody (RFC 2544), and no rule can mean an address of it by accident.
var firstProxied = netip.MustParseAddr("198.18.0.1")

// proxied hands out a session's stand-ins.
type proxied struct {
	mu    sync.Mutex
	next  netip.Addr // all before it, from firstProxied on, are handed out
	names map[string]netip.Addr
}

const maxProxiedNames = 4096

// of returns the stand-in for a name; no name has two.
func (p *proxied) of(name string) (netip.Addr, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.names[name]; ok {
		return a, true
	}
	if p.names == nil {
		p.names, p.next = map[string]netip.Addr{}, firstProxied
	}
	if len(p.names) >= maxProxiedNames {
		return netip.Addr{}, false
	}
	a := p.next
	p.next = p.next.Next()
	p.names[name] = a
	return a, true
}

func (p *proxied) is(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names != nil && !a.Less(firstProxied) && a.Less(p.next)
}

// lookup resolves a name on the host and keeps of the answer what may be dialled. Behind a proxy a name that this host cannot
// resolve, and that a rule names exactly, gets a stand-in.
func (s *session) lookup(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	addrs, ttl, err := s.outside.Resolver.Resolve(ctx, name)
	if (err != nil || len(addrs) == 0) && s.outside.Proxy != nil && s.policy.Exact(name) {
		if a, ok := s.proxied.of(name); ok {
			return []netip.Addr{a}, time.Hour, nil
		}
	}
	return addrs, ttl, err
}

// permitted judges an address that a name was resolved to.
func (s *session) permitted(a netip.Addr) error {
	if s.proxied.is(a) {
		return nil
	}
	if why, no := address.Forbidden(a); no && !s.policy.Names(a) {
		return rung.Errorf(rung.KindRefused, "%s is %s", a, why).WithHint("only a rule that names the address itself, as CIDR:PORT, lets it through")
	}
	return nil
}

// resolve is for connections that name their destination themselves: what it answers is judged and pinned.
func (s *session) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if addrs := s.pins.Addrs(name); len(addrs) > 0 {
		return addrs, nil
	}
	return s.dns.Resolve(ctx, name)
}

// dial connects to a target: to its address and, where that does not answer, to the others that are pinned for the same
// name, so that a client inside needs no second try of its own: to it, a connection stands before ours does. by is who
// judged the address: "gate", or "by-proxy" where the proxy resolves the name.
func (s *session) dial(ctx context.Context, t flow.Target) (c net.Conn, by string, err error) {
	via, err := s.via(t)
	if err != nil {
		return nil, "", err
	}
	if via != nil {
		c, err = throughProxy(ctx, via, net.JoinHostPort(t.Name, strconv.Itoa(int(t.Addr.Port()))))
		return c, "by-proxy", err
	}
	d := resolve.Dialer{Judge: func(a netip.AddrPort) error {
		d := s.policy.Direct(a.Addr().Unmap(), int(a.Port()))
		if t.Name != "" {
			d = s.policy.Address(t.Name, a.Addr().Unmap(), int(a.Port()))
		}
		if !d.Allow {
			return rung.Errorf(rung.KindRefused, "%s", d.Reason).WithHint(d.Hint)
		}
		return nil
	}}
	c, _, err = d.Dial(ctx, s.candidates(t)...)
	return c, "gate", err
}

// candidates are the addresses of a target, the one that its client chose first.
func (s *session) candidates(t flow.Target) []netip.AddrPort {
	first := netip.AddrPortFrom(t.Addr.Addr().Unmap(), t.Addr.Port())
	list := []netip.AddrPort{first}
	if t.Name == "" {
		return list
	}
	for _, a := range s.pins.Addrs(t.Name) {
		if to := netip.AddrPortFrom(a, first.Port()); to != first && !s.proxied.is(a) {
			list = append(list, to)
		}
	}
	return list
}

// via is the host's proxy for a target, nil where the way is straight. An address literal is refused: nobody would judge
// what the proxy makes of it.
func (s *session) via(t flow.Target) (*url.URL, error) {
	if s.outside.Proxy == nil {
		return nil, nil
	}
	host := t.Name
	if host == "" {
		host = t.Addr.Addr().String()
	}
	via, err := s.outside.Proxy(&url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(t.Addr.Port())))})
	switch {
	case err != nil:
		return nil, rung.Errorf(rung.KindUnavailable, "the host's proxy: %w", err)
	case via == nil && s.proxied.is(t.Addr.Addr().Unmap()):
		return nil, rung.Errorf(rung.KindUnavailable, "%s cannot be resolved, and NO_PROXY keeps it from the proxy", t.Name)
	case via != nil && t.Name == "":
		return nil, rung.Errorf(rung.KindRefused, "addresses without a name do not pass the host's proxy")
	}
	return via, nil
}

// throughProxy opens a tunnel (RFC 9110 9.3.6).
func throughProxy(ctx context.Context, via *url.URL, to string) (net.Conn, error) {
	host := via.Host
	if via.Port() == "" {
		host = net.JoinHostPort(via.Hostname(), map[string]string{"http": "80", "https": "443"}[via.Scheme])
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "connect to the host's proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if via.Scheme == "https" {
		c = tls.Client(c, &tls.Config{ServerName: via.Hostname(), MinVersion: tls.VersionTLS12})
	}
	request := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n"
	if u := via.User; u != nil {
		password, _ := u.Password()
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if _, err := fmt.Fprint(c, request+"\r\n"); err != nil {
		c.Close()
		return nil, rung.Errorf(rung.KindUnavailable, "ask the host's proxy: %w", err)
	}
	r := bufio.NewReaderSize(&oneByteReader{c}, 16)
	a, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err == nil && a.StatusCode != http.StatusOK {
		err = errors.New(a.Status)
	}
	if err != nil {
		c.Close()
		return nil, rung.Errorf(rung.KindUnavailable, "the host's proxy does not let %s through: %w", to, err)
	}
	return c, nil
}

// oneByteReader keeps a buffered reader from taking bytes that belong to the tunnel.
type oneByteReader struct{ net.Conn }

func (r *oneByteReader) Read(p []byte) (int, error) {
	if len(p) > 1 {
		p = p[:1]
	}
	return r.Conn.Read(p)
}
