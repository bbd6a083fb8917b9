package flow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/rule"
	"github.com/rung-dev/rung/internal/gate/stream"
)

// maxProxyHead bounds what a client may send before it is known where it wants to go.
const maxProxyHead = 16 << 10

// Proxy serves one connection to the sandbox's proxy, HTTP (RFC 9110 9.3.6, RFC 9112 3.2.2) or SOCKS 5 (RFC 1928), told by its
// first byte, and closes it. One connection speaks to one destination.
func (f *Flow) Proxy(ctx context.Context, c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(firstTimeout))
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return
	}
	if b[0] == socksVersion {
		f.socks(ctx, c)
		return
	}
	f.http(ctx, &stream.Prefixed{Conn: c, Prefix: b[:]})
}

// http reads the head of a first request. Only its first line is used here: what follows is judged as a request.
func (f *Flow) http(ctx context.Context, c net.Conn) {
	head, err := readHead(c)
	if err != nil {
		answer(c, 400, "malformed", "not a request that a proxy can take: "+err.Error(), "")
		return
	}
	method, target, err := requestLine(head)
	if err != nil {
		answer(c, 400, "malformed", err.Error(), "")
		return
	}
	host, port, err := authority(method, target)
	if err != nil {
		answer(c, 400, "malformed", err.Error(), "")
		return
	}
	list, d := f.named(ctx, host, port)
	if d != nil {
		answer(c, 403, d.Layer, d.Reason, d.Hint)
		return
	}
	_ = c.SetDeadline(time.Time{})
	if method != "CONNECT" {
		f.plain(ctx, &stream.Prefixed{Conn: c, Prefix: head}, list)
		return
	}
	end := bytes.Index(head, []byte("\r\n\r\n")) + 4
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	f.serve(ctx, &stream.Prefixed{Conn: c, Prefix: head[end:]}, list)
}

// plain serves requests in absolute form. They are HTTP whatever their rule says of other protocols.
func (f *Flow) plain(ctx context.Context, c net.Conn, list []Target) {
	release, err := f.Meter.Open()
	if err != nil {
		f.overBudget(list[0], err)
		answer(c, 403, "budget", err.Error(), "")
		return
	}
	defer release()
	f.Inspect(ctx, &meteredConn{Conn: c, meter: f.Meter, over: func(err error) { f.overBudget(list[0], err) }}, list, nil, false)
}

