package stack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/stack"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// wire is a guest that speaks frames: the other end of a stack's link.
type wire struct {
	t testing.TB
	f *os.File
	s *stack.Stack
	h *handler

	buf []byte
}

func newWire(t testing.TB, h *handler, kind int) *wire {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
	}
	far := os.NewFile(uintptr(fds[1]), "far")
	link, err := stack.NewPacketLink(far)
	if kind == unix.SOCK_STREAM {
		link, err = stack.NewStreamLink(far)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.news = make(chan struct{}, 1)
	s, err := stack.New(link, h)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, f: os.NewFile(uintptr(fds[0]), "near"), s: s, h: h}
	t.Cleanup(func() { w.s.Close(); w.f.Close() })
	return w
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := w.f.Write(frame); err != nil {
		w.t.Fatal(err)
	}
}

// receive returns the next frame, valid until the next call, or nil if none comes in time.
func (w *wire) receive() []byte {
	w.t.Helper()
	if err := w.f.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	if w.buf == nil {
		w.buf = make([]byte, 1<<17)
	}
	n, err := w.f.Read(w.buf)
	if err != nil {
		return nil
	}
	return w.buf[:n]
}

// sync waits until all that was sent was judged: the gate answers an ARP question after it.
func (w *wire) sync() {
	w.t.Helper()
	w.send(arpFrame(tap.GuestMAC(), tap.GuestV4(), tap.GatewayV4()))
	for {
		f := w.receive()
		if f == nil {
			w.t.Fatal("the gate does not answer any more")
		}
		if binary.BigEndian.Uint16(f[12:]) == 0x0806 {
			return
		}
	}
}

func ether(dst, src [6]byte, kind uint16, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(append([]byte{}, dst[:]...), src[:]...), kind), body...)
}

func arpFrame(mac [6]byte, sender, target netip.Addr) []byte {
	a := make(header.ARP, header.ARPSize)
	a.SetIPv4OverEthernet()
	a.SetOp(header.ARPRequest)
	copy(a.HardwareAddressSender(), mac[:])
	copy(a.ProtocolAddressSender(), sender.AsSlice())
	copy(a.ProtocolAddressTarget(), target.AsSlice())
	return ether([6]byte{255, 255, 255, 255, 255, 255}, tap.GuestMAC(), 0x0806, a)
}

func addrOf(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

// ip makes an IP packet in a frame; change, if any, spoils the packet before its checksum is set.
func ip(protocol byte, src, dst netip.Addr, payload []byte, change func(p []byte)) []byte {
	if dst.Is6() {
		p := make(header.IPv6, header.IPv6MinimumSize)
		p.Encode(&header.IPv6Fields{PayloadLength: uint16(len(payload)), TransportProtocol: tcpip.TransportProtocolNumber(protocol), HopLimit: 255, SrcAddr: addrOf(src), DstAddr: addrOf(dst)})
		p = append(p, payload...)
		if change != nil {
			change(p)
		}
		return ether(tap.GatewayMAC(), tap.GuestMAC(), 0x86dd, p)
	}
	p := make(header.IPv4, header.IPv4MinimumSize)
	p.Encode(&header.IPv4Fields{TotalLength: uint16(len(p) + len(payload)), TTL: 64, Protocol: protocol, SrcAddr: addrOf(src), DstAddr: addrOf(dst)})
	p = append(p, payload...)
	if change != nil {
		change(p)
	}
	p.SetChecksum(0)
	p.SetChecksum(^p.CalculateChecksum())
	return ether(tap.GatewayMAC(), tap.GuestMAC(), 0x0800, p)
}

func transportSum(protocol byte, src, dst netip.Addr, m []byte, at int) []byte {
	sum := checksum.Checksum(m, header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(protocol), addrOf(src), addrOf(dst), uint16(len(m))))
	binary.BigEndian.PutUint16(m[at:], ^sum)
	return m
}

