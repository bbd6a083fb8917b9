//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung/test/egress/order"
)

// refusal is how long a refusal may take on a busy machine: most come at once.
const refusal = 5 * time.Second

// connect opens a connection to a literal address or a name: over the interface, or by CONNECT where a proxy is all there
// is. The control has both, and takes the straight way.
func (p *probe) connect(host string, port int, within time.Duration) (net.Conn, error) {
	if p.proxy != "" && !p.order.Control {
		return p.tunnel(net.JoinHostPort(host, strconv.Itoa(port)), within)
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		list, err := p.resolve(host)
		if err != nil {
			return nil, err
		}
		a = list[0]
	}
	return net.DialTimeout("tcp", net.JoinHostPort(a.String(), strconv.Itoa(port)), within)
}

// tunnel asks the sandbox's proxy.
func (p *probe) tunnel(to string, within time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", p.proxy, within)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(within))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	r := bufio.NewReader(c)
	status, err := r.ReadString('\n')
	if err != nil || !strings.Contains(status, " 200 ") {
		rest, _ := io.ReadAll(io.LimitReader(r, 400))
		c.Close()
		return nil, fmt.Errorf("proxy: %q %q %w", status, rest, err)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			c.Close()
			return nil, err
		}
		if line == "\r\n" {
			break
		}
	}
	_ = c.SetDeadline(time.Time{})
	return &buffered{c, r}, nil
}

type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

func (b *buffered) CloseWrite() error { return b.Conn.(*net.TCPConn).CloseWrite() }

// dial goes straight to a literal address; where there is a proxy, by it as well.
func (p *probe) dial(c order.Case) (string, error) {
	within := wait(c, 1200*time.Millisecond)
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), max(within, refusal))
	if err != nil && p.proxy != "" && !p.order.Control {
		straight := err
		if conn, err = p.connect(c.Host, c.Port, max(within, refusal)); err != nil {
			err = errors.Join(straight, err)
		}
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return exchange(conn, orToken(c), within)
}

func orToken(c order.Case) []byte {
	if len(c.Send) > 0 {
		return c.Send
	}
	return []byte("GET /" + c.Token + " HTTP/1.0\r\n\r\n")
}

// exchange sends and reads until the other side has said something whole, or time is over.
func exchange(conn net.Conn, send []byte, within time.Duration) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write(send); err != nil {
		return "", err
	}
	return answer(conn)
}

func answer(conn io.Reader) (string, error) {
	var got []byte
	buf := make([]byte, 4096)
	for len(got) < 1<<16 {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if bytes.Contains(got, []byte("canary")) || bytes.Contains(got, []byte("X-Rung-")) && bytes.Contains(got, []byte("\r\n\r\n")) {
			break
		}
		if err != nil {
			if len(got) > 0 {
				err = nil
			}
			return string(got), err
		}
	}
	return string(got), nil
}

// stream resolves, connects, opens TLS where it is asked to, and sends bytes as they are.
func (p *probe) stream(c order.Case) (string, error) {
	within := wait(c, 2*time.Second)
	conn, err := p.connect(c.Host, c.Port, max(within, refusal))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	if c.TLS != nil {
		if c.TLS.Raw {
			return exchange(conn, clientHello(c.TLS, c.Token), within)
		}
		t := tls.Client(conn, p.tlsConfig(c))
		if err := t.Handshake(); err != nil {
			return "", err
		}
		conn = t
	}
	return exchange(conn, orToken(c), within)
}

func (p *probe) tlsConfig(c order.Case) *tls.Config {
	// Whom it speaks to is no question of the probe's: it wants out.
	cfg := &tls.Config{ServerName: c.TLS.SNI, NextProtos: c.TLS.ALPN, InsecureSkipVerify: true, RootCAs: x509.NewCertPool()}
	switch {
	case c.TLS.SNI == "-":
		cfg.ServerName = ""
	case c.TLS.SNI == "":
		cfg.ServerName = c.Host
	}
	return cfg
}

// follow does what a client does with a redirect.
func (p *probe) follow(c order.Case) (string, error) {
	got, err := p.stream(c)
	if err != nil {
		return got, err
	}
	_, to, found := strings.Cut(got, "Location: ")
	to, _, ended := strings.Cut(to, "\r\n")
	if !found || !ended {
		return got, errors.New("no redirect")
	}
	u, err := url.Parse(to)
	if err != nil {
		return to, err
	}
	conn, err := p.connect(u.Hostname(), 80, refusal)
	if err != nil {
		return to, err
	}
	defer conn.Close()
	return exchange(conn, []byte("GET /"+c.Token+" HTTP/1.0\r\nHost: "+u.Host+"\r\n\r\n"), time.Second)
}

// relay has a program of the sandbox's own in between: who asks is then somebody else, but not somewhere else.
func (p *probe) relay(c order.Case) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	failed := make(chan error, 1)
	go func() {
		in, err := l.Accept()
		if err != nil {
			failed <- err
			return
		}
		defer in.Close()
		out, err := p.connect(c.Host, c.Port, refusal)
		failed <- err
		if err != nil {
			return
		}
		defer out.Close()
		go func() { _, _ = io.Copy(out, in) }() // ends with out
		_, _ = io.Copy(in, out)                 // whatever came is what came
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := <-failed; err != nil {
		return "", err
	}
	return exchange(conn, orToken(c), time.Second)
}

// repeat asks for the same thing again and again: an answer that comes once is one too many.
func (p *probe) repeat(c order.Case) (string, error) {
	reached := 0
	var last string
	for range c.Count {
		conn, err := p.connect(c.Host, c.Port, refusal)
		if err != nil {
			last = err.Error()
			continue
		}
		reached++
		_, _ = exchange(conn, orToken(c), 500*time.Millisecond) // the connection counts
		conn.Close()
	}
	return fmt.Sprintf("reached %d of %d; last: %s", reached, c.Count, last), nil
}

// half closes its side after the request and still wants the answer.
func (p *probe) half(c order.Case) (string, error) {
	conn, err := p.connect(c.Host, c.Port, refusal)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait(c, 2*time.Second)))
	if _, err := conn.Write(orToken(c)); err != nil {
		return "", err
	}
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		if err := w.CloseWrite(); err != nil {
			return "", err
		}
	}
	return answer(conn)
}

// raw sends bytes to the sandbox's proxy as they are.
func (p *probe) raw(c order.Case) (string, error) {
	if p.proxy == "" {
		return "", errors.New("no proxy here")
	}
	conn, err := net.DialTimeout("tcp", p.proxy, refusal)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait(c, 1500*time.Millisecond)))
	// SOCKS answers a greeting before it takes the request; HTTP does not mind a pause either.
	for part := range bytes.SplitSeq(c.Send, []byte("{pause}")) {
		if _, err := conn.Write(part); err != nil {
			return "", err
		}
		if bytes.HasSuffix(c.Send, part) {
			break
		}
		buf := make([]byte, 512)
		n, err := conn.Read(buf)
		if err != nil {
			return string(buf[:n]), err
		}
		if n > 1 && buf[0] == 5 && buf[1] != 0 || bytes.Contains(buf[:n], []byte("X-Rung-")) {
			return string(buf[:n]), errors.New("refused")
		}
	}
	return answer(conn)
}
