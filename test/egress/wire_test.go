//go:build linux

package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wire watches every packet of the namespace: the stand-ins cannot miss what they do not listen for.
type wire struct {
	fd    int
	token *regexp.Regexp

	mu     sync.Mutex
	begun  map[string]int    // what was begun since the last look: "tcp 203.0.113.10:80"
	tokens map[string]string // cases whose token was seen, and where
	served map[netip.AddrPort]bool
	done   chan struct{}
}

// snap is how much of a packet is looked at.
const snap = 4096

func listenWire(nonce string) (*wire, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})))
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return nil, err
	}
	w := &wire{fd: fd, token: tokenPattern(nonce), done: make(chan struct{})}
	w.reset()
	go w.watch()
	return w, nil
}

func tokenPattern(nonce string) *regexp.Regexp { return regexp.MustCompile("x" + nonce + "n[0-9]{4}") }

func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun, w.tokens, w.served = map[string]int{}, map[string]string{}, map[netip.AddrPort]bool{}
}

func (w *wire) watch() {
	buf := make([]byte, snap)
	for {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			return
		}
		// Each packet passes twice, going out and coming in: once is enough.
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			w.packet(buf[:n])
		}
	}
}

func (w *wire) packet(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.token.FindAll(bytes.ToLower(b), -1) {
		w.tokens[string(t)] = "the wire"
	}
	if key, ok := w.begins(b); ok {
		w.begun[key]++
		for _, t := range w.token.FindAll(bytes.ToLower(b), -1) {
			w.tokens[string(t)] = "the wire, " + key
		}
	}
}

// begins says what a packet begins, if it is no answer to one before.
func (w *wire) begins(b []byte) (string, bool) {
	if len(b) < 20 {
		return "a runt", true
	}
	var src, dst netip.Addr
	proto, body := b[9], []byte(nil)
	switch b[0] >> 4 {
	case 4:
		src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		body = b[min(len(b), int(b[0]&15)*4):]
	case 6:
		if len(b) < 40 {
			return "a runt", true
		}
		proto, src, dst = b[6], netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		body = b[40:]
	default:
		return fmt.Sprintf("a frame that is no IP: % x", b[:16]), true
	}
	port := func(at int) uint16 {
		if len(body) < at+2 {
			return 0
		}
		return binary.BigEndian.Uint16(body[at:])
	}
	to, from := netip.AddrPortFrom(dst, port(2)), netip.AddrPortFrom(src, port(0))
	switch proto {
	case unix.IPPROTO_TCP:
		if len(body) < 14 || body[13]&0x12 != 2 { // SYN without ACK begins
			return "", false
		}
		return "tcp " + to.String(), true
	case unix.IPPROTO_UDP:
		if w.served[from] {
			return "", false
		}
		w.served[to] = true
		return "udp " + to.String(), true
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(body) == 0 || body[0] != 8 && body[0] != 128 {
			return "", false // errors and echoes answer something; the rest is the loopback interface's own
		}
		return "icmp " + dst.String(), true
	}
	if dst.IsMulticast() && proto == 0 {
		return "", false // multicast listener reports of this namespace
	}
	return fmt.Sprintf("protocol %d to %s", proto, dst), true
}

// look waits until everything sent before has been seen, and returns what was begun and which tokens were there.
func (w *wire) look(t *testing.T) (begun map[string]int, tokens map[string]string) {
	t.Helper()
	const mark = "udp 127.0.0.1:9"
	w.mu.Lock()
	before := w.begun[mark]
	w.mu.Unlock()
	c, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("mark")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 10*time.Second, "the wire's mark", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.begun[mark] > before
	})
	stats, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Drops > 0 {
		t.Errorf("%d packets passed unseen", stats.Drops)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.begun, mark)
	return w.begun, w.tokens
}

// strangers are what was begun that is not among the allowed.
func strangers(begun map[string]int, allowed []string) (list []string) {
	for key, n := range begun {
		if key == "udp 127.0.0.1:53" || key == "tcp 127.0.0.1:53" || key == "udp 127.0.0.1:9" || slices.Contains(allowed, key) {
			continue
		}
		list = append(list, fmt.Sprintf("%s (%d times)", key, n))
	}
	slices.Sort(list)
	return list
}

// waitFor looks often; nothing tells when it happens.
func waitFor(t *testing.T, within time.Duration, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, within)
		}
		<-tick.C
	}
}
