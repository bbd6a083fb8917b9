package stack

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rung-dev/rung/internal/sys/tap"
)

// dnsHeader is the fixed part of a message (RFC 1035, section 4.1.1).
const dnsHeader = 12

// question answers a datagram to the gate's port 53. It is called by the reader, so what takes time is not done here.
func (s *Stack) question(p *packet) {
	q := p.payload()[header.UDPMinimumSize:]
	if len(q) < dnsHeader || len(q) > maxQuestion {
		s.tally.count(causeMalformed)
		return
	}
	select {
	case s.questions <- struct{}{}:
	default:
		s.tally.count(causeLookups) // a client asks again
		return
	}
	if !s.enter() {
		<-s.questions
		return
	}
	own := *p // the frame's memory is used again
	own.ip = slices.Clone(p.ip)
	go func() {
		defer s.owned.Done()
		defer func() { <-s.questions }()
		answer := s.h.DNS(s.ctx, own.payload()[header.UDPMinimumSize:], false)
		if answer = fit(answer); answer != nil {
			s.send(s.ends.udpReply(&own, answer))
		}
	}()
}

// fit: the handler's messages fit what the client said it takes; one that does not even fit the link becomes an empty one
// that says "truncated", so that the client asks again by TCP.
func fit(answer []byte) []byte {
	const most = tap.MTU - header.IPv6MinimumSize - header.UDPMinimumSize
	if len(answer) < dnsHeader {
		return nil
	}
	if len(answer) > most {
		answer = slices.Clone(answer[:dnsHeader])
		answer[2] |= 2             // TC
		clear(answer[4:dnsHeader]) // no records, not even the question
	}
	return answer
}

// questionsOf answers the questions of a connection to the gate's port 53 (RFC 7766): several at once, in the order in
// which their answers are there.
func (s *Stack) questionsOf(c *Conn) {
	var write sync.Mutex
	var pending sync.WaitGroup
	defer pending.Wait()
	slots := make(chan struct{}, MaxPipelined)
	for {
		// A failure to set a deadline means a closed connection, which the read reports.
		_ = c.SetReadDeadline(time.Now().Add(dnsIdle))
		q, err := readMessage(c)
		if err != nil {
			return
		}
		slots <- struct{}{} // bounded: each answer is, by its handler and by the write deadline
		pending.Go(func() {
			defer func() { <-slots }()
			answer := s.h.DNS(s.ctx, q, true)
			if len(answer) < dnsHeader || len(answer) > 0xffff {
				return
			}
			write.Lock()
			defer write.Unlock()
			_ = c.SetWriteDeadline(time.Now().Add(dnsIdle))
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
				c.Abort() // half a message may have gone out
			}
		})
	}
}

// readMessage reads one length and one message.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n < dnsHeader || n > maxQuestion {
		return nil, io.ErrUnexpectedEOF
	}
	q := make([]byte, n)
	_, err := io.ReadFull(r, q)
	return q, err
}
