package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/rung-dev/rung"
)

// serve is a name server on the loopback device, by both transports.
func serve(t *testing.T, h dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", pc.LocalAddr().String())
	if err != nil {
		t.Skipf("no port of both transports: %v", err)
	}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: h}, {Listener: l, Handler: h}} {
		up := make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { _ = s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

// zone answers with the records, written as in a zone file, that the question's name and type, or a CNAME, matches.
func zone(records ...string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, text := range records {
			rr, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			if t := rr.Header().Rrtype; t == q.Question[0].Qtype || t == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	}
}

func TestAnswers(t *testing.T) {
	code := func(rcode int) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, rcode)) }
	}
	var loop []string
	for i := range 20 {
		loop = append(loop, fmt.Sprintf("c%d.example. 60 CNAME c%d.example.", i, i+1))
	}
	tests := map[string]struct {
		h    dns.HandlerFunc
		want string
		ttl  time.Duration
		err  string
	}{
		"both families":          {zone("a.example. 60 A 192.0.2.1", "a.example. 30 AAAA 2001:db8::1"), "192.0.2.1 2001:db8::1", 30 * time.Second, ""},
		"a chain":                {zone("A.example. 20 CNAME b.example.", "b.example. 60 CNAME c.example.", "c.example. 60 A 192.0.2.1"), "192.0.2.1", 20 * time.Second, ""},
		"somebody else's record": {zone("b.example. 60 A 192.0.2.66", "a.example. 60 A 192.0.2.1"), "192.0.2.1", time.Minute, ""},
		"beside the chain":       {zone("a.example. 20 CNAME b.example.", "a.example. 60 A 192.0.2.66", "b.example. 60 A 192.0.2.1"), "192.0.2.1", 20 * time.Second, ""},
		"a loop":                 {zone("a.example. 60 CNAME b.example.", "b.example. 60 CNAME a.example."), "", 0, ""},
		"too long a chain":       {zone(append(loop, "a.example. 60 CNAME c0.example.", "c20.example. 60 A 192.0.2.66")...), "", 0, ""},
		"no address":             {zone(), "", 0, ""},
		"no such name":           {code(dns.RcodeNameError), "", 0, "no such name"},
		"a server that fails":    {code(dns.RcodeServerFailure), "", 0, "SERVFAIL"},
		"another question": {func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.Question[0].Name = "b.example."
			rr, _ := dns.NewRR("a.example. 60 A 192.0.2.66")
			m.Answer = append(m.Answer, rr)
			_ = w.WriteMsg(m)
		}, "", 0, "another question"},
		"by TCP": {func(w dns.ResponseWriter, q *dns.Msg) {
			if w.LocalAddr().Network() == "udp" {
				m := new(dns.Msg).SetReply(q)
				m.Truncated = true
				_ = w.WriteMsg(m)
				return
			}
			zone("a.example. 60 A 192.0.2.1")(w, q)
		}, "192.0.2.1", time.Minute, ""},
		"one family fails": {func(w dns.ResponseWriter, q *dns.Msg) {
			if q.Question[0].Qtype == dns.TypeAAAA {
				code(dns.RcodeServerFailure)(w, q)
				return
			}
			zone("a.example. 60 A 192.0.2.1")(w, q)
		}, "192.0.2.1", time.Minute, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Config{Servers: []netip.AddrPort{serve(t, test.h)}}
			addrs, ttl, err := c.Resolve(t.Context(), "a.example")
			if got := strings.Trim(fmt.Sprint(addrs), "[]"); got != test.want || ttl != test.ttl {
				t.Errorf("%v %v %v", addrs, ttl, err)
			}
			if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if test.err == "no such name" && !errors.Is(err, ErrNoName) {
				t.Errorf("%v is not ErrNoName", err)
			}
		})
	}
}

