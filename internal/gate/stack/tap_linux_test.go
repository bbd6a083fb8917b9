package stack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/stack"
	"github.com/rung-dev/rung/internal/sys/tap"
)

const inside = "RUNG_TEST_INSIDE"

// inNamespace runs the calling test or benchmark again as the only process of a new network namespace, where it may make
// interfaces and from where nothing can leave. It returns true inside.
func inNamespace(t testing.TB) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	if err := tap.Usable(); err != nil {
		t.Skipf("no TAP on this host: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	if _, ok := t.(*testing.B); ok {
		args = []string{"-test.run=^$", "-test.bench=^" + t.Name() + "$"}
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("inside: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "Gbit/s") || strings.Contains(line, "ns/op") {
			t.Log(strings.TrimSpace(line))
		}
	}
	return false
}

// handler is a Handler of functions; what is nil refuses.
type handler struct {
	accept func(netip.AddrPort) error
	tcp    func(context.Context, *stack.Conn)
	dns    func([]byte, bool) []byte

	mu     sync.Mutex
	denied []rung.NetDenial
	news   chan struct{}
}

func (h *handler) Accept(_ context.Context, dst netip.AddrPort) error {
	if h.accept == nil {
		return rung.Errorf(rung.KindRefused, "no rule names it").WithHint("--allow it")
	}
	return h.accept(dst)
}

func (h *handler) TCP(ctx context.Context, c *stack.Conn) {
	if h.tcp != nil {
		h.tcp(ctx, c)
	}
}

func (h *handler) DNS(_ context.Context, q []byte, tcp bool) []byte {
	if h.dns == nil {
		return nil
	}
	return h.dns(q, tcp)
}

