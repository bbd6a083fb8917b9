// Package stack is the far end of a sandbox's only network link: a TCP/IP stack in user space (gVisor's netstack) that
// is the whole network the sandbox sees. No packet of the guest is ever forwarded. A filter drops every frame that is
// not the guest's own plain IPv4 or IPv6; TCP connections to any address end here and are handed to a Handler, which is
// asked before the handshake is answered; datagrams to the gate's port 53 are handed to it as questions; everything else
// is refused, and told to the Handler as a denial.
//
// Everything that a guest can make this hold is bounded by the constants below, and a Stack owns its goroutines: Close
// ends them all.
package stack

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// The caps of one sandbox's stack.
const (
	MaxHalfOpen    = 128  // connections whose handshake runs or whose Accept was not answered yet; further SYNs are lost
	MaxConnections = 1024 // open ones, those being closed included; the sandbox's own budget is usually lower
	MaxQuestions   = 64   // datagrams to port 53 being answered
	MaxDNSConns    = 16   // open connections to port 53
	MaxPipelined   = 8    // questions of one such connection being answered

	// BufferMax is how far a connection's send and receive buffers grow, BufferTotal what all of a sandbox's may hold:
	// the more connections are open, the less a new one gets, down to BufferMin.
	BufferMax   = 2 << 20
	BufferMin   = 128 << 10
	BufferTotal = 64 << 20

	// RefusalsPerSecond caps the ICMP messages that tell a guest of refusals. What is past it is refused in silence.
	RefusalsPerSecond = 200
)

// The times of a connection.
const (
	keepaliveIdle     = 60 * time.Second
	keepaliveInterval = 15 * time.Second
	keepaliveCount    = 4
	userTimeout       = 2 * time.Minute  // sent data without an answer
	lingerTime        = 20 * time.Second // from the gate's close to the reset of a guest that does not close
	timeWaitTime      = 5 * time.Second  // the link has no old duplicates that could wait longer
	maxRTO            = 8 * time.Second  // so a handshake that is never finished ends after 15 s
	dnsIdle           = 10 * time.Second // a connection to port 53 without a question
)

const (
	nicID   = 1
	dnsPort = 53
	// maxQuestion is the longest message that is passed on as a question: with EDNS options far more than any has.
	maxQuestion = 4096
)

// Handler decides. Its methods are called from many goroutines at once.
type Handler interface {
	// Accept says whether a connection to dst may be opened at all; the guest waits for its answer. A refused one is reset;
	// why is the Handler's to note, who knows more than the error, so Denied is not told.
	Accept(ctx context.Context, dst netip.AddrPort) error
	// TCP serves an open connection, which is closed when it returns. ctx ends with the Stack.
	TCP(ctx context.Context, c *Conn)
	// DNS answers a question with a message that fits its transport, or nil for no answer.
	DNS(ctx context.Context, query []byte, tcp bool) []byte
	// Denied is told what was refused; a Count above one stands for so many.
	Denied(d rung.NetDenial)
}

// Conn is a connection of the guest to Dst.
type Conn struct {
	net.Conn
	Dst netip.AddrPort

	half  interface{ CloseWrite() error }
	abort func()
}

// CloseWrite says that nothing more will be sent; the guest may go on sending.
func (c *Conn) CloseWrite() error { return c.half.CloseWrite() }

// Abort resets the connection, so that the guest sees an error at once and not an orderly end.
func (c *Conn) Abort() { c.abort() }

// Stack is one sandbox's network.
type Stack struct {
	ends  ends
	link  Link
	h     Handler
	ns    *stack.Stack
	ep    *endpoint
	tally tally
	icmp  *rate.Limiter

	ctx    context.Context
	cancel context.CancelFunc

	questions chan struct{} // one token per datagram being answered
	dnsConns  chan struct{}

	mu     sync.Mutex
	closed bool
	open   int
	owned  sync.WaitGroup

	done chan struct{}
	err  error // why the link ended, after done
	once sync.Once
}

// New takes the link over and serves the guest at its other end until Close, or until the link ends (see Done).
func New(link Link, h Handler) (*Stack, error) {
	s := &Stack{
		ends: theEnds(), link: link, h: h,
		tally:     tally{tell: h.Denied},
		icmp:      rate.NewLimiter(RefusalsPerSecond, RefusalsPerSecond),
		questions: make(chan struct{}, MaxQuestions),
		dnsConns:  make(chan struct{}, MaxDNSConns),
		done:      make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ep = newEndpoint(link, &s.ends)
	if err := s.netstack(); err != nil {
		s.cancel()
		if s.ns != nil {
			s.ns.Destroy()
		}
		return nil, err
	}
	go s.read()
	return s, nil
}

// Done is closed when the link ended by itself or by Close; Err then says why.
func (s *Stack) Done() <-chan struct{} { return s.done }

// Err is why the link ended, nil before it did.
func (s *Stack) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Flush tells the Handler of the denials that were counted and not told yet.
func (s *Stack) Flush() { s.tally.flush() }

// Close resets every connection, waits for every goroutine and leaves nothing behind. Handlers see their context end.
func (s *Stack) Close() {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.cancel()
		_ = s.link.Close() // its reader ends either way
		<-s.done
		s.ns.Close() // resets what is open, and so ends the handlers' reads and writes
		s.owned.Wait()
		s.ns.Destroy()
		s.Flush()
	})
}