func syn(src netip.Addr, dst netip.AddrPort, port uint16) []byte {
	m := make(header.TCP, header.TCPMinimumSize)
	m.Encode(&header.TCPFields{SrcPort: port, DstPort: dst.Port(), SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	return ip(6, src, dst.Addr(), transportSum(6, src, dst.Addr(), m, 16), nil)
}

func udp(src netip.Addr, dst netip.AddrPort, data string) []byte {
	m := make(header.UDP, header.UDPMinimumSize)
	m.Encode(&header.UDPFields{SrcPort: 1000, DstPort: dst.Port(), Length: uint16(len(m) + len(data))})
	m = append(m, data...)
	return ip(17, src, dst.Addr(), transportSum(17, src, dst.Addr(), m, 6), nil)
}

// hostile is a frame that no honest guest sends, and part of the reason it is denied for.
type hostile struct {
	frame []byte
	want  string
}

// hostileLink are frames whose Ethernet or ARP is wrong.
func hostileLink() map[string]hostile {
	g4, s4, far4 := tap.GuestV4(), tap.GatewayV4(), netip.MustParseAddr("198.51.100.7")
	ok := syn(g4, netip.AddrPortFrom(far4, 80), 1)
	mac := func(f []byte, at int, m [6]byte) []byte {
		f = bytes.Clone(f)
		copy(f[at:], m[:])
		return f
	}
	other := [6]byte{2, 9, 9, 9, 9, 9}
	reply := header.ARP(bytes.Clone(arpFrame(tap.GuestMAC(), g4, s4)[14:]))
	reply.SetOp(header.ARPReply)
	return map[string]hostile{
		"empty":              {[]byte{1}, "too short"},
		"runt":               {ok[:13], "too short"},
		"header only":        {ok[:14], "too short"},
		"half an IP header":  {ok[:30], "too short"},
		"cut":                {ok[:40], "contradict"},
		"jumbo":              {append(bytes.Clone(ok), make([]byte, tap.MTU)...), "longer"},
		"another source MAC": {mac(ok, 6, other), "Ethernet address that is not the sandbox's"},
		"the gate's MAC":     {mac(ok, 6, tap.GatewayMAC()), "Ethernet address that is not the sandbox's"},
		"another MAC":        {mac(ok, 0, other), "Ethernet address that is not the gate's"},
		"broadcast":          {mac(ok, 0, [6]byte{255, 255, 255, 255, 255, 255}), "multicast"},
		"VLAN":               {ether(tap.GatewayMAC(), tap.GuestMAC(), 0x8100, append([]byte{0, 1, 8, 0}, ok[14:]...)), "VLAN"},
		"QinQ":               {ether(tap.GatewayMAC(), tap.GuestMAC(), 0x88a8, make([]byte, 60)), "VLAN"},
		"LLDP":               {ether(tap.GatewayMAC(), tap.GuestMAC(), 0x88cc, make([]byte, 60)), "neither"},
		"802.3":              {ether(tap.GatewayMAC(), tap.GuestMAC(), 60, make([]byte, 60)), "neither"},
		"ARP spoof, MAC":     {arpFrame(other, g4, s4), "ARP"},
		"ARP spoof, address": {arpFrame(tap.GuestMAC(), far4, s4), "ARP"},
		"ARP for another":    {arpFrame(tap.GuestMAC(), g4, far4), "ARP"},
		"ARP announcement":   {arpFrame(tap.GuestMAC(), g4, g4), "ARP"},
		"ARP, stealing":      {arpFrame(tap.GuestMAC(), s4, s4), "ARP"},
		"ARP reply":          {ether(tap.GatewayMAC(), tap.GuestMAC(), 0x0806, reply), "ARP"},
		"ARP, short":         {arpFrame(tap.GuestMAC(), g4, s4)[:30], "too short"},
	}
}

// hostileIP are packets that the network layer refuses.
func hostileIP() map[string]hostile {
	g4, g6, s4, s6 := tap.GuestV4(), tap.GuestV6(), tap.GatewayV4(), tap.GatewayV6()
	far4, far6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")
	ok := syn(g4, netip.AddrPortFrom(far4, 80), 1)
	return map[string]hostile{
		"source v4":           {syn(far4, netip.AddrPortFrom(s4, 80), 1), "address that is not the sandbox's"},
		"source is the gate":  {syn(s4, netip.AddrPortFrom(far4, 80), 1), "address that is not the sandbox's"},
		"source v6":           {syn(far6, netip.AddrPortFrom(s6, 80), 1), "address that is not the sandbox's"},
		"source link-local":   {syn(tap.GuestLinkLocal(), netip.AddrPortFrom(s6, 80), 1), "address that is not the sandbox's"},
		"source unspecified":  {syn(netip.IPv4Unspecified(), netip.AddrPortFrom(s4, 80), 1), "address that is not the sandbox's"},
		"version":             {ip(6, g4, far4, make([]byte, 20), func(p []byte) { p[0] = 0x65 }), "contradict"},
		"v6 in v4":            {ether(tap.GatewayMAC(), tap.GuestMAC(), 0x0800, ip(6, g6, far6, make([]byte, 20), nil)[14:]), "contradict"},
		"header length":       {ip(6, g4, far4, make([]byte, 20), func(p []byte) { p[0] = 0x44 }), "contradict"},
		"total length":        {ip(6, g4, far4, make([]byte, 20), func(p []byte) { p[2], p[3] = 0xff, 0xff }), "contradict"},
		"short total length":  {ip(6, g4, far4, make([]byte, 20), func(p []byte) { p[2], p[3] = 0, 10 }), "contradict"},
		"options":             {ip(6, g4, far4, make([]byte, 44), func(p []byte) { p[0] = 0x46 }), "options"},
		"first fragment":      {ip(6, g4, far4, make([]byte, 64), func(p []byte) { p[6] = 0x20 }), "fragment"},
		"last fragment":       {ip(6, g4, far4, make([]byte, 64), func(p []byte) { p[7] = 8 }), "fragment"},
		"tiny fragment":       {ip(17, g4, s4, make([]byte, 8), func(p []byte) { p[6] = 0x20 }), "fragment"},
		"GRE":                 {ip(47, g4, far4, make([]byte, 20), nil), "protocol"},
		"SCTP":                {ip(132, g6, far6, make([]byte, 20), nil), "protocol"},
		"v4 in v4":            {ip(4, g4, far4, ok[14:], nil), "protocol"},
		"v4 in v6":            {ip(4, g6, far6, ok[14:], nil), "protocol"},
		"IGMP":                {ip(2, g4, netip.MustParseAddr("224.0.0.22"), make([]byte, 8), nil), "housekeeping"},
		"mDNS":                {udp(g4, netip.MustParseAddrPort("224.0.0.251:5353"), "x"), "multicast"},
		"mDNS v6":             {udp(g6, netip.MustParseAddrPort("[ff02::fb]:5353"), "x"), "multicast"},
		"MLD":                 {ip(0, g6, netip.MustParseAddr("ff02::16"), make([]byte, 36), nil), "housekeeping"},
		"hop-by-hop":          {ip(0, g6, far6, make([]byte, 36), nil), "extension"},
		"routing header":      {ip(43, g6, far6, make([]byte, 36), nil), "extension"},
		"v6 fragment":         {ip(44, g6, far6, make([]byte, 36), nil), "extension"},
		"destination options": {ip(60, g6, far6, make([]byte, 36), nil), "extension"},
		"jumbogram":           {ip(6, g6, far6, make([]byte, 20), func(p []byte) { p[4], p[5] = 0, 0 }), "contradict"},
		"v6 length":           {ip(6, g6, far6, make([]byte, 20), func(p []byte) { p[4] = 0xff }), "contradict"},
	}
}

// hostileMessages are messages of ICMP, neighbour discovery, UDP and TCP that have no business here.
func hostileMessages() map[string]hostile {
	g4, g6, s4, s6 := tap.GuestV4(), tap.GuestV6(), tap.GatewayV4(), tap.GatewayV6()
	far4, far6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")
	query := make([]byte, 20)
	ns := func(hops byte, target netip.Addr, src netip.Addr) []byte {
		m := make([]byte, 24)
		m[0] = byte(header.ICMPv6NeighborSolicit)
		copy(m[8:], target.AsSlice())
		return ip(58, src, s6, transportSum(58, src, s6, m, 2), func(p []byte) { p[7] = hops })
	}
	return map[string]hostile{
		"router advertisement":  {ip(58, g6, s6, transportSum(58, g6, s6, append([]byte{134}, make([]byte, 15)...), 2), nil), "neighbour"},
		"router solicitation":   {ip(58, g6, netip.MustParseAddr("ff02::2"), append([]byte{133}, make([]byte, 15)...), nil), "housekeeping"},
		"neighbour advert":      {ip(58, g6, s6, transportSum(58, g6, s6, append([]byte{136}, make([]byte, 23)...), 2), nil), "neighbour"},
		"redirect":              {ip(58, g6, s6, append([]byte{137}, make([]byte, 39)...), nil), "neighbour"},
		"solicit from afar":     {ns(64, s6, g6), "neighbour"},
		"solicit for another":   {ns(255, far6, g6), "neighbour"},
		"solicit as another":    {ns(255, s6, far6), "neighbour"},
		"ICMP redirect":         {ip(1, g4, s4, append([]byte{5}, make([]byte, 15)...), nil), "echo request"},
		"ICMP timestamp":        {ip(1, g4, s4, append([]byte{13}, make([]byte, 19)...), nil), "echo request"},
		"ICMP error":            {ip(1, g4, s4, append([]byte{3, 1}, make([]byte, 30)...), nil), "echo request"},
		"packet too big":        {ip(58, g6, s6, append([]byte{2}, make([]byte, 50)...), nil), "echo request"},
		"short ICMP":            {ip(1, g4, s4, []byte{8, 0}, nil), "contradict"},
		"short TCP":             {ip(6, g4, far4, make([]byte, 19), nil), "contradict"},
		"short UDP":             {ip(17, g4, s4, make([]byte, 7), nil), "contradict"},
		"UDP length":            {ip(17, g4, s4, append([]byte{0, 1, 0, 53, 0, 9, 0, 0}, query...), nil), "contradict"},
		"UDP checksum":          {ip(17, g4, s4, append([]byte{0, 1, 0, 53, 0, 28, 1, 1}, query...), nil), "contradict"},
		"UDP v6, no checksum":   {ip(17, g6, s6, append([]byte{0, 1, 0, 53, 0, 28, 0, 0}, query...), nil), "contradict"},
		"short question":        {udp(g4, netip.AddrPortFrom(s4, 53), "x"), "contradict"},
		"long question":         {udp(g4, netip.AddrPortFrom(s4, 53), strings.Repeat("x", 5000)), "contradict"},
		"TCP to loopback":       {syn(g4, netip.MustParseAddrPort("127.0.0.1:80"), 1), "no host"},
		"TCP to zero":           {syn(g4, netip.MustParseAddrPort("0.0.0.0:80"), 1), "no host"},
		"TCP to all":            {syn(g4, netip.MustParseAddrPort("255.255.255.255:80"), 1), "no host"},
		"TCP to v6 loopback":    {syn(g6, netip.MustParseAddrPort("[::1]:80"), 1), "no host"},
		"TCP to v4 inside v6":   {syn(g6, netip.MustParseAddrPort("[::ffff:10.0.0.1]:80"), 1), "no host"},
		"UDP to loopback":       {udp(g4, netip.MustParseAddrPort("127.0.0.1:53"), "x"), "UDP does not leave"},
		"DNS to somebody else":  {udp(g4, netip.AddrPortFrom(far4, 53), string(query)), "UDP does not leave"},
		"UDP to the guest":      {udp(g4, netip.AddrPortFrom(g4, 53), string(query)), "UDP does not leave"},
		"echo to somebody else": {ip(1, g4, far4, append([]byte{8, 0}, make([]byte, 14)...), nil), "ICMP does not leave"},
	}
}

func TestHostileFramesAreDroppedAndDenied(t *testing.T) {
	tests := hostileLink()
	maps.Copy(tests, hostileIP())
	maps.Copy(tests, hostileMessages())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := &handler{
				accept: func(dst netip.AddrPort) error { t.Errorf("Accept was asked for %s", dst); return nil },
				dns:    func(q []byte, _ bool) []byte { t.Errorf("DNS was asked % x", q); return nil },
			}
			w := newWire(t, h, unix.SOCK_SEQPACKET)
			w.send(test.frame)
			w.sync()
			if n := h.count(func(d rung.NetDenial) bool { return strings.Contains(d.Reason, test.want) }); n != 1 || len(h.denied) != 1 {
				t.Errorf("denied %+v, want %q once", h.denied, test.want)
			}
		})
	}
}