func TestTheNextServerIsAsked(t *testing.T) {
	bad := serve(t, func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) })
	good := serve(t, zone("a.example. 60 A 192.0.2.1"))
	c := Config{Servers: []netip.AddrPort{bad, good}}
	if addrs, _, err := c.Resolve(t.Context(), "a.example"); err != nil || len(addrs) != 1 {
		t.Errorf("%v, %v", addrs, err)
	}
	if _, _, err := (Config{}).Resolve(t.Context(), "a.example"); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("%v", err)
	}
}

func TestNobodyWaitsForTheOtherFamily(t *testing.T) {
	h := func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeA {
			zone("a.example. 60 A 192.0.2.1")(w, q)
		} // AAAA gets no answer at all
	}
	start := time.Now()
	c := Config{Servers: []netip.AddrPort{serve(t, h)}}
	if addrs, ttl, err := c.Resolve(t.Context(), "a.example"); err != nil || len(addrs) != 1 || ttl != time.Minute {
		t.Errorf("%v %v %v", addrs, ttl, err)
	}
	if d := time.Since(start); d >= QueryTimeout {
		t.Errorf("%v", d)
	}
}

func TestAServerThatIsSilentIsLeft(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	c := Config{Servers: []netip.AddrPort{pc.LocalAddr().(*net.UDPAddr).AddrPort()}}
	start := time.Now()
	if _, _, err := c.Resolve(ctx, "a.example"); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(conf, "# c\nsearch corp.example\nnameserver 192.0.2.53\nnameserver nonsense\noptions ndots:5\nnameserver 2001:db8::53 # x\n")
	write(hosts, "127.0.0.1 localhost\n192.0.2.9 Build.example. alias # c\n2001:db8::9 build.example\nnonsense x\n")
	f, err := NewFiles(conf, hosts)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")}
	if diff := cmp.Diff(want, f.config.Servers, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if addrs, ttl, err := f.Resolve(t.Context(), "build.example"); len(addrs) != 2 || ttl != HostsTTL || err != nil {
		t.Errorf("%v %v %v", addrs, ttl, err)
	}
	// A change is seen at the next look; a file that is gone changes nothing.
	write(hosts, "192.0.2.10 build.example\n")
	if err := os.Chtimes(hosts, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.checked = time.Time{}
	if addrs, _, _ := f.Resolve(t.Context(), "build.example"); len(addrs) != 1 {
		t.Errorf("%v", addrs)
	}
	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	f.checked = time.Time{}
	if addrs, _, _ := f.Resolve(t.Context(), "build.example"); len(addrs) != 1 {
		t.Errorf("%v", addrs)
	}
	if _, err := NewFiles(conf, hosts); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("%v", err)
	}
}

func TestTheDialerConnectsToJudgedAddressesOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	up := netip.MustParseAddrPort(l.Addr().String())
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	var judged []netip.AddrPort
	d := Dialer{Timeout: 5 * time.Second, Judge: func(a netip.AddrPort) error {
		judged = append(judged, a)
		if a.Port() == 2 {
			return rung.Errorf(rung.KindRefused, "not this one")
		}
		return nil
	}}
	mapped := netip.AddrPortFrom(netip.AddrFrom16(up.Addr().As16()), up.Port())
	c, got, err := d.Dial(t.Context(), closed, mapped)
	if err != nil || got != up {
		t.Fatalf("%v, %v", got, err)
	}
	c.Close()
	if len(judged) != 2 || judged[0] != closed || judged[1] != up {
		t.Errorf("judged %v", judged)
	}
	if _, _, err := d.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:2")); rung.KindOf(err) != rung.KindRefused {
		t.Errorf("%v", err)
	}
	if _, _, err := d.Dial(t.Context(), closed); rung.KindOf(err) != rung.KindUnavailable {
		t.Errorf("%v", err)
	}
	if _, _, err := d.Dial(t.Context()); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("%v", err)
	}
	if _, _, err := (&Dialer{}).Dial(t.Context(), up); rung.KindOf(err) != rung.KindInternal {
		t.Errorf("without a judge: %v", err)
	}
}
