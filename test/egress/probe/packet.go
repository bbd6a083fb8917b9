//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/internal/sys/tap"
	"github.com/rung-dev/rung/test/egress/order"
	"github.com/rung-dev/rung/test/egress/rtnl"
)

func (p *probe) udp(c order.Case) (string, error) {
	conn, err := net.Dial("udp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if raw, ok := conn.(*net.UDPConn); ok { // for broadcast addresses; refused nowhere
		if s, err := raw.SyscallConn(); err == nil {
			_ = s.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1) })
		}
	}
	return exchange(conn, orToken(c), wait(c, 400*time.Millisecond))
}

// sockaddr and family of a literal address.
func sockaddr(a netip.Addr) (int, unix.Sockaddr) {
	if a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
}

// icmp sends an echo request as ping does without rights, or else with.
func (p *probe) icmp(c order.Case) (string, error) {
	a, err := netip.ParseAddr(c.Host)
	if err != nil {
		return "", err
	}
	family, to := sockaddr(a)
	proto, kind := unix.IPPROTO_ICMP, byte(8)
	if a.Is6() {
		proto, kind = unix.IPPROTO_ICMPV6, 128
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, proto)
	if err != nil {
		if fd, err = unix.Socket(family, unix.SOCK_RAW, proto); err != nil {
			return "", err
		}
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 400_000}) // or it waits for patience
	m := append([]byte{kind, 0, 0, 0, 0, 1, 0, 1}, c.Token...)
	binary.BigEndian.PutUint16(m[2:], sum(m)) // the kernel does it again for ICMPv6
	if err := unix.Sendto(fd, m, 0, to); err != nil {
		return "", err
	}
	buf := make([]byte, 256)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	return hex.EncodeToString(buf[:max(n, 0)]), err
}

// ip sends one packet of some protocol by a raw socket.
func (p *probe) ip(c order.Case) (string, error) {
	a, err := netip.ParseAddr(c.Host)
	if err != nil {
		return "", err
	}
	family, to := sockaddr(a)
	fd, err := unix.Socket(family, unix.SOCK_RAW, c.Proto)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	body := append([]byte{}, c.Token...)
	if c.Proto == 4 { // a packet within a packet
		body = v4(netip.MustParseAddr("10.66.0.1"), netip.MustParseAddr("10.66.0.2"), 17, datagram(9, c.Token), nil, 0)
	}
	return "", unix.Sendto(fd, body, 0, to)
}

// frame puts one Ethernet frame on the link.
func (p *probe) frame(c order.Case) (string, error) {
	name := tap.Name
	if p.order.Control {
		name = "lo"
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return "", err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for _, f := range frames(c.Frame, c.Token) {
		if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}); err != nil {
			return "", err
		}
	}
	return "sent", nil
}

func mac(text string, or [6]byte) []byte {
	if m, err := net.ParseMAC(text); err == nil {
		return m
	}
	return or[:]
}

func addr(text string, or netip.Addr) netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil {
		return a
	}
	return or
}

func frames(f *order.Frame, token string) [][]byte {
	dst := addr(f.Dst, tap.GatewayV4())
	src, kind := addr(f.Src, tap.GuestV4()), 0x0800
	if dst.Is6() {
		src, kind = addr(f.Src, tap.GuestV6()), 0x86dd
	}
	proto, inner := byte(17), datagram(f.Port, token)
	switch {
	case f.Kind == "syn":
		proto, inner = 6, syn(src, dst, f.Port, token)
	case f.Proto != 0:
		proto, inner = byte(f.Proto), append([]byte(token), make([]byte, 32)...)
	}
	var body []byte
	switch f.Kind {
	case "arp": // says that Src is at the sender's
		kind = 0x0806
		m := mac(f.SrcMAC, tap.GuestMAC())
		body = slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 2}, m, src.AsSlice(), m, dst.AsSlice(), []byte(token))
	case "arp-ask":
		kind = 0x0806
		m := mac(f.SrcMAC, tap.GuestMAC())
		body = slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, m, src.AsSlice(), make([]byte, 6), dst.AsSlice(), []byte(token))
	case "advert": // an unasked-for neighbour advertisement for Src
		m := slices.Concat([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, src.AsSlice(), []byte{2, 1}, mac(f.SrcMAC, tap.GuestMAC()))
		body = v6(src, dst, 58, withSum(src, dst, 58, m, 2))
	case "fragment":
		body = fragment(src, dst, proto, inner)
	case "options":
		body = v4(src, dst, proto, inner, []byte{131, 7, 4, 10, 66, 0, 1, 0}, 0) // loose source route
	case "hop-by-hop", "routing", "destination":
		head := map[string]byte{"hop-by-hop": 0, "routing": 43, "destination": 60}[f.Kind]
		body = v6(src, dst, head, slices.Concat([]byte{proto, 0, 1, 4, 0, 0, 0, 0}, inner))
	case "runt":
		body = []byte(token)
	case "broken":
		body = v4(src, dst, proto, inner, nil, 0)
		binary.BigEndian.PutUint16(body[2:], 60000) // longer than it is
	default:
		if dst.Is4() {
			body = v4(src, dst, proto, inner, nil, 0)
		} else {
			if proto == 17 {
				inner = withSum(src, dst, 17, inner, 6)
			}
			body = v6(src, dst, proto, inner)
		}
	}
	if f.Type != 0 {
		kind = f.Type
	}
	head := slices.Concat(mac(f.DstMAC, tap.GatewayMAC()), mac(f.SrcMAC, tap.GuestMAC()))
	if f.Kind == "vlan" {
		head = append(head, 0x81, 0, 0, 7)
	}
	return [][]byte{slices.Concat(head, u16(kind), body)}
}

