//go:build linux

package egress

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// authority signs what the stand-ins show.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (a authority, err error) {
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return a, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stand-ins"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, t, t, &a.key.PublicKey, a.key)
	if err != nil {
		return a, err
	}
	a.cert, err = x509.ParseCertificate(raw)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return a, err
}

// leaf is for whatever name is asked for.
func (a authority) leaf(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := h.ServerName
	if name == "" {
		name = "nobody.test"
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, t, a.cert, &a.key.PublicKey, a.key)
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: a.key}, err
}

// stands are the servers. They listen at every address, which all are this namespace's own.
type stands struct {
	mu      sync.Mutex
	streams []*heard
	holds   map[string]chan struct{}
	waiting map[string]bool
}

// heard is what came on one connection, decrypted where there was TLS; to is where it was sent.
type heard struct {
	to  string
	mu  sync.Mutex
	buf []byte
	n   int64
}

// maxHeard is how much of a stream is kept.
const maxHeard = 512 << 10

func (h *heard) add(b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n += int64(len(b))
	h.buf = append(h.buf, b[:min(len(b), maxHeard-len(h.buf))]...)
}

func standIn(w *theWorld) (*stands, error) {
	s := &stands{}
	s.reset()
	config := &tls.Config{GetCertificate: w.ca.leaf, NextProtos: []string{"http/1.1"}}
	for port, serve := range map[int]func(net.Conn, *heard){
		80: s.web, 8080: s.web, 8099: s.web, // 8099 is the service that this host has for itself
		443: s.tls(config), 8443: s.tls(config), 853: s.tls(config),
		5432: s.web, 25: s.web, 22: s.web, 2375: s.web, 6443: s.web, 10250: s.web,
		3128: s.naive,
	} {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return nil, err
		}
		w.end = append(w.end, func() { l.Close() })
		go s.accept(l, serve)
	}
	for _, network := range []string{"udp", "tcp"} {
		started := make(chan struct{})
		d := &dns.Server{Addr: ":53", Net: network, Handler: w.zone, NotifyStartedFunc: func() { close(started) }}
		failed := make(chan error, 1)
		go func() { failed <- d.ListenAndServe() }()
		select {
		case <-started:
		case err := <-failed:
			return nil, err
		}
		w.end = append(w.end, func() { _ = d.Shutdown() })
	}
	return s, s.datagrams(w)
}

// datagrams listens on a Unix socket that everybody may send to who finds it.
func (s *stands) datagrams(w *theWorld) error {
	path := filepath.Join(w.dir, "datagrams.sock")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	w.end = append(w.end, func() { c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, _, err := c.ReadFromUnix(buf)
			if err != nil {
				return
			}
			h := &heard{to: path}
			h.add(buf[:n])
			s.mu.Lock()
			s.streams = append(s.streams, h)
			s.mu.Unlock()
		}
	}()
	return os.Chmod(path, 0o777)
}

func (s *stands) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams, s.holds, s.waiting = nil, map[string]chan struct{}{}, map[string]bool{}
}

func (s *stands) accept(l net.Listener, serve func(net.Conn, *heard)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		h := &heard{to: c.LocalAddr().String()}
		s.mu.Lock()
		s.streams = append(s.streams, h)
		s.mu.Unlock()
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			serve(&hearing{c, h}, h)
		}()
	}
}

// hearing notes what is read.
type hearing struct {
	net.Conn
	h *heard
}

func (c *hearing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.h.add(p[:n])
	return n, err
}

// web answers whatever has a header's end: it is as lenient as the worst server.
func (s *stands) web(c net.Conn, _ *heard) {
	r := bufio.NewReaderSize(c, 64<<10)
	var head []byte
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		if len(head) < 64<<10 {
			head = append(head, line...)
		}
		if len(bytes.TrimRight(line, "\r\n")) > 0 {
			continue
		}
		if !s.answer(c, string(head)) {
			return
		}
		head = nil
	}
}

func (s *stands) answer(c net.Conn, head string) bool {
	status, extra := "200 OK", ""
	_, path, _ := strings.Cut(head, " ")
	path, _, _ = strings.Cut(path, " ")
	if i := strings.Index(path, "/hold-"); i >= 0 {
		<-s.hold(path[i+len("/hold-"):])
	}
	if _, to, is := strings.Cut(path, "/redirect/"); is {
		status, extra = "302 Found", "Location: http://"+to+"/\r\n"
	}
	if strings.Contains(strings.ToLower(head), "upgrade: websocket") {
		status, extra = "101 Switching Protocols", "Upgrade: websocket\r\nConnection: Upgrade\r\n"
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %s\r\n%sContent-Length: 6\r\n\r\ncanary", status, extra)
	return err == nil
}

// hold is closed when the test lets go of that token.
func (s *stands) hold(token string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[token] = true
	return s.held(token)
}

func (s *stands) held(token string) chan struct{} {
	if s.holds[token] == nil {
		s.holds[token] = make(chan struct{})
	}
	return s.holds[token]
}

func (s *stands) release(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.held(token))
}

func (s *stands) waits(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[token]
}

func (s *stands) tls(config *tls.Config) func(net.Conn, *heard) {
	return func(c net.Conn, h *heard) {
		t := tls.Server(c, config)
		if t.Handshake() != nil {
			return
		}
		s.web(&hearing{t, h}, h)
	}
}

// heardOf returns the parts of all streams around a token, one for each request that has it.
func (s *stands) heardOf(token string) (list []string) {
	s.mu.Lock()
	streams := s.streams
	s.mu.Unlock()
	for _, h := range streams {
		h.mu.Lock()
		rest := string(h.buf)
		h.mu.Unlock()
		for part := range strings.SplitSeq(rest, "\r\n\r\n") {
			if strings.Contains(strings.ToLower(part), token) {
				list = append(list, h.to+": "+part)
			}
		}
	}
	return list
}

// bytes counts what came to a port.
func (s *stands) bytes(port string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.streams {
		if strings.HasSuffix(h.to, ":"+port) {
			h.mu.Lock()
			n += h.n
			h.mu.Unlock()
		}
	}
	return n
}