func TestTheGateAnswersForItsOwnAddressOnly(t *testing.T) {
	w := newWire(t, &handler{}, unix.SOCK_SEQPACKET)
	w.send(arpFrame(tap.GuestMAC(), tap.GuestV4(), tap.GatewayV4()))
	f := w.receive()
	gw := tap.GatewayMAC()
	if a := header.ARP(f[14:]); !a.IsValid() || a.Op() != header.ARPReply || !bytes.Equal(a.HardwareAddressSender(), gw[:]) || !bytes.Equal(a.ProtocolAddressSender(), tap.GatewayV4().AsSlice()) {
		t.Errorf("% x", f)
	}
	for _, from := range []netip.Addr{tap.GuestV6(), tap.GuestLinkLocal()} {
		m := make([]byte, 24)
		m[0] = byte(header.ICMPv6NeighborSolicit)
		copy(m[8:], tap.GatewayV6().AsSlice())
		group := netip.MustParseAddr("ff02::1:ff00:1")
		frame := ip(58, from, group, transportSum(58, from, group, m, 2), nil)
		copy(frame, []byte{0x33, 0x33, 0xff, 0, 0, 1})
		w.send(frame)
		f := w.receive()
		if f == nil || f[14+40] != byte(header.ICMPv6NeighborAdvert) || !bytes.Equal(f[14+40+8:14+40+24], tap.GatewayV6().AsSlice()) || !bytes.Equal(f[len(f)-6:], gw[:]) || !bytes.Equal(f[14+24:14+40], from.AsSlice()) {
			t.Errorf("from %s: % x", from, f)
		}
	}
}