func readHead(c net.Conn) ([]byte, error) {
	head := make([]byte, 0, 1024)
	buf := make([]byte, 1024)
	for !bytes.Contains(head, []byte("\r\n\r\n")) {
		if len(head) >= maxProxyHead {
			return nil, errors.New("its header does not end")
		}
		n, err := c.Read(buf[:min(len(buf), maxProxyHead-len(head))])
		head = append(head, buf[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return head, nil
}

func requestLine(head []byte) (method, target string, err error) {
	line, _, _ := strings.Cut(string(head), "\r\n")
	part := strings.Split(line, " ")
	if len(part) != 3 || part[2] != "HTTP/1.1" && part[2] != "HTTP/1.0" {
		return "", "", fmt.Errorf("the request line is not METHOD TARGET HTTP/1.1")
	}
	return part[0], part[1], nil
}

// authority returns the destination of a request to a proxy.
func authority(method, target string) (host string, port int, err error) {
	text := target
	standard := 0
	if method != "CONNECT" {
		u, err := url.Parse(target)
		if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
			return "", 0, errors.New("a proxy takes http:// URLs, and CONNECT for anything else")
		}
		text, standard = u.Host, 80
	}
	host = text
	if h, p, e := net.SplitHostPort(text); e == nil {
		host = h
		n, e := strconv.ParseUint(p, 10, 16)
		if e != nil || n == 0 || p[0] == '0' || p[0] == '+' {
			return "", 0, fmt.Errorf("port %q: not a number from 1 to 65535", p)
		}
		return host, int(n), nil
	}
	if standard == 0 {
		return "", 0, errors.New("CONNECT needs HOST:PORT")
	}
	return strings.Trim(host, "[]"), standard, nil
}

// named judges a destination that a client named itself, and resolves it. The denial, if there is one, is noted already.
func (f *Flow) named(ctx context.Context, host string, port int) ([]Target, *rung.NetDenial) {
	if a, err := netip.ParseAddr(host); err == nil {
		d := f.Policy.Direct(a.Unmap(), port)
		if !d.Allow {
			return nil, f.refuse(rung.NetDenial{Layer: "tcp", Address: a.String(), Port: port, Rule: d.RuleName, Reason: d.Reason, Hint: d.Hint})
		}
		return []Target{to("", netip.AddrPortFrom(a.Unmap(), uint16(port)), d, true)}, nil
	}
	name, err := rule.Name(host)
	if err != nil {
		return nil, f.refuse(rung.NetDenial{Layer: "tcp", Host: host, Port: port, Reason: "not a name: " + err.Error()})
	}
	if d := f.Policy.Connect(name, port); !d.Allow {
		return nil, f.refuse(rung.NetDenial{Layer: "tcp", Host: name, Port: port, Rule: d.RuleName, Reason: d.Reason, Hint: d.Hint})
	}
	addrs, err := f.Resolve(ctx, name)
	if rung.KindOf(err) == rung.KindRefused { // noted already
		return nil, &rung.NetDenial{Layer: "dns", Host: name, Port: port, Reason: err.Error(), Hint: rung.HintOf(err)}
	}
	if err != nil || len(addrs) == 0 {
		return nil, f.refuse(rung.NetDenial{Layer: "dns", Host: name, Port: port, Reason: fmt.Sprintf("the name has no address that may be dialled: %v", err)})
	}
	// IPv4 first: it is what most hosts have.
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	t, ok := f.target(name, netip.AddrPortFrom(addrs[0], uint16(port)))
	if !ok {
		return nil, f.refuse(rung.NetDenial{Layer: "tcp", Host: name, Port: port, Reason: "no rule names it"})
	}
	return []Target{t}, nil
}

func (f *Flow) refuse(d rung.NetDenial) *rung.NetDenial {
	f.Ledger.Deny(d)
	return &d
}

// answer is a refusal in HTTP.
func answer(c net.Conn, status int, code, reason, hint string) {
	text := "rung: " + reason + "\n"
	if hint != "" {
		text += "To allow it: " + hint + "\n"
	}
	text += "Trying again will not help.\n"
	name := map[int]string{400: "Bad Request", 403: "Forbidden"}[status]
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nX-Rung-Denied: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, name, code, len(text), text)
}

const (
	socksVersion = 5
	socksConnect = 1
	socksIPv4    = 1
	socksName    = 3
	socksIPv6    = 4
	socksNo      = 2 // connection not allowed by ruleset
	socksUnknown = 7 // command not supported
)

// socks serves SOCKS 5 without authentication; CONNECT only.
func (f *Flow) socks(ctx context.Context, c net.Conn) {
	host, port, code := socksRequest(c)
	if code != 0 {
		_, _ = c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
		return
	}
	list, d := f.named(ctx, host, port)
	if d != nil {
		_, _ = c.Write([]byte{socksVersion, socksNo, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
		return
	}
	if _, err := c.Write([]byte{socksVersion, 0, 0, socksIPv4, 0, 0, 0, 0, 0, 0}); err != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	f.serve(ctx, c, list)
}

// socksRequest reads what follows the version byte. code is the refusal to send, 0 for none.
func socksRequest(c net.Conn) (host string, port int, code byte) {
	var b [257]byte
	read := func(n int) bool { _, err := io.ReadFull(c, b[:n]); return err == nil }
	if !read(1) || !read(int(b[0])) {
		return "", 0, socksUnknown
	}
	if _, err := c.Write([]byte{socksVersion, 0}); err != nil || !read(4) || b[0] != socksVersion || b[1] != socksConnect {
		return "", 0, socksUnknown
	}
	switch b[3] {
	case socksIPv4, socksIPv6:
		n := map[byte]int{socksIPv4: 4, socksIPv6: 16}[b[3]]
		if !read(n) {
			return "", 0, socksUnknown
		}
		a, _ := netip.AddrFromSlice(b[:n])
		host = a.String()
	case socksName:
		if !read(1) || b[0] == 0 {
			return "", 0, socksUnknown
		}
		if n := int(b[0]); !read(n) {
			return "", 0, socksUnknown
		} else {
			host = string(b[:n])
		}
	default:
		return "", 0, socksUnknown
	}
	if !read(2) || b[0] == 0 && b[1] == 0 {
		return "", 0, socksUnknown
	}
	return host, int(binary.BigEndian.Uint16(b[:2])), 0
}
