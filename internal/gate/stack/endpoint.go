package stack

import (
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rung-dev/rung/internal/sys/tap"
)

// endpoint is netstack's view of the link: a wire on which IP packets travel. Netstack sees no Ethernet, no ARP and no
// neighbour discovery, because on a link of two fixed ends there is nothing in them to decide; the filter answers them.
type endpoint struct {
	link       Link
	ether4     []byte
	ether6     []byte
	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
}

var _ stack.LinkEndpoint = (*endpoint)(nil)

func newEndpoint(link Link, e *ends) *endpoint {
	return &endpoint{link: link, ether4: e.ethernet(false), ether6: e.ethernet(true)}
}

// inject hands a judged packet to netstack, in memory of its own: the frame's is used again.
func (e *endpoint) inject(p *packet) {
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d == nil {
		return
	}
	kind := header.IPv4ProtocolNumber
	if p.v6 {
		kind = header.IPv6ProtocolNumber
	}
	// Headers and data in separate chunks: netstack copies the whole chunk that a header is in when it parses it.
	headers := min(len(p.ip), p.head+header.TCPHeaderMaximumSize)
	payload := buffer.MakeWithData(p.ip[:headers])
	if headers < len(p.ip) {
		if err := payload.Append(buffer.NewViewWithData(p.ip[headers:])); err != nil {
			payload.Release()
			return
		}
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload})
	d.DeliverNetworkPacket(kind, pkt)
	pkt.DecRef()
}

// WritePackets implements stack.LinkWriter. A frame that the guest has no room for is lost, as on any wire.
func (e *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	var array [8][]byte
	for _, pkt := range list.AsSlice() {
		parts := append(array[:0], e.ether4)
		if pkt.NetworkProtocolNumber == header.IPv6ProtocolNumber {
			parts[0] = e.ether6
		}
		views, offset := pkt.AsViewList()
		for v := views.Front(); v != nil; v = v.Next() {
			s := v.AsSlice()
			if offset >= len(s) {
				offset -= len(s)
				continue
			}
			parts = append(parts, s[offset:])
			offset = 0
		}
		e.link.Send(parts)
	}
	return list.Len(), nil
}

// Attach implements stack.NetworkLinkEndpoint.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// MTU implements stack.NetworkLinkEndpoint.
func (*endpoint) MTU() uint32 { return tap.MTU }

// SetMTU implements stack.NetworkLinkEndpoint: the link's is fixed.
func (*endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.NetworkLinkEndpoint: the Ethernet header is a part of its own.
func (*endpoint) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (*endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress implements stack.NetworkLinkEndpoint: the link's are fixed.
func (*endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.NetworkLinkEndpoint: no neighbour needs to be resolved, every checksum is verified.
func (*endpoint) Capabilities() stack.LinkEndpointCapabilities { return 0 }

// Wait implements stack.NetworkLinkEndpoint: the Stack owns the reader.
func (*endpoint) Wait() {}

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (*endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.NetworkLinkEndpoint.
func (*endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (*endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close implements stack.NetworkLinkEndpoint: the Stack owns the link.
func (*endpoint) Close() {}

// SetOnCloseAction implements stack.NetworkLinkEndpoint.
func (*endpoint) SetOnCloseAction(func()) {}