func TestAFloodOfFramesIsOneDenial(t *testing.T) {
	h := &handler{}
	w := newWire(t, h, unix.SOCK_SEQPACKET)
	frame := ether(tap.GatewayMAC(), tap.GuestMAC(), 0x88cc, make([]byte, 60))
	for range 5000 {
		w.send(frame)
	}
	w.sync()
	if n := len(h.denied); n > 5 {
		t.Errorf("%d reports", n)
	}
	w.s.Close()
	if n := h.count(func(rung.NetDenial) bool { return true }); n != 5000 {
		t.Errorf("%d counted after the end", n)
	}
}

func TestASYNFloodIsBoundedAndTheGateServesOn(t *testing.T) {
	h := &handler{accept: allowAll, tcp: func(_ context.Context, c *stack.Conn) {}}
	w := newWire(t, h, unix.SOCK_SEQPACKET)
	before := heap()
	read := make(chan struct{})
	go func() { io.Copy(io.Discard, onlyReader{w.f}); close(read) }()
	for port := range 20_000 {
		w.send(syn(tap.GuestV4(), netip.MustParseAddrPort("198.51.100.7:80"), uint16(port+1)))
	}
	limit := time.After(10 * time.Second)
	for h.count(func(d rung.NetDenial) bool { return d.Layer == "tcp" }) == 0 {
		select {
		case <-w.h.news:
		case <-limit:
			t.Fatal("no denial")
		}
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	if n := runtime.NumGoroutine(); n > stack.MaxHalfOpen+100 {
		t.Errorf("%d goroutines", n)
	}
	w.f.SetReadDeadline(time.Now())
	<-read
	w.sync()
}

type onlyReader struct{ io.Reader }

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestAnIdleStackIsSmallAndLeavesNothing(t *testing.T) {
	const n = 100
	// The first stack pays for what all share.
	newWireClosed(t)
	before, goroutines := heap(), runtime.NumGoroutine()
	var all []*wire
	for range n {
		h := &handler{dns: func(q []byte, _ bool) []byte { return q }}
		w := newWire(t, h, unix.SOCK_SEQPACKET)
		w.sync()
		w.buf = nil // the guest's
		all = append(all, w)
	}
	each := (heap() - before) / n
	t.Logf("an idle stack takes %d KiB, %d goroutines", each>>10, (runtime.NumGoroutine()-goroutines)/n)
	if each > 256<<10 {
		t.Errorf("an idle stack takes %d KiB", each>>10)
	}
	for _, w := range all {
		w.s.Close()
	}
	settle(t, goroutines)
	if left := heap() - before; left > 4<<20 {
		t.Errorf("%d KiB are left of %d stacks", left>>10, n)
	}
}

func newWireClosed(t *testing.T) {
	w := newWire(t, &handler{}, unix.SOCK_SEQPACKET)
	w.sync()
	w.s.Close()
}

// settle waits until no more goroutines than before are left.
func settle(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

func TestCloseEndsWhatIsOpen(t *testing.T) {
	newWireClosed(t)
	before := runtime.NumGoroutine()
	asked, held := make(chan struct{}, 1), make(chan struct{})
	h := &handler{accept: allowAll, dns: func(q []byte, _ bool) []byte {
		asked <- struct{}{}
		<-held
		return q
	}}
	w := newWire(t, h, unix.SOCK_SEQPACKET)
	w.send(syn(tap.GuestV4(), netip.MustParseAddrPort("198.51.100.7:80"), 1)) // a handshake that is never finished
	w.send(udp(tap.GuestV4(), netip.AddrPortFrom(tap.GatewayV4(), 53), "123456789012"))
	<-asked
	if f := w.receive(); f == nil || f[14+9] != 6 {
		t.Errorf("no answer to the SYN: % x", f)
	}
	ended := make(chan struct{})
	go func() { w.s.Close(); close(ended) }()
	<-w.s.Done()
	close(held)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Close does not end")
	}
	w.s.Close() // again is nothing
	settle(t, before)
	if w.s.Err() == nil {
		t.Error("no reason of the end")
	}
}

func TestTheLinkOfAPeerThatIsGoneEnds(t *testing.T) {
	for _, kind := range []int{unix.SOCK_SEQPACKET, unix.SOCK_STREAM} {
		w := newWire(t, &handler{}, kind)
		w.f.Close()
		select {
		case <-w.s.Done():
		case <-time.After(5 * time.Second):
			t.Fatalf("kind %d: not noticed", kind)
		}
	}
}

func TestTheStreamLink(t *testing.T) {
	h := &handler{}
	w := newWire(t, h, unix.SOCK_STREAM)
	framed := func(f []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...) }
	question := framed(arpFrame(tap.GuestMAC(), tap.GuestV4(), tap.GatewayV4()))
	// Whole, in pieces, and two at once.
	w.send(question)
	for _, b := range question {
		w.send([]byte{b})
	}
	w.send(append(framed(make([]byte, 100_000)), append(bytes.Clone(question), question...)...)) // after a jumbo
	got := make([]byte, 4*(4+42))
	w.f.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(w.f, got); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if n := binary.BigEndian.Uint32(got[i*46:]); n != 42 {
			t.Errorf("frame %d of %d bytes", i, n)
		}
	}
	if n := h.count(func(d rung.NetDenial) bool { return strings.Contains(d.Reason, "longer") }); n != 1 {
		t.Errorf("denied %+v", h.denied)
	}
	w.send([]byte{0xff, 0xff, 0xff, 0xff, 1})
	<-w.s.Done()
	if err := w.s.Err(); err == nil || !strings.Contains(err.Error(), "announced") {
		t.Errorf("%v", err)
	}
}

