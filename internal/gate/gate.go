// Package gate is the only way out of a sandbox: a process of its own that ends each sandbox's link in a network stack in
// user space, judges every name, address and request by that sandbox's policy, and itself speaks to the outside what was
// judged. Nothing of the host's network is configured for it: no forwarding, no address translation, no firewall rule. When
// it dies, nothing passes.
//
// This package is the process: sessions, their links and leases. What is said to it is in package control, how one
// connection is judged in package flow, and each protocol in a package of its own.
package gate

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
)

// Caps of the process.
const (
	maxSessions = 1024
	maxClients  = 2048             // connections to the control socket
	firstByte   = 10 * time.Second // for a client's first message, and a holder's on its link
)

// Config is what the gate is started with.
type Config struct {
	Listener *net.UnixListener
	Dir      *os.File      // the directory of the socket: when it is removed, the gate ends
	Owner    int           // the uid that may connect
	Linger   time.Duration // how long the gate stays without a session
	Build    string        // the program's version
	Confined []string      // how the process is walled in, for Status
	Outside  Outside
}

// server is the running gate.
type server struct {
	Config
	started time.Time

	mu       sync.Mutex
	sessions map[string]*session // by token; guarded by mu
	idle     *time.Timer         // runs while there are none; guarded by mu
	forgets  forgetting
	clients  chan struct{}
	ended    chan struct{}
	once     sync.Once
}

// Serve serves until the gate has lingered or ctx is done.
func Serve(ctx context.Context, c Config) error {
	s := &server{Config: c, started: time.Now(), sessions: map[string]*session{}, clients: make(chan struct{}, maxClients), ended: make(chan struct{})}
	s.idle = time.AfterFunc(c.Linger, s.end)
	defer s.idle.Stop()
	go s.watch(ctx)
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	for {
		conn, err := c.Listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			s.closeAll()
			return nil
		case err != nil: // out of descriptors: others must close first
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-s.ended:
				s.closeAll()
				return nil
			}
		}
		select {
		case s.clients <- struct{}{}:
			go func() {
				s.client(ctx, control.NewConn(conn))
				<-s.clients
			}()
		default:
			conn.Close()
		}
	}
}

func (s *server) end() {
	s.once.Do(func() {
		close(s.ended)
		s.Listener.Close()
	})
}

// watch ends the gate when the directory of its socket is gone: nobody can find it any more.
func (s *server) watch(ctx context.Context) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			var st unix.Stat_t
			if s.Dir != nil && (unix.Fstat(int(s.Dir.Fd()), &st) != nil || st.Nlink == 0) {
				s.end()
				return
			}
		case <-s.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *server) closeAll() {
	s.mu.Lock()
	list := make([]*session, 0, len(s.sessions))
	for _, one := range s.sessions {
		list = append(list, one)
	}
	s.mu.Unlock()
	for _, one := range list {
		one.close()
	}
}

// client serves one connection by its first message.
func (s *server) client(ctx context.Context, c *control.Conn) {
	defer c.Close()
	if uid, err := peerUID(c.Raw()); err != nil || uid != s.Owner {
		return
	}
	_ = c.Raw().SetReadDeadline(time.Now().Add(firstByte))
	var r control.Request
	file, err := c.Receive(&r)
	if file != nil {
		file.Close() // nothing that comes first brings one
	}
	if err != nil {
		return
	}
	switch {
	case r.Open != nil:
		s.open(ctx, c, r.Open)
	case r.Deliver != nil:
		s.deliver(c, r.Deliver.Token)
	case r.Ping:
		_ = c.Send(control.Reply{Status: s.status()})
	}
}

func peerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

func (s *server) status() *control.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &control.Status{
		Version: control.Version, Build: s.Build, PID: os.Getpid(), UID: os.Getuid(), Started: s.started,
		Sessions: len(s.sessions), Confined: s.Confined,
	}
}

// open serves a sandbox's client from its policy to its summary.
func (s *server) open(ctx context.Context, c *control.Conn, o *control.Open) {
	one, err := newSession(ctx, c, o, s.Outside)
	if err != nil {
		_ = c.Send(control.Reply{Failed: rung.Fail(err)})
		return
	}
	if err := s.add(one); err != nil {
		one.close()
		_ = c.Send(control.Reply{Failed: rung.Fail(err)})
		return
	}
	defer s.remove(one)
	_ = c.Raw().SetReadDeadline(time.Time{})
	one.serve()
}

func (s *server) add(one *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxSessions {
		return rung.Errorf(rung.KindExhausted, "the gate already serves %d sandboxes", maxSessions)
	}
	s.idle.Stop()
	one.forgets = &s.forgets
	s.sessions[one.token] = one
	return nil
}

func (s *server) remove(one *session) {
	one.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, one.token)
	if len(s.sessions) == 0 {
		s.idle.Reset(s.Linger)
	}
}

// deliver takes a lease for an open session.
func (s *server) deliver(c *control.Conn, token string) {
	one := s.find(token)
	if one == nil {
		_ = c.Send(control.Reply{Failed: rung.Fail(rung.Errorf(rung.KindNotFound, "the gate has no such session"))})
		return
	}
	_ = c.Raw().SetReadDeadline(time.Now().Add(leaseTimeout))
	var l rung.Lease
	file, err := c.Receive(&l)
	if file != nil {
		file.Close()
	}
	if err == nil {
		err = one.lend(l)
	}
	if err != nil {
		_ = c.Send(control.Reply{Failed: rung.Fail(err)})
		return
	}
	_ = c.Send(control.Reply{Done: true})
}

// find compares in constant time, since a token is all that a broker's process shows.
func (s *server) find(token string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, one := range s.sessions {
		if subtle.ConstantTimeCompare([]byte(t), []byte(token)) == 1 {
			return one
		}
	}
	return nil
}

// leaseTimeout bounds the wait for a broker that was announced: it may run a command that asks a vault.
const leaseTimeout = 60 * time.Second
