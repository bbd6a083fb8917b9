package tap

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// answerTimeout bounds the wait for the kernel's answer, which it gives before sendto returns.
const answerTimeout = 2 * time.Second

// batch is several rtnetlink requests (rtnetlink(7)) sent at once: the kernel works through them in order and answers
// each, so that a start pays for two system calls and not for twenty.
type batch struct {
	buf   []byte
	names []string // what each request is for, in an error
	open  int      // where the request under construction begins
}

// begin starts a request with its fixed header.
func (b *batch) begin(what string, kind, flags uint16, fixed ...byte) {
	b.open = len(b.buf)
	b.names = append(b.names, what)
	b.buf = append(b.buf, 0, 0, 0, 0) // length, set by end
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, uint32(len(b.names))) // sequence number: which request
	b.buf = append(b.buf, 0, 0, 0, 0)                                     // port: the kernel fills it in
	b.buf = append(b.buf, fixed...)
	b.pad()
}

func (b *batch) end() { binary.NativeEndian.PutUint32(b.buf[b.open:], uint32(len(b.buf)-b.open)) }

func (b *batch) attr(kind uint16, value ...byte) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(4+len(value)))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = append(b.buf, value...)
	b.pad()
}

func (b *batch) attr32(kind uint16, v uint32) { b.attr(kind, u32(v)...) }

func (b *batch) pad() {
	for len(b.buf)%unix.NLMSG_ALIGNTO != 0 {
		b.buf = append(b.buf, 0)
	}
}

// send returns one error per request, nil where it was done.
func (b *batch) send(fd int) ([]error, error) {
	if err := unix.Sendto(fd, b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "rtnetlink: %w", err)
	}
	results := make([]error, len(b.names))
	in := make([]byte, 16<<10)
	for left := len(b.names); left > 0; {
		n, from, err := unix.Recvfrom(fd, in, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, rung.Errorf(rung.KindUnavailable, "rtnetlink: read the answer: %w", err)
		}
		if peer, ok := from.(*unix.SockaddrNetlink); !ok || peer.Pid != 0 {
			continue // not from the kernel
		}
		left -= answers(in[:n], results)
	}
	return results, nil
}

// answers files the acknowledgements of one datagram by their sequence numbers and returns how many there were.
func answers(in []byte, results []error) (n int) {
	for len(in) >= unix.NLMSG_HDRLEN+4 {
		size := int(binary.NativeEndian.Uint32(in))
		if size < unix.NLMSG_HDRLEN+4 || size > len(in) {
			return n
		}
		seq := int(binary.NativeEndian.Uint32(in[8:]))
		if binary.NativeEndian.Uint16(in[4:]) == unix.NLMSG_ERROR && seq >= 1 && seq <= len(results) {
			n++
			if code := int32(binary.NativeEndian.Uint32(in[unix.NLMSG_HDRLEN:])); code != 0 {
				results[seq-1] = unix.Errno(-code)
			}
		}
		in = in[min(len(in), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return n
}

func u16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
