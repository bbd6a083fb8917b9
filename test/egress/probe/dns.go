//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/rung-dev/rung/test/egress/order"
)

// resolver is what the sandbox is told of.
func resolver() string {
	raw, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "127.0.0.1:53"
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" {
			return net.JoinHostPort(f[1], "53")
		}
	}
	return "127.0.0.1:53"
}

// resolve asks for both families, IPv4 first.
func (p *probe) resolve(name string) ([]netip.Addr, error) {
	var list []netip.Addr
	last := errors.New("no address for " + name)
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, err := ask(order.DNS{Name: name, Type: kind}, refusal/2)
		for n := 0; n < 3 && errors.Is(err, os.ErrDeadlineExceeded); n++ { // as every resolver does: a datagram may be lost
			m, err = ask(order.DNS{Name: name, Type: kind}, refusal/2)
		}
		if err != nil {
			return nil, err // who does not answer one question does not answer the next
		}
		if m.Rcode != dns.RcodeSuccess {
			last = fmt.Errorf("lookup %s: %s", name, dns.RcodeToString[m.Rcode])
		}
		for _, rr := range m.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				if a, ok := netip.AddrFromSlice(rr.A.To4()); ok {
					list = append(list, a)
				}
			case *dns.AAAA:
				if a, ok := netip.AddrFromSlice(rr.AAAA); ok {
					list = append(list, a)
				}
			}
		}
		if len(list) > 0 {
			return list, nil
		}
	}
	return nil, last
}

// ask sends one message and waits for the answer.
func ask(d order.DNS, within time.Duration) (*dns.Msg, error) {
	raw, err := question(d)
	if err != nil {
		return nil, err
	}
	server := d.Server
	if server == "" {
		server = resolver()
	}
	network := "udp"
	if d.TCP {
		network = "tcp"
	}
	c, err := net.DialTimeout(network, server, within)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	conn := &dns.Conn{Conn: c}
	if d.TCP {
		_, err = conn.Write(raw)
	} else {
		_, err = c.Write(raw)
	}
	if err != nil {
		return nil, err
	}
	return conn.ReadMsg()
}

// question is the message in wire form.
func question(d order.DNS) ([]byte, error) {
	kind, class := d.Type, d.Class
	if kind == 0 {
		kind = dns.TypeA
	}
	if class == 0 {
		class = dns.ClassINET
	}
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Id: dns.Id(), RecursionDesired: true, Opcode: d.Opcode, Response: d.Reply}}
	name := dns.Fqdn(d.Name)
	const stand = "0bare0." // one label that is replaced by the bytes themselves
	if d.Bare {
		name = stand
	}
	m.Question = []dns.Question{{Name: name, Qtype: kind, Qclass: class}}
	if d.Second != "" {
		m.Question = append(m.Question, dns.Question{Name: dns.Fqdn(d.Second), Qtype: kind, Qclass: class})
	}
	if d.Extra != "" {
		m.Extra = append(m.Extra, &dns.TXT{Hdr: dns.RR_Header{Name: "x.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{d.Extra}})
	}
	if d.Option != "" {
		o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		o.SetUDPSize(1232)
		o.Option = append(o.Option, &dns.EDNS0_LOCAL{Code: d.Code, Data: []byte(d.Option)})
		m.Extra = append(m.Extra, o)
	}
	raw, err := m.Pack()
	if err != nil || !d.Bare {
		return raw, err
	}
	wire := append([]byte{6}, "0bare0"...)
	label := append([]byte{byte(len(d.Name))}, d.Name...)
	return bytes.Replace(raw, wire, label, 1), nil
}

func (p *probe) dns(c order.Case) (string, error) {
	m, err := ask(*c.DNS, wait(c, 1200*time.Millisecond))
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(m.String(), "\n", " | "), nil
}

// names asks for Count different names, {n} being the number, and says how many got an address.
func (p *probe) names(c order.Case) (string, error) {
	answered := make(chan bool, c.Count)
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for n := range c.Count {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			name := strings.ReplaceAll(c.DNS.Name, "{n}", fmt.Sprintf("%04d", n))
			if p.proxy != "" && !p.order.Control {
				conn, err := p.tunnel(name+":443", 2*refusal)
				if err == nil {
					conn.Close()
				}
				answered <- err == nil
				return
			}
			m, err := ask(order.DNS{Name: name}, 2*refusal)
			answered <- err == nil && len(m.Answer) > 0
		})
	}
	wg.Wait()
	close(answered)
	n := 0
	for ok := range answered {
		if ok {
			n++
		}
	}
	return fmt.Sprintf("answered %d", n), nil
}

// bound asks another server from the port that servers answer from.
func (p *probe) bound(c order.Case) (string, error) {
	conn, err := net.DialUDP("udp", &net.UDPAddr{Port: 53}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(c.DNS.Server)))
	if err != nil {
		if conn, err = net.DialUDP("udp", &net.UDPAddr{Port: 5353}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(c.DNS.Server))); err != nil {
			return "", err
		}
	}
	defer conn.Close()
	raw, err := question(*c.DNS)
	if err != nil {
		return "", err
	}
	return exchange(conn, raw, 500*time.Millisecond)
}