// enter counts a goroutine in; after Close began there are no new ones.
func (s *Stack) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.owned.Add(1)
	return true
}

func (s *Stack) read() {
	defer close(s.done)
	s.err = s.link.Frames(s.frame)
}

// frame is called for every frame of the guest, one after the other.
func (s *Stack) frame(f []byte) {
	p, v, c := s.ends.judge(f)
	switch v {
	case toTCP, toEcho:
		s.ep.inject(&p)
	case toDNS:
		s.question(&p)
	case toARP:
		s.send(s.ends.arpReply())
	case toNDP:
		s.send(s.ends.neighbourAdvert(p.src))
	case noUDP:
		s.h.Denied(udpDenial(p.dst, p.port))
		s.refuse(&p, portUnreachable)
	case noICMP:
		s.h.Denied(echoDenial(p.dst))
		s.refuse(&p, prohibited)
	default:
		if c == causeDestination {
			s.h.Denied(destinationDenial(&p))
			return
		}
		s.tally.count(c)
	}
}

// refuse tells the guest, unless it was told too often or the packet was for many (RFC 1122, section 3.2.2).
func (s *Stack) refuse(p *packet, why refusal) {
	if !p.dst.IsMulticast() && !unreachable(p.dst) && s.icmp.Allow() {
		s.send(s.ends.unreachable(p, why))
	}
}

func (s *Stack) send(frame []byte) { s.link.Send([][]byte{frame}) }

// netstack makes the stack: one interface that takes every address for its own.
func (s *Stack) netstack() error {
	s.ns = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocol,
			ipv6.NewProtocolWithOptions(ipv6.Options{}), // no link-local address, no MLD, no router is believed
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocolCUBIC, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	if err := s.tune(); err != nil {
		return err
	}
	if err := s.ns.CreateNIC(nicID, s.ep); err != nil {
		return failed("interface", err)
	}
	for _, a := range []struct {
		protocol tcpip.NetworkProtocolNumber
		addr     netip.Addr
		bits     int
	}{
		{header.IPv4ProtocolNumber, tap.GatewayV4(), 32},
		{header.IPv6ProtocolNumber, tap.GatewayV6(), 128},
	} {
		pa := tcpip.ProtocolAddress{Protocol: a.protocol, AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(a.addr.AsSlice()), PrefixLen: a.bits,
		}}
		if err := s.ns.AddProtocolAddress(nicID, pa, stack.AddressProperties{}); err != nil {
			return failed("address", err)
		}
	}
	// Promiscuous: packets to any address are ours. Spoofing: our answers come from that address.
	if err := s.ns.SetPromiscuousMode(nicID, true); err != nil {
		return failed("interface", err)
	}
	if err := s.ns.SetSpoofing(nicID, true); err != nil {
		return failed("interface", err)
	}
	s.ns.SetRouteTable([]tcpip.Route{
		{Destination: host(tap.GuestV4()), NIC: nicID},
		{Destination: host(tap.GuestV6()), NIC: nicID},
	})
	forwarder := tcp.NewForwarder(s.ns, 0, MaxHalfOpen, s.syn)
	s.ns.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		dropped := s.ns.Stats().TCP.ForwardMaxInFlightDrop
		before := dropped.Value()
		handled := forwarder.HandlePacket(id, pkt)
		if dropped.Value() != before {
			s.tally.count(causeHalfOpen)
		}
		return handled
	})
	return nil
}

// tune sets the options of TCP.
func (s *Stack) tune() error {
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	send := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: 512 << 10, Max: BufferMax}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: 512 << 10, Max: BufferMax}
	timeWait := tcpip.TCPTimeWaitTimeoutOption(timeWaitTime)
	linger := tcpip.TCPLingerTimeoutOption(lingerTime)
	rto := tcpip.TCPMaxRTOOption(maxRTO)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &send, &receive, &timeWait, &linger, &rto} {
		if err := s.ns.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return failed("TCP options", err)
		}
	}
	return nil
}

func host(a netip.Addr) tcpip.Subnet {
	return tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(a.AsSlice()), PrefixLen: a.BitLen()}.Subnet()
}

func failed(what string, err tcpip.Error) error {
	return rung.Errorf(rung.KindInternal, "network stack: %s: %s", what, err)
}
