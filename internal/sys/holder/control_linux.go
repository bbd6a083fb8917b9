package holder

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/seccomp"
)

// maxClients bounds the connections to one sandbox at a time; one more is closed at once.
const maxClients = 128

// peer is one client of the holder: the lifeline or an 'H' connection.
type peer struct {
	mu   sync.Mutex
	conn net.Conn
}

func newPeer(c net.Conn) *peer { return &peer{conn: c} }

// send writes one line; a client that does not read within a second is given up.
func (p *peer) send(m message) {
	line, err := m.appendTo(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	if err == nil {
		_, err = p.conn.Write(line)
	}
	if err != nil {
		p.conn.Close() // its reader sees the end and forgets it
	}
}

// tell sends m to the lifeline and every 'H' connection.
func (h *held) tell(m message) {
	h.mu.Lock()
	peers := append([]*peer{h.life}, h.peers...)
	h.mu.Unlock()
	for _, p := range peers {
		p.send(m)
	}
}

// listenToClient reads a client's requests until it goes; an owner's going is the sandbox's end.
func (h *held) listenToClient(p *peer, owner bool) {
	lines := bufio.NewReaderSize(io.LimitReader(p.conn, 1<<20), 512)
	for {
		m, err := receive(lines)
		if err != nil {
			break
		}
		if m.Op == opDestroy {
			h.once.Do(func() { close(h.destroy) })
		}
	}
	if owner {
		h.once.Do(func() { close(h.destroy) })
	}
}

// serve accepts clients on control.sock for ever.
func (h *held) serve(l *net.UnixListener) {
	slots := make(chan struct{}, maxClients)
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: others must close first
			continue
		}
		select {
		case slots <- struct{}{}:
			go func() { h.client(conn); <-slots }()
		default:
			conn.Close()
		}
	}
}

func (h *held) client(conn *net.UnixConn) {
	defer conn.Close()
	var first [1]byte
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch first[0] {
	case 'G':
		h.bridge(conn)
	case 'H':
		h.attend(conn)
	}
}

// bridge makes conn one connection to the guest's HTTP server. Either side's end ends both.
func (h *held) bridge(conn *net.UnixConn) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	stream, err := h.guest.Dial(ctx)
	cancel()
	if err != nil {
		return
	}
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(stream, conn); done <- struct{}{} }()
	go func() { _, _ = io.Copy(conn, stream); done <- struct{}{} }()
	<-done
	stream.Close()
	conn.Close()
	<-done
}

// attend serves an adopter: it gets every later message and may ask for the end. Denied calls seen so far come first.
func (h *held) attend(conn *net.UnixConn) {
	p := newPeer(conn)
	h.mu.Lock()
	h.peers = append(h.peers, p)
	h.mu.Unlock()
	p.send(message{Ready: &ready{}})
	for _, d := range h.log.all() {
		p.send(message{Denied: &d})
	}
	h.listenToClient(p, false)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.peers {
		if h.peers[i] == p {
			h.peers = append(h.peers[:i], h.peers[i+1:]...)
			return
		}
	}
}

// supervise answers the sandbox's denied system calls for as long as it lives.
func (h *held) supervise(wall *Wall) {
	if wall.Notify == nil && wall.Listener == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.watched.Go(func() {
		fd, err := listener(wall)
		if err != nil {
			h.tell(message{Notice: "denied system calls are not recorded: " + err.Error()})
			return
		}
		defer fd.Close()
		err = seccomp.Supervise(ctx, fd, func(d rung.Denied) {
			h.log.add(d)
			h.tell(message{Denied: &d})
		})
		if err != nil && ctx.Err() == nil {
			h.tell(message{Notice: "denied system calls are no longer recorded: " + err.Error()})
		}
	})
}

// listener waits, bounded, for the runtime to hand over the seccomp listener.
func listener(wall *Wall) (*os.File, error) {
	if wall.Listener != nil {
		return wall.Listener()
	}
	l, err := net.FileListener(wall.Notify)
	wall.Notify.Close()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(30 * time.Second))
	conn, err := l.Accept()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	fd, _, err := seccomp.ReceiveListener(conn.(*net.UnixConn))
	return fd, err
}

// deniedLog keeps a bounded number of denied calls for clients that come later.
type deniedLog struct {
	mu   sync.Mutex
	list []rung.Denied
}

const maxDenied = 256

func (l *deniedLog) add(d rung.Denied) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if l.list[i].Syscall == d.Syscall && l.list[i].PID == d.PID {
			l.list[i].Count += d.Count
			return
		}
	}
	if len(l.list) < maxDenied {
		l.list = append(l.list, d)
	}
}

func (l *deniedLog) all() []rung.Denied {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]rung.Denied(nil), l.list...)
}