func TestAPeerThatDoesNotReadItsStreamCostsLittle(t *testing.T) {
	h := &handler{dns: func(q []byte, _ bool) []byte { return make([]byte, 40_000) }}
	w := newWire(t, h, unix.SOCK_STREAM)
	f := udp(tap.GuestV4(), netip.AddrPortFrom(tap.GatewayV4(), 53), "123456789012")
	f = append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)
	before := heap()
	for range 2000 {
		w.send(f)
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	// What was kept comes out whole, frame after frame.
	for i := range 20 {
		w.f.SetReadDeadline(time.Now().Add(5 * time.Second))
		var size [4]byte
		if _, err := io.ReadFull(w.f, size[:]); err != nil {
			t.Fatal(i, err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(w.f, frame); err != nil || len(frame) != 14+20+8+40_000 {
			t.Fatal(i, len(frame), err)
		}
	}
}

func TestDeniedLookupsCost(t *testing.T) {
	h := &handler{dns: func(q []byte, _ bool) []byte { return q }}
	w := newWire(t, h, unix.SOCK_SEQPACKET)
	f := udp(tap.GuestV4(), netip.AddrPortFrom(tap.GatewayV4(), 53), strings.Repeat("x", 40))
	start, before := time.Now(), cpu()
	const n = 20_000
	for range n {
		w.send(f)
		if w.receive() == nil {
			t.Fatal("no answer")
		}
	}
	t.Logf("a question and its answer by frames: %v, of processor %v, both ends (%s)", time.Since(start)/n, (cpu()-before)/n, fmt.Sprint(n))
}
