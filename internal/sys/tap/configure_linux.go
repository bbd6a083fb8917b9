package tap

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// nodad is an IFA_FLAGS value: the address counts as unique without asking anybody.
const nodad = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE

// Configure gives the interface of that name, in the calling thread's network namespace, the guest's end of the link:
// addresses, MTU, the gate as the one permanent neighbour and as the default route of both families, and brings it up.
// Not one frame is sent by that. v6 is false where the kernel has IPv6 switched off for the namespace; the link then has
// IPv4 only.
func Configure(name string) (v6 bool, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false, rung.Errorf(rung.KindUnavailable, "rtnetlink: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is buffered in it
	wait := unix.NsecToTimeval(int64(answerTimeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return false, rung.Errorf(rung.KindInternal, "rtnetlink: %w", err)
	}
	index, err := indexOf(name)
	if err != nil {
		return false, err
	}
	// Three batches, because IPv6 is optional: that it is off must not be mistaken for a failure of IPv4. The first must
	// precede IFF_UP: at that moment the kernel would make a link-local address and solicit routers with it.
	quiet, err := quietBatch(index).send(fd)
	if err != nil {
		return false, err
	}
	off := slices.ContainsFunc(quiet, isOff)
	if err := first(quiet, "keep IPv6 from configuring itself"); err != nil && !off {
		return false, err
	}
	b := v4Batch(index)
	results, err := b.send(fd)
	if err != nil {
		return false, err
	}
	if err := first(results, b.names...); err != nil || off {
		return false, err
	}
	b = v6Batch(index)
	if results, err = b.send(fd); err != nil {
		return false, err
	}
	if slices.ContainsFunc(results, isOff) {
		return false, nil
	}
	err = first(results, b.names...)
	return err == nil, err
}

// isOff: IPv6 was switched off, by ipv6.disable=1 or for the namespace by disable_ipv6.
func isOff(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)
}

// first returns the first failure of a batch, with what was being done.
func first(results []error, names ...string) error {
	for i, err := range results {
		if err != nil {
			return rung.Errorf(rung.KindUnavailable, "%s: %w", names[i], err).
				WithHint("configuring an interface takes CAP_NET_ADMIN in its network namespace")
		}
	}
	return nil
}

// quietBatch sets that the interface makes no IPv6 address by itself (IN6_ADDR_GEN_MODE_NONE, linux/if_link.h).
func quietBatch(index uint32) *batch {
	const modeNone = 1
	b := &batch{}
	mode := slices.Concat(u16(5), u16(unix.IFLA_INET6_ADDR_GEN_MODE), []byte{modeNone, 0, 0, 0})
	b.link("keep IPv6 from configuring itself", index, 0, 0)
	b.attr(unix.IFLA_AF_SPEC, slices.Concat(u16(uint16(4+len(mode))), u16(unix.AF_INET6), mode)...)
	b.end()
	return b
}

// v4Batch brings the interface up as well. IFF_NOARP is what keeps the kernel from resolving anybody and from joining
// (and so reporting, MLD) solicited-node groups; the permanent neighbour gives the one Ethernet address that is needed.
func v4Batch(index uint32) *batch {
	b := &batch{}
	mac := GuestMAC()
	b.link("set the interface's address and size", index, 0, 0)
	b.attr(unix.IFLA_ADDRESS, mac[:]...)
	b.attr32(unix.IFLA_MTU, MTU)
	b.attr32(unix.IFLA_TXQLEN, QueueLen)
	b.end()
	b.address("add the IPv4 address", index, GuestV4(), PrefixLenV4, 0)
	b.link("bring the interface up", index, unix.IFF_UP|unix.IFF_NOARP, unix.IFF_UP|unix.IFF_NOARP)
	b.end()
	b.neighbour("add the IPv4 neighbour", index, GatewayV4())
	b.route("add the IPv4 route", index, GatewayV4(), 0)
	return b
}

func v6Batch(index uint32) *batch {
	b := &batch{}
	b.address("add the IPv6 address", index, GuestV6(), PrefixLenV6, nodad)
	b.route("add the IPv6 link route", index, GatewayV6(), 128)
	b.neighbour("add the IPv6 neighbour", index, GatewayV6())
	b.route("add the IPv6 route", index, GatewayV6(), 0)
	return b
}

// link begins an RTM_SETLINK request (struct ifinfomsg); the caller ends it.
func (b *batch) link(what string, index uint32, flags, change uint32) {
	fixed := slices.Concat([]byte{unix.AF_UNSPEC, 0}, u16(0), u32(index), u32(flags), u32(change))
	b.begin(what, unix.RTM_SETLINK, 0, fixed...)
}

// address is an RTM_NEWADDR request (struct ifaddrmsg).
func (b *batch) address(what string, index uint32, a netip.Addr, bits byte, flags uint32) {
	fixed := append([]byte{family(a), bits, 0, unix.RT_SCOPE_UNIVERSE}, u32(index)...)
	b.begin(what, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, fixed...)
	b.attr(unix.IFA_LOCAL, a.AsSlice()...)
	b.attr(unix.IFA_ADDRESS, a.AsSlice()...)
	if flags != 0 {
		b.attr32(unix.IFA_FLAGS, flags)
	}
	b.end()
}

// neighbour is an RTM_NEWNEIGH request (struct ndmsg) that pins the gate's Ethernet address to a.
func (b *batch) neighbour(what string, index uint32, a netip.Addr) {
	mac := GatewayMAC()
	fixed := slices.Concat([]byte{family(a), 0, 0, 0}, u32(index), u16(unix.NUD_PERMANENT), []byte{0, unix.RTN_UNICAST})
	b.begin(what, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, fixed...)
	b.attr(unix.NDA_DST, a.AsSlice()...)
	b.attr(unix.NDA_LLADDR, mac[:]...)
	b.end()
}

// route is an RTM_NEWROUTE request (struct rtmsg): with zero bits the default route by way of a, else the route to a.
func (b *batch) route(what string, index uint32, a netip.Addr, bits byte) {
	scope := byte(unix.RT_SCOPE_UNIVERSE)
	if bits != 0 {
		scope = unix.RT_SCOPE_LINK
	}
	fixed := append([]byte{family(a), bits, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, scope, unix.RTN_UNICAST}, u32(0)...)
	b.begin(what, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, fixed...)
	if bits != 0 {
		b.attr(unix.RTA_DST, a.AsSlice()...)
	} else {
		b.attr(unix.RTA_GATEWAY, a.AsSlice()...)
	}
	b.attr32(unix.RTA_OIF, index)
	b.end()
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func indexOf(name string) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, rung.Errorf(rung.KindUnavailable, "find interface %q: %w", name, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is buffered in it
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, rung.Errorf(rung.KindInvalid, "interface name %q: %w", name, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, rung.Errorf(rung.KindNotFound, "find interface %q: %w", name, err)
	}
	return req.Uint32(), nil
}
