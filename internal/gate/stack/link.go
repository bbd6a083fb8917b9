package stack

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

const (
	// maxQueued is how many bytes of frames wait for a peer that does not read; past it frames are lost, which TCP repairs.
	maxQueued = 1 << 20
	// maxStreamFrame is the largest length a stream may announce. A longer one is no frame but a broken stream.
	maxStreamFrame = 128 << 10
)

// Link carries Ethernet frames to and from a guest, each whole.
type Link interface {
	// Frames calls each for every frame that comes, one after the other, until the link ends, and returns why it did. The
	// frame is only valid during the call.
	Frames(each func(frame []byte)) error
	// Send sends the frame that the parts make up. It never waits: what a peer has no room for is dropped.
	Send(parts [][]byte)
	// Close ends Frames and everything that the link owns.
	Close() error
}

// file is what both links need: descriptors that the runtime polls.
type file interface {
	syscall.Conn
	io.Closer
}

// NewPacketLink is the link of a descriptor whose reads and writes are whole frames: a TAP, or a socket of type
// SOCK_SEQPACKET or SOCK_DGRAM. It takes the file over.
func NewPacketLink(f file) (Link, error) { return newLink(f, false) }

// NewStreamLink is the link of a stream socket on which each frame follows its length in four bytes, big-endian, as
// QEMU's "-netdev stream" speaks. It takes the connection over.
func NewStreamLink(f file) (Link, error) { return newLink(f, true) }

func newLink(f file, stream bool) (Link, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "link: %w", err)
	}
	var flags int
	var ferr error
	if err := raw.Control(func(fd uintptr) { flags, ferr = unix.FcntlInt(fd, unix.F_GETFL, 0) }); err != nil || ferr != nil {
		return nil, rung.Errorf(rung.KindInternal, "link: %w", errors.Join(err, ferr))
	}
	if flags&unix.O_NONBLOCK == 0 {
		return nil, rung.Errorf(rung.KindInternal, "link: its descriptor blocks")
	}
	return &fdLink{f: f, raw: raw, stream: stream}, nil
}

type fdLink struct {
	f      file
	raw    syscall.RawConn
	stream bool

	mu      sync.Mutex
	queue   [][]byte // what the peer had no room for; of a stream, the first may be the rest of a frame
	queued  int      // bytes in queue
	closed  bool
	flusher sync.WaitGroup
}

// A parked reader holds no buffer: an idle sandbox costs none.
var buffers = sync.Pool{New: func() any { return new([4 + maxStreamFrame]byte) }}

func (l *fdLink) Frames(each func([]byte)) error {
	if l.stream {
		return l.readStream(each)
	}
	return l.readPackets(each)
}

func (l *fdLink) readPackets(each func([]byte)) error {
	var failed error
	err := l.raw.Read(func(fd uintptr) bool {
		buf := buffers.Get().(*[4 + maxStreamFrame]byte)
		defer buffers.Put(buf)
		for {
			n, err := unix.Read(int(fd), buf[:])
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = rung.Errorf(rung.KindInternal, "link: %w", err)
				return true
			case n == 0:
				failed = io.EOF
				return true
			default:
				each(buf[:n])
			}
		}
	})
	return errors.Join(failed, err)
}

func (l *fdLink) readStream(each func([]byte)) error {
	var failed error
	var rest []byte // an incomplete frame, kept while the reader is parked
	err := l.raw.Read(func(fd uintptr) bool {
		buf := buffers.Get().(*[4 + maxStreamFrame]byte)
		defer buffers.Put(buf)
		have := copy(buf[:], rest)
		rest = nil
		for {
			n, err := unix.Read(int(fd), buf[have:])
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				rest = append(rest, buf[:have]...)
				return false
			case err != nil:
				failed = rung.Errorf(rung.KindInternal, "link: %w", err)
				return true
			case n == 0:
				failed = io.EOF
				return true
			}
			used, err := split(buf[:have+n], each)
			if err != nil {
				failed = err
				return true
			}
			have = copy(buf[:], buf[used:have+n])
		}
	})
	return errors.Join(failed, err)
}

// split calls each for every whole frame in b and returns how many bytes those were. What is left is less than one frame
// and its length, so it fits a buffer of 4 + maxStreamFrame with room for more.
func split(b []byte, each func([]byte)) (used int, err error) {
	for len(b)-used >= 4 {
		n := int(binary.BigEndian.Uint32(b[used:]))
		if n == 0 || n > maxStreamFrame {
			return used, rung.Errorf(rung.KindInvalid, "link: a frame of %d bytes is announced", n)
		}
		if len(b)-used < 4+n {
			break
		}
		each(b[used+4 : used+4+n])
		used += 4 + n
	}
	return used, nil
}

func (l *fdLink) Send(parts [][]byte) {
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	if total > maxFrame {
		return // the stack never makes one; the peer must not see half of it
	}
	if l.stream {
		parts = append([][]byte{binary.BigEndian.AppendUint32(nil, uint32(total))}, parts...)
		total += 4
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	n := 0
	if len(l.queue) == 0 {
		var err error
		if n, err = l.write(parts); err != nil && !wait(err) {
			return // interface down, or gone: Frames says so
		}
		if n == total || (n > 0 && !l.stream) {
			return
		}
	}
	if n == 0 && l.queued+total > maxQueued {
		return
	}
	frame := make([]byte, 0, total)
	for _, p := range parts {
		frame = append(frame, p...)
	}
	l.enqueue(frame[max(n, 0):])
}

// write is one attempt that does not wait.
func (l *fdLink) write(parts [][]byte) (n int, err error) {
	cerr := l.raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.Writev(int(fd), parts); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if cerr != nil {
		return 0, os.ErrClosed
	}
	return max(n, 0), err
}

// wait: the peer will have room later. ENOBUFS promises nothing, so such a frame is lost.
func wait(err error) bool { return errors.Is(err, unix.EAGAIN) }

// enqueue is called with the lock held. The first frame of a queue starts the goroutine that empties it.
func (l *fdLink) enqueue(frame []byte) {
	l.queue = append(l.queue, frame)
	l.queued += len(frame)
	if len(l.queue) == 1 {
		l.flusher.Go(l.flush)
	}
}

func (l *fdLink) flush() {
	err := l.raw.Write(func(fd uintptr) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for len(l.queue) > 0 {
			n, err := unix.Write(int(fd), l.queue[0])
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil && wait(err):
				return false
			case err != nil:
				l.forget()
				return true
			}
			l.queued -= n
			if l.queue[0] = l.queue[0][n:]; len(l.queue[0]) == 0 || !l.stream {
				l.queued -= len(l.queue[0])
				l.queue = l.queue[1:]
			}
		}
		l.forget()
		return true
	})
	if err != nil { // closed meanwhile
		l.mu.Lock()
		l.forget()
		l.mu.Unlock()
	}
}

func (l *fdLink) forget() { l.queue, l.queued = nil, 0 }

func (l *fdLink) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.f.Close()
	l.flusher.Wait()
	return err
}
