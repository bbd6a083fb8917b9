package dns

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	minUDP     = 512 // RFC 1035, section 4.2.1
	// maxText keeps an Extended DNS Error within the smallest answer that any client takes.
	maxText = 200
)

// question is the one question of a message.
type question struct {
	name  string // as the guest spelled it
	kind  uint16
	class uint16
	edns  bool
	size  int // of an answer by UDP
	extra *dns.EDNS0_EDE
}

// shown is the name for a denial about a name that may have no normal form.
func (q *question) shown() string { return strings.TrimSuffix(q.name, ".") }

// explain sets the answer's Extended DNS Error. Only a client that speaks EDNS gets it.
func (q *question) explain(code uint16, text string) {
	if len(text) > maxText {
		text = text[:maxText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	q.extra = &dns.EDNS0_EDE{InfoCode: code, ExtraText: text}
}

// addresses answers with those of the family that was asked for.
func (q *question) addresses(m *dns.Msg, out outcome) {
	h := dns.RR_Header{Name: q.name, Rrtype: q.kind, Class: dns.ClassINET, Ttl: uint32(max(out.ttl, MinTTL) / time.Second)}
	for _, a := range out.addrs {
		switch {
		case a.Is4() && q.kind == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: h, A: a.AsSlice()})
		case a.Is6() && q.kind == dns.TypeAAAA:
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
		}
	}
}

// parse reads a message of the guest. No reply is due to what is no question at all; a reply without a question to one
// that says already what is wrong with it.
func parse(query []byte) (*question, *dns.Msg) {
	if len(query) < headerSize || len(query) > MaxQuery || query[2]&0x80 != 0 { // QR: an answer, or a reflected reply
		return nil, nil
	}
	reply := &dns.Msg{}
	reply.Id = binary.BigEndian.Uint16(query)
	reply.Response, reply.RecursionAvailable = true, true
	reply.Opcode = int(query[2] >> 3 & 0xf)
	reply.RecursionDesired = query[2]&1 != 0
	count := func(at int) uint16 { return binary.BigEndian.Uint16(query[at:]) }
	switch {
	case reply.Opcode != dns.OpcodeQuery:
		reply.Rcode = dns.RcodeNotImplemented
		return nil, reply
	case query[2]&0x02 != 0, count(4) != 1, count(6) != 0, count(8) != 0, count(10) > 1:
		// Truncated, several questions (RFC 9619), or records where a question has none.
		reply.Rcode = dns.RcodeFormatError
		return nil, reply
	}
	var m dns.Msg
	if err := m.Unpack(query); err != nil || len(m.Question) != 1 || len(m.Extra) != int(count(10)) {
		reply.Rcode = dns.RcodeFormatError
		return nil, reply
	}
	q := &question{name: m.Question[0].Name, kind: m.Question[0].Qtype, class: m.Question[0].Qclass, size: minUDP}
	reply.Question = m.Question
	if len(m.Extra) == 0 {
		return q, reply
	}
	opt := m.IsEdns0()
	if opt == nil || opt.Hdr.Name != "." {
		reply.Rcode = dns.RcodeFormatError
		return nil, reply
	}
	q.edns, q.size = true, min(max(int(opt.UDPSize()), minUDP), MaxUDP)
	if opt.Version() != 0 { // RFC 6891, section 6.1.3
		reply.Rcode = dns.RcodeBadVers
		reply.SetEdns0(MaxUDP, false)
		return nil, reply
	}
	return q, reply
}

// pack makes the reply fit its transport.
func pack(q *question, m *dns.Msg, tcp bool) []byte {
	size := minUDP
	if q != nil {
		size = q.size
		if q.edns {
			o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
			o.SetUDPSize(MaxUDP)
			if q.extra != nil {
				o.Option = append(o.Option, q.extra)
			}
			m.Extra = append(m.Extra, o)
		}
	}
	if tcp {
		size = dns.MaxMsgSize
	}
	m.Truncate(size)
	m.Compress = true
	b, err := m.Pack()
	if err != nil || len(b) > size {
		// What cannot be packed is our own mistake; an honest failure is better than silence.
		f := &dns.Msg{MsgHdr: m.MsgHdr}
		f.Rcode = dns.RcodeServerFailure
		if b, err = f.Pack(); err != nil {
			return nil
		}
	}
	return b
}
