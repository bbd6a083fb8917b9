// Package rtnl asks the kernel's rtnetlink (rtnetlink(7)) for the few changes of interfaces, addresses and routes that the
// hostile-egress tests and their probe make, so that neither needs a program for it.
package rtnl

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

var order = binary.NativeEndian

// Up brings an interface up.
func Up(index int) error {
	return ask(unix.RTM_NEWLINK, 0, link(index, unix.IFF_UP, unix.IFF_UP))
}

// Flags sets and clears flags of an interface.
func Flags(index int, flags, change uint32) error {
	return ask(unix.RTM_NEWLINK, 0, link(index, flags, change))
}

// MAC changes an interface's Ethernet address.
func MAC(index int, mac []byte) error {
	return ask(unix.RTM_NEWLINK, 0, attr(link(index, 0, 0), unix.IFLA_ADDRESS, mac))
}

func link(index int, flags, change uint32) []byte {
	b := []byte{unix.AF_UNSPEC, 0, 0, 0}
	b = order.AppendUint32(b, uint32(index))
	b = order.AppendUint32(b, flags)
	return order.AppendUint32(b, change)
}

// Address gives an interface an address.
func Address(index int, p netip.Prefix) error {
	b := []byte{family(p.Addr()), byte(p.Bits()), unix.IFA_F_NODAD, 0}
	b = order.AppendUint32(b, uint32(index))
	b = attr(b, unix.IFA_LOCAL, p.Addr().AsSlice())
	return ask(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, attr(b, unix.IFA_ADDRESS, p.Addr().AsSlice()))
}

// Local makes every address of a network this host's own, on the loopback interface.
func Local(p netip.Prefix, loopback int) error {
	return route(p, netip.Addr{}, loopback, unix.RTN_LOCAL, unix.RT_SCOPE_HOST)
}

// Via routes a network by way of a gateway; without one, straight to the interface.
func Via(p netip.Prefix, gateway netip.Addr, index int) error {
	scope := byte(unix.RT_SCOPE_UNIVERSE)
	if !gateway.IsValid() {
		scope = unix.RT_SCOPE_LINK
	}
	return route(p, gateway, index, unix.RTN_UNICAST, scope)
}

func route(p netip.Prefix, gateway netip.Addr, index int, kind, scope byte) error {
	table := byte(unix.RT_TABLE_MAIN)
	b := []byte{family(p.Addr()), byte(p.Bits()), 0, 0, table, unix.RTPROT_STATIC, scope, kind, 0, 0, 0, 0}
	if p.Bits() > 0 {
		b = attr(b, unix.RTA_DST, p.Addr().AsSlice())
	}
	if gateway.IsValid() {
		b = attr(b, unix.RTA_GATEWAY, gateway.AsSlice())
	}
	b = attr(b, unix.RTA_OIF, order.AppendUint32(nil, uint32(index)))
	return ask(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, b)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func attr(b []byte, kind uint16, value []byte) []byte {
	b = order.AppendUint16(b, uint16(4+len(value)))
	b = append(order.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// ask sends one request and waits, at most two seconds, for the answer.
func ask(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return err
	}
	b := order.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = order.AppendUint16(b, kind)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	b = append(append(b, 1, 0, 0, 0, 0, 0, 0, 0), body...)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || order.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("rtnetlink: an answer that is none")
	}
	if code := int32(order.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