func (h *handler) Denied(d rung.NetDenial) {
	h.mu.Lock()
	h.denied = append(h.denied, d)
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

func (h *handler) count(match func(rung.NetDenial) bool) (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.denied {
		if match(d) {
			n += max(d.Count, 1)
		}
	}
	return n
}

func allowAll(netip.AddrPort) error { return nil }

// guest makes the TAP, configures it as the holder does, and puts a stack at its other end.
func guest(t testing.TB, h *handler) *stack.Stack {
	t.Helper()
	f, err := tap.Open(tap.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tap.Configure(tap.Name); err != nil {
		t.Fatal(err)
	}
	link, err := stack.NewPacketLink(f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := stack.New(link, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// anywhere are addresses that only this namespace's gate can mean.
var anywhere = []string{"198.51.100.7:443", "[2001:db8::7]:443"}

func TestTCPToAnyAddressEndsAtTheGate(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	h := &handler{accept: allowAll, tcp: func(_ context.Context, c *stack.Conn) {
		fmt.Fprintf(c, "you wanted %s\n", c.Dst)
		// Half-close: the guest's end of sending is seen, and sending goes on after it.
		b, err := io.ReadAll(c)
		fmt.Fprintf(c, "you said %q, %v\n", b, err)
		c.CloseWrite()
	}}
	guest(t, h)
	for _, to := range anywhere {
		c, err := net.DialTimeout("tcp", to, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		b, err := io.ReadAll(c)
		if want := fmt.Sprintf("you wanted %s\nyou said \"hello\", <nil>\n", to); string(b) != want || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
		c.Close()
	}
}

func TestRefusalsAreResetsAndUnreachables(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	// Under load the kernel installs the local route of the IPv6 address a moment after it acknowledged the address, so the
	// first reset may be lost and its SYN come again.
	var asked sync.Map
	h := &handler{accept: func(dst netip.AddrPort) error {
		n, _ := asked.LoadOrStore(dst, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		return rung.Errorf(rung.KindRefused, "no rule names %s", dst)
	}}
	guest(t, h)
	for _, to := range []string{"198.51.100.7:443", "[2001:db8::7]:443"} {
		if c, err := net.DialTimeout("tcp", to, 5*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v, %v", to, c, err)
		}
	}
	for _, to := range []string{"198.51.100.7:443", "[2001:db8::7]:443", "198.51.100.7:53", tap.GatewayV4().String() + ":54"} {
		c, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("hello"))
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if n, err := c.Read(make([]byte, 9)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("udp %s: %d, %v", to, n, err)
		}
		c.Close()
	}
	for _, to := range anywhere {
		n, ok := asked.Load(netip.MustParseAddrPort(to))
		if !ok || n.(*atomic.Int32).Load() > 2 {
			t.Errorf("the handler was asked about %s too often, or never", to)
		} else if n.(*atomic.Int32).Load() == 2 {
			t.Logf("%s was asked twice", to)
		}
	}
	if n := h.count(func(d rung.NetDenial) bool { return d.Layer == "udp" }); n != 4 {
		t.Errorf("%d UDP denials in %+v", n, h.denied)
	}
}

func TestEchoIsAnsweredByTheGateOnly(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	h := &handler{}
	guest(t, h)
	if _, err := exec.LookPath("ping"); err != nil {
		t.Skip("no ping on this host")
	}
	for _, to := range []string{tap.GatewayV4().String(), tap.GatewayV6().String()} {
		if out, err := exec.Command("ping", "-c1", "-W5", to).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", to, err, out)
		}
	}
	for _, to := range []string{"198.51.100.7", "2001:db8::7"} {
		out, err := exec.Command("ping", "-c1", "-W5", to).CombinedOutput()
		if err == nil || !strings.Contains(strings.ToLower(string(out)), "prohibited") && !strings.Contains(string(out), "Packet filtered") {
			t.Errorf("%s: %v\n%s", to, err, out)
		}
		if h.count(func(d rung.NetDenial) bool { return d.Layer == "icmp" && d.Address == to }) != 1 {
			t.Errorf("no denial of %s: %+v", to, h.denied)
		}
	}
}

func TestQuestionsByDatagramAndConnection(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	big := make([]byte, 9000)
	h := &handler{dns: func(q []byte, tcp bool) []byte {
		if string(q[12:]) == "big" {
			return big
		}
		return append(append([]byte{}, q...), fmt.Sprint(" ", tcp)...)
	}}
	guest(t, h)
	for _, gw := range []netip.Addr{tap.GatewayV4(), tap.GatewayV6()} {
		to := netip.AddrPortFrom(gw, 53).String()
		c, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(5 * time.Second))
		buf := make([]byte, 20000)
		c.Write([]byte("123456789012name"))
		n, err := c.Read(buf)
		if string(buf[:n]) != "123456789012name false" {
			t.Errorf("udp %s: %q, %v", to, buf[:n], err)
		}
		c.Write([]byte("123456789012big"))
		if n, err := c.Read(buf); n != len(big) {
			t.Errorf("udp %s: %d, %v", to, n, err)
		}
		c.Close()

		if c, err = net.DialTimeout("tcp", to, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(5 * time.Second))
		c.Write([]byte("\x00\x0d1234567890121\x00\x0d1234567890122"))
		if _, err := io.ReadFull(c, buf[:40]); err != nil || !strings.Contains(string(buf[:40]), "1234567890122 true") {
			t.Errorf("tcp %s: %q, %v", to, buf[:40], err)
		}
		c.Write([]byte("\x00\x01x")) // no message: the connection ends
		if n, err := c.Read(buf); err == nil {
			t.Errorf("tcp %s: %d", to, n)
		}
		c.Close()
	}
}

func TestAPeerThatDoesNotReadOrCloseIsBounded(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	wrote := make(chan int, 1)
	h := &handler{accept: allowAll, tcp: func(_ context.Context, c *stack.Conn) {
		if c.Dst.Port() != 1 {
			return
		}
		c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		total := 0
		for {
			n, err := c.Write(make([]byte, 64<<10))
			total += n
			if err != nil {
				wrote <- total
				c.Abort()
				return
			}
		}
	}}
	guest(t, h)
	c, err := net.Dial("tcp", "198.51.100.7:1")
	if err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).SetReadBuffer(8 << 10)
	defer c.Close()
	if n := <-wrote; n > 16<<20 {
		t.Errorf("%d bytes were taken for a peer that reads nothing", n)
	}
	// The stack still serves.
	d, err := net.Dial("tcp", "198.51.100.7:2")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestConnectionsAreCapped(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = min(limit.Max, 8192)
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	h := &handler{accept: allowAll, tcp: func(ctx context.Context, c *stack.Conn) { <-ctx.Done() }}
	guest(t, h)
	var conns []net.Conn
	refused := 0
	for range stack.MaxConnections + 20 {
		c, err := net.DialTimeout("tcp", "198.51.100.7:1", 5*time.Second)
		if err != nil {
			refused++
			continue
		}
		conns = append(conns, c)
	}
	if len(conns) != stack.MaxConnections || refused != 20 {
		t.Errorf("%d open, %d refused", len(conns), refused)
	}
	for _, c := range conns {
		c.Close()
	}
}

// transfer moves total bytes in one direction through the link and reports the speed.
func transfer(b testing.TB, to string, total int64, up bool) float64 {
	start := time.Now()
	c, err := net.Dial("tcp", to)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if up {
		buf := make([]byte, 256<<10)
		for left := total; left > 0; left -= int64(len(buf)) {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
		c.(*net.TCPConn).CloseWrite()
		if _, err := io.ReadAll(c); err != nil {
			b.Fatal(err)
		}
	} else {
		buf := make([]byte, 256<<10)
		n := int64(0)
		for {
			m, err := c.Read(buf)
			n += int64(m)
			if err != nil {
				break
			}
		}
		if n != total {
			b.Fatalf("%d bytes came", n)
		}
	}
	return float64(total) * 8 / 1e9 / time.Since(start).Seconds()
}

// cpu is this process's processor time, which says more than a clock on a machine that does other things too.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Round(time.Millisecond)
}

func TestThroughput(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	const total = 2 << 30
	h := &handler{accept: allowAll, tcp: func(_ context.Context, c *stack.Conn) {
		buf := make([]byte, 256<<10)
		if c.Dst.Port() == 1 {
			for {
				if _, err := c.Read(buf); err != nil {
					return
				}
			}
		}
		size := int64(total)
		if c.Dst.Port() == 3 {
			size = 1 << 20
		}
		for left := size; left > 0; left -= int64(len(buf)) {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}}
	guest(t, h)
	for _, host := range []string{"198.51.100.7", "[2001:db8::7]"} {
		before := cpu()
		t.Logf("%s up %.2f Gbit/s, %v of processor per GiB, both ends", host, transfer(t, host+":1", total, true), (cpu()-before)/(total>>30))
		before = cpu()
		t.Logf("%s down %.2f Gbit/s, %v of processor per GiB, both ends", host, transfer(t, host+":2", total, false), (cpu()-before)/(total>>30))
		start := time.Now()
		for range 50 {
			transfer(t, host+":3", 1<<20, false)
		}
		t.Logf("%s 1 MiB downloads: %v each; Gbit/s %.2f", host, time.Since(start)/50, 50*8.0*(1<<20)/1e9/time.Since(start).Seconds())
		start = time.Now()
		for range 200 {
			c, err := net.Dial("tcp", host+":9")
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		t.Logf("%s connect: %v each (0 Gbit/s)", host, time.Since(start)/200)
	}
}