func fragment(src, dst netip.Addr, proto byte, inner []byte) []byte {
	if dst.Is4() {
		return v4(src, dst, proto, inner, nil, 0x2000)
	}
	return v6(src, dst, 44, slices.Concat([]byte{proto, 0, 0, 1, 0, 0, 0, 9}, inner))
}

func v4(src, dst netip.Addr, proto byte, body, options []byte, flags int) []byte {
	head := 20 + len(options)
	b := slices.Concat([]byte{byte(0x40 | head/4), 0}, u16(head+len(body)), []byte{0, 9}, u16(flags), []byte{64, proto, 0, 0}, src.AsSlice(), dst.AsSlice(), options)
	binary.BigEndian.PutUint16(b[10:], sum(b))
	return append(b, body...)
}

func v6(src, dst netip.Addr, proto byte, body []byte) []byte {
	return slices.Concat([]byte{0x60, 0, 0, 0}, u16(len(body)), []byte{proto, 255}, src.AsSlice(), dst.AsSlice(), body)
}

func datagram(port int, token string) []byte {
	return slices.Concat(u16(4000), u16(port), u16(8+len(token)), u16(0), []byte(token))
}

// syn has the token as data, which RFC 9293 lets it carry.
func syn(src, dst netip.Addr, port int, token string) []byte {
	b := slices.Concat(u16(4001), u16(port), []byte{0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2}, u16(65535), u16(0), u16(0), []byte(token))
	return withSum(src, dst, 6, b, 16)
}

// withSum puts the checksum over the pseudo header at an offset.
func withSum(src, dst netip.Addr, proto byte, b []byte, at int) []byte {
	pseudo := slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, proto}, u16(len(b)), b)
	if len(b)%2 == 1 {
		pseudo = append(pseudo, 0)
	}
	binary.BigEndian.PutUint16(b[at:], sum(pseudo))
	return b
}

func sum(b []byte) uint16 {
	var n uint32
	for i := 0; i+1 < len(b); i += 2 {
		n += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		n += uint32(b[len(b)-1]) << 8
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}

// net changes the sandbox's own network, where it may, and then dials Host.
func (p *probe) net(c order.Case) (string, error) {
	link, err := net.InterfaceByName(tap.Name)
	if err != nil {
		return "", err
	}
	to, err := netip.ParseAddr(c.Host)
	if err != nil {
		return "", err
	}
	dialer := net.Dialer{Timeout: time.Second}
	restore := func() {}
	switch c.Frame.Kind {
	case "address":
		own := netip.MustParseAddr(c.Frame.Src)
		err = rtnl.Address(link.Index, netip.PrefixFrom(own, own.BitLen()))
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0))
	case "route":
		err = rtnl.Via(netip.PrefixFrom(to, to.BitLen()), netip.Addr{}, link.Index)
	case "mac":
		m := tap.GuestMAC()
		err = rtnl.MAC(link.Index, mac(c.Frame.SrcMAC, m))
		restore = func() { _ = rtnl.MAC(link.Index, m[:]) } // the sandbox is over soon anyway
	case "flags":
		err = rtnl.Flags(link.Index, unix.IFF_PROMISC, unix.IFF_PROMISC|unix.IFF_NOARP)
	default:
		err = errors.New("no such change: " + c.Frame.Kind)
	}
	if err != nil {
		return "", fmt.Errorf("change %s: %w", c.Frame.Kind, err)
	}
	defer restore()
	conn, err := dialer.Dial("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return "changed", err
	}
	defer conn.Close()
	return exchange(conn, orToken(c), time.Second)
}

// serve is the peer: it takes what comes on the port, whatever way it can, until a request to Host is answered.
func (p *probe) serve(c order.Case) (string, error) {
	port := strconv.Itoa(c.Count)
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return "", err
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return "", err
	}
	defer u.Close()
	seen := make(chan string, 64)
	tell := func(how string) {
		select {
		case seen <- how:
		default:
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tell("tcp")
			conn.Close()
		}
	}()
	go func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := u.ReadFrom(buf); err != nil {
				return
			}
			tell("udp")
		}
	}()
	stop := sniff(c.Send, tell)
	defer stop()
	u2 := c
	u2.Send = []byte("GET /hold-" + c.Token + " HTTP/1.1\r\nHost: " + c.Host + "\r\n\r\n")
	if got, err := p.stream(u2); err != nil {
		return got, err
	}
	ways := map[string]bool{}
	for len(seen) > 0 {
		ways[<-seen] = true
	}
	return fmt.Sprint("came: ", slices.Sorted(maps.Keys(ways))), nil
}

// sniff looks for a mark in whatever frame comes, where the sandbox may look.
func sniff(mark []byte, tell func(string)) (stop func()) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(binary.NativeEndian.Uint16([]byte{0, 3})))
	if err != nil {
		return func() {}
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}) // so that it ends
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 65536)
		for {
			select {
			case <-done:
				unix.Close(fd)
				return
			default:
			}
			if n, _, err := unix.Recvfrom(fd, buf, 0); err == nil && bytes.Contains(buf[:n], mark) {
				tell("frame")
			}
		}
	}()
	return func() { close(done); <-ended }
}
