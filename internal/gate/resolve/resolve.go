// Package resolve looks names up on the host, for the gate: it asks the servers of the host's resolv.conf itself, so that
// what is judged is what was answered and no library adds search domains or answers of its own. Bytes from the servers are
// hostile. The Dialer connects to addresses that were judged, judges each once more at the moment of the connect, and
// never resolves anything.
package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/rung-dev/rung"
)

// The caps of one lookup.
const (
	MaxAddrs   = 64 // addresses taken of one name
	MaxChain   = 8  // CNAMEs followed
	MaxServers = 3  // as glibc reads (resolv.conf(5), MAXNS)
	Attempts   = 2  // rounds over the servers

	QueryTimeout  = 2 * time.Second // of one question to one server
	LookupTimeout = 8 * time.Second // of all
	// ResolutionDelay is how long an answer with IPv4 addresses waits for IPv6 ones (RFC 8305, section 3, asks for 50 ms;
	// the answer is kept here, so more is at stake). Some servers never answer a question for AAAA.
	ResolutionDelay = 300 * time.Millisecond

	// HostsTTL is how long an answer of the hosts file counts.
	HostsTTL = time.Minute
)

// udpSize is what fits any path without fragments (DNS flag day 2020).
const udpSize = 1232

// ErrNoName: the servers say that there is no such name.
var ErrNoName = errors.New("no such name")

// Resolver looks one name up, in its normal form. ttl is the shortest of the answer's. A name that exists without an
// address is an empty list.
type Resolver interface {
	Resolve(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error)
}

// Config is where to look.
type Config struct {
	Servers []netip.AddrPort
	Hosts   map[string][]netip.Addr // of the hosts file, by normal form
}

// Resolve implements Resolver.
func (c Config) Resolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	if addrs := c.Hosts[name]; len(addrs) > 0 {
		return addrs, HostsTTL, nil
	}
	if len(c.Servers) == 0 {
		return nil, 0, rung.Errorf(rung.KindUnavailable, "this host has no name server").
			WithHint("name one in /etc/resolv.conf, or list the host in /etc/hosts")
	}
	ctx, cancel := context.WithTimeout(ctx, LookupTimeout)
	defer cancel()
	six := make(chan answer, 1)
	go func() { six <- c.ask(ctx, name, dns.TypeAAAA) }() // ends by ctx at the latest
	v4 := c.ask(ctx, name, dns.TypeA)
	if len(v4.addrs) == 0 {
		return join(name, v4, <-six)
	}
	late := time.NewTimer(ResolutionDelay)
	defer late.Stop()
	select {
	case v6 := <-six:
		return join(name, v4, v6)
	case <-late.C:
		return v4.addrs, v4.ttl, nil
	}
}

// join makes one answer of both families': one family's failure is none of the other's, if that has addresses.
func join(name string, v4, v6 answer) ([]netip.Addr, time.Duration, error) {
	addrs := append(v4.addrs, v6.addrs...)
	switch {
	case len(v4.addrs) == 0 && len(v6.addrs) == 0:
		for _, err := range []error{v4.err, v6.err} {
			if err != nil && !errors.Is(err, ErrNoName) {
				return nil, 0, rung.Errorf(rung.KindUnavailable, "resolve %s: %w", name, err)
			}
		}
		if v4.err != nil && v6.err != nil {
			return nil, 0, rung.Errorf(rung.KindNotFound, "resolve %s: %w", name, ErrNoName)
		}
		return nil, 0, nil
	case len(v4.addrs) == 0:
		return addrs, v6.ttl, nil
	case len(v6.addrs) == 0:
		return addrs, v4.ttl, nil
	}
	return addrs, min(v4.ttl, v6.ttl), nil
}

type answer struct {
	addrs []netip.Addr
	ttl   time.Duration
	err   error
}

// ask puts the question to one server after the other until one answers it.
func (c Config) ask(ctx context.Context, name string, kind uint16) (a answer) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), kind)
	q.SetEdns0(udpSize, false)
	servers := c.Servers[:min(len(c.Servers), MaxServers)]
	for range Attempts {
		for _, server := range servers {
			m, err := exchange(ctx, q, server.String())
			if err == nil {
				if a = read(m, q.Question[0].Name, kind); a.err == nil || errors.Is(a.err, ErrNoName) {
					return a
				}
				continue
			}
			a.err = err
			if ctx.Err() != nil {
				return a
			}
		}
	}
	return a
}

// exchange asks by UDP and, if the answer was cut, by TCP.
func exchange(ctx context.Context, q *dns.Msg, server string) (*dns.Msg, error) {
	for _, network := range []string{"udp", "tcp"} {
		q.Id = dns.Id()
		client := dns.Client{Net: network, Timeout: QueryTimeout, UDPSize: udpSize}
		m, _, err := client.ExchangeContext(ctx, q, server)
		if err != nil && (m == nil || !m.Truncated) {
			return nil, err
		}
		if !m.Response || len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, q.Question[0].Name) ||
			m.Question[0].Qtype != q.Question[0].Qtype || m.Question[0].Qclass != dns.ClassINET {
			return nil, errors.New("the name server answered another question")
		}
		if !m.Truncated {
			return m, nil
		}
	}
	return nil, errors.New("the name server's answer is cut even by TCP")
}

// read takes the addresses that belong to the name: its own, and those at the end of the CNAME chain that begins at it.
// Records of any other owner are somebody else's and not believed.
func read(m *dns.Msg, name string, kind uint16) (a answer) {
	switch m.Rcode {
	case dns.RcodeSuccess:
	case dns.RcodeNameError:
		return answer{err: ErrNoName}
	default:
		return answer{err: errors.New("the name server answers " + dns.RcodeToString[m.Rcode])}
	}
	owner, ttl := name, uint32(1<<31-1)
	for range MaxChain {
		next := ""
		for _, rr := range m.Answer {
			if c, ok := rr.(*dns.CNAME); ok && strings.EqualFold(c.Hdr.Name, owner) && c.Hdr.Class == dns.ClassINET {
				next, ttl = c.Target, min(ttl, c.Hdr.Ttl)
				break
			}
		}
		if next == "" {
			break
		}
		owner = next
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		if !strings.EqualFold(h.Name, owner) || h.Class != dns.ClassINET || h.Rrtype != kind || len(a.addrs) == MaxAddrs {
			continue
		}
		if addr, ok := addrOf(rr); ok {
			a.addrs, ttl = append(a.addrs, addr), min(ttl, h.Ttl)
		}
	}
	if len(a.addrs) > 0 {
		a.ttl = time.Duration(ttl) * time.Second
	}
	return a
}

func addrOf(rr dns.RR) (netip.Addr, bool) {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A.To4()
	case *dns.AAAA:
		ip = rr.AAAA.To16()
	}
	return netip.AddrFromSlice(ip)
}
