package stack

import (
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// syn decides about one connection that the guest wants; netstack calls it in a goroutine of its own.
func (s *Stack) syn(r *tcp.ForwarderRequest) {
	if !s.enter() {
		r.Complete(false)
		return
	}
	defer s.owned.Done()
	dst := destination(r.ID())
	question := dst.Port() == dnsPort && s.ends.isGateway(dst.Addr())
	if !question {
		if err := s.h.Accept(s.ctx, dst); err != nil {
			r.Complete(true)
			return
		}
	}
	if !s.take(question) {
		r.Complete(true)
		return
	}
	defer s.release(question)

	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	r.Complete(false)
	if err != nil {
		return // the guest did not finish the handshake
	}
	s.prepare(ep)
	inner := gonet.NewTCPConn(&queue, ep)
	c := &Conn{Conn: inner, Dst: dst, half: inner, abort: ep.Abort}
	defer linger(&queue, ep)
	if s.ctx.Err() != nil {
		return // Close began between the handshake and here
	}
	if question {
		s.questionsOf(c)
		return
	}
	s.h.TCP(s.ctx, c)
}

// take counts a connection in, or refuses it.
func (s *Stack) take(question bool) bool {
	if question {
		select {
		case s.dnsConns <- struct{}{}:
			return true
		default:
			s.tally.count(causeLookups)
			return false
		}
	}
	s.mu.Lock()
	ok := s.open < MaxConnections
	if ok {
		s.open++
	}
	s.mu.Unlock()
	if !ok {
		s.tally.count(causeConnections)
	}
	return ok
}

func (s *Stack) release(question bool) {
	if question {
		<-s.dnsConns
		return
	}
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
}

// prepare sets the options of one connection. A failure leaves netstack's default, which is bounded as well.
func (s *Stack) prepare(ep tcpip.Endpoint) {
	s.mu.Lock()
	share := BufferTotal / 2 / max(s.open, 1)
	s.mu.Unlock()
	options := ep.SocketOptions()
	options.SetKeepAlive(true)
	options.SetDelayOption(false) // what a handler writes goes out at once: it writes what came in
	if share < BufferMax {
		// A size that is set is a size that does not grow.
		options.SetSendBufferSize(int64(max(share, BufferMin)), true)
		options.SetReceiveBufferSize(int64(max(share, BufferMin)), true)
	}
	idle, interval, user := tcpip.KeepaliveIdleOption(keepaliveIdle), tcpip.KeepaliveIntervalOption(keepaliveInterval), tcpip.TCPUserTimeoutOption(userTimeout)
	_ = ep.SetSockOpt(&idle)
	_ = ep.SetSockOpt(&interval)
	_ = ep.SetSockOpt(&user)
	_ = ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepaliveCount)
}

// linger closes the connection and waits until the guest has closed it too, but not longer than lingerTime: a guest that
// does not read what is left, or never closes, is reset. Until then it counts as open, since it holds memory.
func linger(queue *waiter.Queue, ep tcpip.Endpoint) {
	entry, gone := waiter.NewChannelEntry(waiter.EventHUp | waiter.EventErr)
	queue.EventRegister(&entry)
	defer queue.EventUnregister(&entry)
	ep.Close()
	limit := time.NewTimer(lingerTime)
	defer limit.Stop()
	for {
		switch tcp.EndpointState(ep.State()) {
		case tcp.StateClose, tcp.StateError, tcp.StateTimeWait:
			return
		}
		select {
		case <-gone:
		case <-limit.C:
			ep.Abort()
			return
		}
	}
}

// destination is where the guest wanted to: to netstack, which plays that host, the local end.
func destination(id stack.TransportEndpointID) netip.AddrPort {
	a, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice()) // netstack's are of 4 or 16 bytes
	return netip.AddrPortFrom(a, id.LocalPort)
}
