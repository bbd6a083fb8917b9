//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// socketAttacks reach for sockets of the host and for address families whose code runs in its kernel.
func socketAttacks() []attack {
	list := []attack{
		{"host-tcp", hostTCP},
		{"host-abstract-socket", func(t target) result { return hear("unix", "@"+t.Abstract) }},
		{"host-path-socket", func(t target) result { return hear("unix", t.Socket) }},
		{"host-udp", hostUDP},
	}
	for _, s := range []struct {
		name                  string
		family, kind, protocl int
	}{
		{"socket-alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"socket-vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"socket-packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"socket-xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"socket-key", unix.AF_KEY, unix.SOCK_RAW, 2},
		{"socket-rxrpc", unix.AF_RXRPC, unix.SOCK_DGRAM, unix.AF_INET},
		{"socket-raw-ip", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"socket-raw-ip6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"socket-sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"socket-netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"socket-xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		{"socket-uevent", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		{"socket-audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		{"socket-bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"socket-tipc", unix.AF_TIPC, unix.SOCK_SEQPACKET, 0},
		{"socket-can", unix.AF_CAN, unix.SOCK_RAW, 1},
	} {
		list = append(list, attack{s.name, func(target) result {
			return fd(unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocl))
		}})
	}
	return list
}

const soon = 2 * time.Second

// hear connects and tells the digest of what it hears: only the canary's is a crossing.
func hear(network, address string) result {
	c, err := net.DialTimeout(network, address, soon)
	if err != nil {
		return judge(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(soon)) // a socket takes deadlines
	raw, err := io.ReadAll(io.LimitReader(c, 4096))
	if err != nil {
		return judge(err).with("connected, and then")
	}
	return result{Outcome: crossed, Detail: digest(raw)}
}

func hostTCP(t target) result {
	var list []result
	for _, a := range t.TCP {
		list = append(list, hear("tcp", a))
	}
	return first(list...)
}

// hostUDP only asks whether a datagram to another network finds a way.
func hostUDP(target) result {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return judge(err)
	}
	defer unix.Close(s)
	return judge(unix.Connect(s, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})) // sends nothing
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
