// Command standin plays the outside for bench/gate.sh, inside the network namespace that the benchmark made: a name server
// and servers on documentation addresses (RFC 5737), which must be on an interface there already. It writes ca.pem, ca.key
// and the line "up", and ends with its standard input.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
)

// Addresses and names of the stand-ins; the benchmark knows them by these too.
const (
	nameServer = "203.0.113.53:53"
	bulkRaw    = "203.0.113.5:5001"
	bulkHello  = "203.0.113.5:443"
	echoAddr   = "203.0.113.6:5002"
	webAddr    = "203.0.113.7:443"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: standin DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := ca.write(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")); err != nil {
		return err
	}
	leaf, err := ca.leaf("web.example", "bulk.example")
	if err != nil {
		return err
	}
	if err := names(); err != nil {
		return err
	}
	if err := listen(bulkRaw, bulk); err != nil {
		return err
	}
	if err := listen(bulkHello, afterHello); err != nil {
		return err
	}
	if err := listen(echoAddr, func(c net.Conn) { _, _ = io.Copy(c, c) }); err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12}
	if err := listen(webAddr, func(c net.Conn) { items(tls.Server(c, config)) }); err != nil {
		return err
	}
	fmt.Println("up")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// listen serves each connection of an address in a goroutine of its own, and closes it.
func listen(addr string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return nil
}

// names answers for the two names there are.
func names() error {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		addr, ok := map[string]string{"web.example.": "203.0.113.7", "bulk.example.": "203.0.113.5"}[strings.ToLower(q.Question[0].Name)]
		switch {
		case !ok:
			m.Rcode = dns.RcodeNameError
		case q.Question[0].Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: net.ParseIP(addr),
			}}
		}
		_ = w.WriteMsg(m)
	})
	up, failed := make(chan struct{}), make(chan error, 1)
	s := &dns.Server{Addr: nameServer, Net: "udp", Handler: handler, NotifyStartedFunc: func() { close(up) }}
	go func() { failed <- s.ListenAndServe() }()
	select {
	case <-up:
		return nil
	case err := <-failed:
		return err
	}
}
