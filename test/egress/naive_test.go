//go:build linux

package egress

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// naive is the control of the proxy's cases: a proxy that takes names as C libraries and careless parsers do. What follows a
// NUL does not count, what precedes an @ is a user, and an address may be decimal, octal or hexadecimal.
func (s *stands) naive(c net.Conn, _ *heard) {
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	target, reply := "", "HTTP/1.1 200 OK\r\n\r\n"
	var prefix []byte
	switch first[0] {
	case 5:
		target, reply = naiveSocks5(c, r)
	case 4:
		target, reply = naiveSocks4(r)
	default:
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		head := line
		for line != "\r\n" && err == nil {
			line, err = r.ReadString('\n')
			head += line
		}
		f := strings.SplitN(head, " ", 3)
		if len(f) < 3 {
			return
		}
		target = f[1]
		if f[0] != "CONNECT" {
			_, target, _ = strings.Cut(f[1], "://")
			host, path, _ := strings.Cut(target, "/")
			prefix = []byte(f[0] + " /" + path + " " + f[2])
			target, reply = host, ""
		}
	}
	up, err := net.DialTimeout("tcp", naiveTarget(target), time.Second)
	if err != nil {
		return
	}
	defer up.Close()
	_ = up.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, reply) // a control that breaks off is one that does not cross
	_, _ = up.Write(prefix)
	go func() { _, _ = io.Copy(up, r) }()
	_, _ = io.Copy(c, up)
}

func naiveSocks5(c net.Conn, r *bufio.Reader) (target, reply string) {
	var b [300]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return "", ""
	}
	if _, err := io.ReadFull(r, b[:b[1]]); err != nil {
		return "", ""
	}
	_, _ = c.Write([]byte{5, 0})
	if _, err := io.ReadFull(r, b[:4]); err != nil {
		return "", ""
	}
	host, n := "", 4
	switch b[3] {
	case 3:
		l, err := r.ReadByte()
		if err != nil {
			return "", ""
		}
		n = int(l)
	case 4:
		n = 16
	}
	kind := b[3]
	if _, err := io.ReadFull(r, b[:n+2]); err != nil {
		return "", ""
	}
	host = string(b[:n])
	if kind != 3 {
		a, _ := netip.AddrFromSlice(b[:n])
		host = a.String()
	}
	port := binary.BigEndian.Uint16(b[n:])
	return net.JoinHostPort(host, strconv.Itoa(int(port))), "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
}

func naiveSocks4(r *bufio.Reader) (target, reply string) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return "", ""
	}
	_, _ = r.ReadString(0)
	a := netip.AddrFrom4([4]byte(b[4:8]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[2:])).String(), "\x00\x5a\x00\x00\x00\x00\x00\x00"
}

// naiveTarget is what such a parser dials.
func naiveTarget(target string) string {
	if i := strings.LastIndexByte(target, '@'); i >= 0 {
		target = target[i+1:]
	}
	host, port, ok := cutLast(target, ":")
	if !ok || strings.HasSuffix(target, "]") {
		host, port = target, "80"
	}
	host = strings.Trim(host, "[] \t")
	host, _, _ = strings.Cut(host, "\x00")
	host, _, _ = strings.Cut(host, "%")
	host = strings.TrimRight(host, ".")
	port = strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, port)
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n & 0xffff)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(a.String(), port)
	}
	if a, ok := aton(host); ok {
		return net.JoinHostPort(a.String(), port)
	}
	return net.JoinHostPort(addresses(host)[0].String(), port)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// aton is inet_aton(3).
func aton(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, p := range parts {
		if len(p) > 1 && p[0] == '0' && p[1] != 'x' && p[1] != 'X' {
			p = "0o" + strings.TrimLeft(p, "0")
			if p == "0o" {
				p = "0"
			}
		}
		n, err := strconv.ParseUint(p, 0, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			v |= n
		} else {
			v |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(v)))), true
}
