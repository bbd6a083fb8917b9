package stack

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rung-dev/rung/internal/sys/tap"
)

// FuzzFrame: whatever passes the filter is whole, comes from the guest, and its parts are inside the frame.
func FuzzFrame(f *testing.F) {
	e := theEnds()
	guest, gate := tap.GuestMAC(), tap.GatewayMAC()
	frame := func(kind uint16, body ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(append(append([]byte{}, gate[:]...), guest[:]...), kind), body...)
	}
	v4 := append([]byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0}, append(e.guest4.AsSlice(), 198, 51, 100, 7)...)
	v6 := append([]byte{0x60, 0, 0, 0, 0, 28, 17, 64}, append(e.guest6.AsSlice(), e.gateway6.AsSlice()...)...)
	f.Add(frame(0x0800, append(v4, make([]byte, 20)...)...))
	f.Add(frame(0x86dd, append(v6, make([]byte, 28)...)...))
	f.Add(frame(0x0806, make([]byte, 28)...))
	f.Add(e.arpReply())
	f.Add(e.neighbourAdvert(e.guest6))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		p, v, c := e.judge(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the filter changed the frame")
		}
		if (v == drop) != (c != causeNone) {
			t.Fatalf("verdict %d, cause %d", v, c)
		}
		switch v {
		case drop:
			_ = c.denial()
			return
		case toARP:
			return
		}
		if len(b) > maxFrame || [6]byte(b[6:12]) != guest || len(p.ip) < p.head || len(p.payload()) == 0 {
			t.Fatalf("passed: %+v", p)
		}
		if v != toNDP && p.src != e.guest4 && p.src != e.guest6 {
			t.Fatalf("passed from %s", p.src)
		}
		if (v == toDNS || v == toEcho) && !e.isGateway(p.dst) || v == toTCP && unreachable(p.dst) {
			t.Fatalf("passed to %s", p.dst)
		}
		// What is answered by hand must be a frame again.
		switch v {
		case noUDP:
			checkReply(t, &e, e.unreachable(&p, portUnreachable))
		case noICMP:
			checkReply(t, &e, e.unreachable(&p, prohibited))
		case toDNS:
			checkReply(t, &e, e.udpReply(&p, p.payload()))
		case toNDP:
			checkReply(t, &e, e.neighbourAdvert(p.src))
		}
	})
}

func checkReply(t *testing.T, e *ends, f []byte) {
	t.Helper()
	if len(f) > maxFrame || [6]byte(f[:6]) != e.guestMAC || [6]byte(f[6:12]) != e.gatewayMAC {
		t.Fatalf("reply % x", f)
	}
}

// FuzzSplit: the stream's framing yields what was framed, however it is cut, and stops at the first length that is none.
func FuzzSplit(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 9, 0, 0, 0, 2, 8, 7, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var whole [][]byte
		used, err := split(b, func(frame []byte) { whole = append(whole, bytes.Clone(frame)) })
		if used > len(b) || (err == nil && len(b)-used >= 4+maxStreamFrame) {
			t.Fatalf("%d of %d used", used, len(b))
		}
		var again []byte
		for _, frame := range whole {
			again = append(binary.BigEndian.AppendUint32(again, uint32(len(frame))), frame...)
		}
		if !bytes.Equal(again, b[:used]) {
			t.Fatal("what came out is not what went in")
		}
		// Byte by byte it is the same.
		var pieces [][]byte
		var buf []byte
		for _, c := range b {
			buf = append(buf, c)
			n, perr := split(buf, func(frame []byte) { pieces = append(pieces, bytes.Clone(frame)) })
			if buf = buf[n:]; perr != nil {
				break
			}
		}
		if len(pieces) != len(whole) {
			t.Fatalf("%d frames in pieces, %d at once", len(pieces), len(whole))
		}
	})
}
