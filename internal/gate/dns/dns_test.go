package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/dns"
	"github.com/rung-dev/rung/internal/gate/resolve"
)

// world is a sandbox's surroundings: a policy that allows a.example and *.w.example, and an upstream of a few names.
type world struct {
	mu      sync.Mutex
	asked   []string
	pinned  map[string]time.Duration
	denied  []rung.NetDenial
	lookups int
	budget  int
	ttl     time.Duration
	hold    chan struct{}
}

func newWorld() *world {
	return &world{pinned: map[string]time.Duration{}, budget: 1 << 30, ttl: 30 * time.Second}
}

func (w *world) server() *dns.Server {
	return dns.New(dns.Config{
		Normal: func(name string) (string, error) {
			if name == "" || strings.ContainsAny(name, " \x00") {
				return "", errors.New("no host name")
			}
			return strings.ToLower(name), nil
		},
		Lookup: func(name string) dns.Verdict {
			switch {
			case strings.HasSuffix(name, ".w.example"):
				return dns.Verdict{Allow: true, Wildcard: "w.example", Rule: "allow *.w.example"}
			case strings.HasSuffix(name, "a.example"), name == "none.example", name == "inside.example", name == "down.example":
				return dns.Verdict{Allow: true, Rule: "allow a.example"}
			}
			return dns.Verdict{Reason: "no rule names " + name, Hint: "--allow " + name}
		},
		Judge: func(_ string, a netip.Addr) error {
			if a.IsPrivate() {
				return rung.Errorf(rung.KindRefused, "a private address").WithHint("name its network")
			}
			return nil
		},
		Resolve: w.resolve,
		Pin: func(name string, addrs []netip.Addr, ttl time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, a := range addrs {
				w.pinned[name+" "+a.String()] = ttl
			}
		},
		Spend: func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.lookups++; w.lookups > w.budget {
				return rung.Errorf(rung.KindExhausted, "the budget is used up")
			}
			return nil
		},
		Denied: func(d rung.NetDenial) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.denied = append(w.denied, d)
		},
	})
}

func (w *world) resolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	w.mu.Lock()
	w.asked = append(w.asked, name)
	w.mu.Unlock()
	if w.hold != nil {
		<-w.hold
	}
	switch name {
	case "none.example":
		return nil, 0, fmt.Errorf("%w", resolve.ErrNoName)
	case "inside.example":
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2")}, w.ttl, nil
	case "down.example":
		return nil, 0, errors.New("the name server is down")
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")}, w.ttl, nil
}

func ask(name string, kind uint16) *mdns.Msg {
	m := new(mdns.Msg)
	m.SetQuestion(mdns.Fqdn(name), kind)
	m.SetEdns0(1232, false)
	return m
}

func answer(t *testing.T, s *dns.Server, q *mdns.Msg, tcp bool) *mdns.Msg {
	t.Helper()
	wire, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	b := s.Answer(context.Background(), wire, tcp)
	if b == nil {
		return nil
	}
	m := new(mdns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	if m.Id != q.Id || !m.Response {
		t.Fatalf("not its answer: %v", m)
	}
	return m
}

func ede(m *mdns.Msg) string {
	if o := m.IsEdns0(); o != nil {
		for _, e := range o.Option {
			if e, ok := e.(*mdns.EDNS0_EDE); ok {
				return fmt.Sprintf("%d %s", e.InfoCode, e.ExtraText)
			}
		}
	}
	return ""
}

func TestAnswers(t *testing.T) {
	tests := map[string]struct {
		name   string
		kind   uint16
		code   int
		want   string // answers
		ede    string
		denied string
		asked  int
	}{
		"allowed":          {"A.eXample", mdns.TypeA, 0, "A.eXample.\t30\tIN\tA\t192.0.2.1", "", "", 1},
		"allowed v6":       {"a.example", mdns.TypeAAAA, 0, "a.example.\t30\tIN\tAAAA\t2001:db8::1", "", "", 1},
		"refused":          {"b.example", mdns.TypeA, 3, "", "15 no rule names b.example; --allow b.example", "no rule names b.example", 0},
		"refused TXT":      {"b.example", mdns.TypeTXT, 3, "", "15 no rule names b.example; --allow b.example", "no rule names b.example", 0},
		"HTTPS":            {"a.example", mdns.TypeHTTPS, 0, "", "", "", 0},
		"SVCB":             {"_dns.a.example", mdns.TypeSVCB, 0, "", "", "", 0},
		"SRV of apt":       {"_https._tcp.a.example", mdns.TypeSRV, 0, "", "", "", 0},
		"SRV refused":      {"_https._tcp.b.example", mdns.TypeSRV, 3, "", "15 no rule names b.example; --allow b.example", "no rule names b.example", 0},
		"TXT":              {"a.example", mdns.TypeTXT, 0, "", "17 only addresses are looked up, not records of type TXT", "only addresses are looked up, not records of type TXT", 0},
		"NULL":             {"a.example", mdns.TypeNULL, 0, "", "17 only addresses are looked up, not records of type NULL", "only addresses are looked up, not records of type NULL", 0},
		"ANY":              {"a.example", mdns.TypeANY, 0, "", "17 only addresses are looked up, not records of type ANY", "only addresses are looked up, not records of type ANY", 0},
		"unknown type":     {"a.example", 65280, 0, "", "17 only addresses are looked up, not records of type unknown", "only addresses are looked up, not records of type unknown", 0},
		"PTR":              {"1.0.0.10.in-addr.arpa", mdns.TypePTR, 3, "", "15 no rule names 1.0.0.10.in-addr.arpa; --allow 1.0.0.10.in-addr.arpa", "no rule names 1.0.0.10.in-addr.arpa", 0},
		"no such name":     {"none.example", mdns.TypeA, 3, "", "", "", 1},
		"only inside":      {"inside.example", mdns.TypeA, 3, "", "15 inside.example resolves to 10.0.0.1: a private address; name its network", "inside.example resolves to 10.0.0.1: a private address", 1},
		"server down":      {"down.example", mdns.TypeA, 2, "", "23 the name server is down", "", 1},
		"root":             {".", mdns.TypeA, 3, "", "15 no host name", "no host name", 0},
		"a byte":           {`a\000.example`, mdns.TypeA, 3, "", "15 a name with bytes that no host name has", "a name with bytes that no host name has", 0},
		"a dot in a label": {`x\.w.example`, mdns.TypeA, 3, "", "15 a name with bytes that no host name has", "a name with bytes that no host name has", 0},
		"wildcard":         {"x.w.example", mdns.TypeA, 0, "x.w.example.\t30\tIN\tA\t192.0.2.1", "", "", 1},
		"uuid":             {"5f0c0a52-7be4-4c8e-9b1f-2a9d1c3e4f60.w.example", mdns.TypeA, 0, "5f0c0a52-7be4-4c8e-9b1f-2a9d1c3e4f60.w.example.\t30\tIN\tA\t192.0.2.1", "", "", 1},
		"words":            {"my-long-service-name-in-production-eu.w.example", mdns.TypeA, 0, "my-long-service-name-in-production-eu.w.example.\t30\tIN\tA\t192.0.2.1", "", "", 1},
		"long label":       {strings.Repeat("a", 41) + ".w.example", mdns.TypeA, 3, "", "15", "a label of more than 40 characters below *.w.example, as data smuggled out in names has", 0},
		"data":             {"mzxw6ytboi5q4dn7e2kvjh3lgsa.w.example", mdns.TypeA, 3, "", "15", "a label below *.w.example that looks like data smuggled out in names", 0},
		"long part":        {strings.Repeat("aa.", 30) + "w.example", mdns.TypeA, 3, "", "15", "more than 80 characters below *.w.example, as data smuggled out in names has", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			m := answer(t, w.server(), ask(test.name, test.kind), false)
			var got []string
			for _, rr := range m.Answer {
				got = append(got, rr.String())
			}
			denied := ""
			if len(w.denied) > 0 {
				denied = w.denied[0].Reason
			}
			if m.Rcode != test.code || strings.Join(got, "\n") != test.want || !strings.HasPrefix(ede(m), test.ede) || denied != test.denied || len(w.asked) != test.asked {
				t.Errorf("code %d, answers %q, error %q, denied %+v, asked %v", m.Rcode, got, ede(m), w.denied, w.asked)
			}
			if len(m.Question) != 1 || m.Question[0].Name != mdns.Fqdn(test.name) {
				t.Errorf("the question came back as %v", m.Question)
			}
		})
	}
}

func TestAnswersArePinnedKeptAndAskedForOnce(t *testing.T) {
	w := newWorld()
	s := w.server()
	for range 3 {
		answer(t, s, ask("a.example", mdns.TypeA), false)
		answer(t, s, ask("a.example", mdns.TypeAAAA), true)
	}
	want := map[string]time.Duration{"a.example 192.0.2.1": dns.MinPin, "a.example 2001:db8::1": dns.MinPin}
	if diff := cmp.Diff(want, w.pinned); diff != "" {
		t.Error(diff)
	}
	if len(w.asked) != 1 {
		t.Errorf("asked %v", w.asked)
	}
	w.ttl = 100 * time.Hour
	if m := answer(t, s, ask("b.a.example", mdns.TypeA), false); m.Answer[0].Header().Ttl != 3600 || w.pinned["b.a.example 192.0.2.1"] != time.Hour {
		t.Errorf("%v, pinned %v", m.Answer, w.pinned)
	}
	w.ttl = 0
	if m := answer(t, s, ask("c.a.example", mdns.TypeA), false); m.Answer[0].Header().Ttl != 1 {
		t.Errorf("%v", m.Answer)
	}
	if addrs, err := s.Resolve(context.Background(), "a.example"); err != nil || len(addrs) != 2 {
		t.Errorf("%v, %v", addrs, err)
	}
	if _, err := s.Resolve(context.Background(), "b.example"); rung.KindOf(err) != rung.KindRefused || rung.HintOf(err) != "--allow b.example" {
		t.Errorf("%v", err)
	}
	w.mu.Lock()
	w.budget = w.lookups
	w.mu.Unlock()
	if _, err := s.Resolve(context.Background(), "a.example"); rung.KindOf(err) != rung.KindRefused {
		t.Errorf("past the budget: %v", err)
	}
	if n := len(w.denied); n == 0 || w.denied[n-1].Layer != "budget" {
		t.Errorf("denied %+v", w.denied)
	}
}

func TestManyWhoAskAtOnceAskOnce(t *testing.T) {
	w := newWorld()
	w.hold = make(chan struct{})
	s := w.server()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { answer(t, s, ask("a.example", mdns.TypeA), false) })
	}
	close(w.hold)
	wg.Wait()
	if len(w.asked) != 1 {
		t.Errorf("asked %v", w.asked)
	}
}

func TestNamesBelowAWildcardAreCounted(t *testing.T) {
	w := newWorld()
	s := w.server()
	for i := range dns.MaxWildcardNames {
		if m := answer(t, s, ask(fmt.Sprintf("n%d.w.example", i), mdns.TypeA), false); m.Rcode != 0 {
			t.Fatalf("%d: %v", i, m)
		}
	}
	if m := answer(t, s, ask("one-more.w.example", mdns.TypeA), false); m.Rcode != mdns.RcodeNameError {
		t.Errorf("%v", m)
	}
	if m := answer(t, s, ask("n0.w.example", mdns.TypeA), false); m.Rcode != 0 {
		t.Errorf("a name that was looked up before: %v", m)
	}
	if len(w.asked) != dns.MaxWildcardNames {
		t.Errorf("%d questions upstream", len(w.asked))
	}
}

func TestTheBudget(t *testing.T) {
	w := newWorld()
	w.budget = 1
	s := w.server()
	answer(t, s, ask("a.example", mdns.TypeA), false)
	if m := answer(t, s, ask("a.example", mdns.TypeA), false); m.Rcode != mdns.RcodeRefused || !strings.Contains(ede(m), "budget") {
		t.Errorf("%v", m)
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	change := func(f func(m *mdns.Msg)) *mdns.Msg {
		m := ask("a.example", mdns.TypeA)
		f(m)
		return m
	}
	tests := map[string]struct {
		q    *mdns.Msg
		code int // -1: no answer
	}{
		"an answer":     {change(func(m *mdns.Msg) { m.Response = true }), -1},
		"an update":     {change(func(m *mdns.Msg) { m.Opcode = mdns.OpcodeUpdate }), mdns.RcodeNotImplemented},
		"a notify":      {change(func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }), mdns.RcodeNotImplemented},
		"two questions": {change(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }), mdns.RcodeFormatError},
		"none":          {change(func(m *mdns.Msg) { m.Question = nil }), mdns.RcodeFormatError},
		"answers": {change(func(m *mdns.Msg) {
			m.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: "a.example.", Rrtype: 1, Class: 1}}}
		}), mdns.RcodeFormatError},
		"truncated": {change(func(m *mdns.Msg) { m.Truncated = true }), mdns.RcodeFormatError},
		"another additional": {change(func(m *mdns.Msg) {
			m.Extra = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: "a.example.", Rrtype: 1, Class: 1}}}
		}), mdns.RcodeFormatError},
		"EDNS version": {change(func(m *mdns.Msg) { m.IsEdns0().SetVersion(1) }), mdns.RcodeBadVers},
		"class CH":     {change(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }), mdns.RcodeRefused},
		"class ANY":    {change(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassANY }), mdns.RcodeRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			m := answer(t, w.server(), test.q, false)
			if (m == nil) != (test.code == -1) || (m != nil && m.Rcode != test.code) || len(w.asked) != 0 {
				t.Errorf("%v, asked %v", m, w.asked)
			}
		})
	}
	s := newWorld().server()
	for _, b := range [][]byte{nil, {1, 2, 3}, make([]byte, dns.MaxQuery+1)} {
		if got := s.Answer(context.Background(), b, false); got != nil {
			t.Errorf("%d bytes were answered", len(b))
		}
	}
}

func TestAnswersFitTheClient(t *testing.T) {
	s := dns.New(dns.Config{
		Normal: func(n string) (string, error) { return n, nil },
		Lookup: func(string) dns.Verdict { return dns.Verdict{Allow: true} },
		Judge:  func(string, netip.Addr) error { return nil },
		Pin:    func(string, []netip.Addr, time.Duration) {},
		Spend:  func() error { return nil },
		Resolve: func(context.Context, string) (addrs []netip.Addr, _ time.Duration, _ error) {
			for i := range 100 {
				addrs = append(addrs, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)}))
			}
			return addrs, time.Minute, nil
		},
	})
	for _, test := range []struct {
		edns, size int
		tcp, cut   bool
		n          int
	}{{0, 512, false, true, 17}, {1232, 1232, false, false, 32}, {65535, 4096, false, false, 32}, {1, 512, false, true, 16}, {0, 65535, true, false, 32}} {
		q := new(mdns.Msg)
		q.SetQuestion("a.example.", mdns.TypeAAAA)
		if test.edns > 0 {
			q.SetEdns0(uint16(test.edns), false)
		}
		wire, _ := q.Pack()
		b := s.Answer(context.Background(), wire, test.tcp)
		var m mdns.Msg
		if err := m.Unpack(b); err != nil {
			t.Fatal(err)
		}
		if len(b) > test.size || m.Truncated != test.cut || len(m.Answer) > test.n || len(m.Answer) < test.n-2 {
			t.Errorf("%+v: %d bytes, truncated %v, %d answers", test, len(b), m.Truncated, len(m.Answer))
		}
		if (m.IsEdns0() != nil) != (test.edns > 0) {
			t.Errorf("%+v: EDNS %v", test, m.IsEdns0())
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, kind := range []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeTXT, mdns.TypeHTTPS, mdns.TypeSRV} {
		for _, name := range []string{"a.example", "b.example", "x.w.example", `a\000b\.c.example`} {
			b, err := ask(name, kind).Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, false)
			f.Add(append(b, 0), true)
		}
	}
	f.Fuzz(func(t *testing.T, query []byte, tcp bool) {
		w := newWorld()
		b := w.server().Answer(context.Background(), query, tcp)
		for _, name := range w.asked {
			if name != strings.ToLower(name) || !(strings.HasSuffix(name, "a.example") || strings.HasSuffix(name, ".w.example") || strings.HasSuffix(name, "e.example") || name == "down.example") {
				t.Fatalf("upstream was asked for %q", name)
			}
		}
		if b == nil {
			return
		}
		if len(b) < 12 || (!tcp && len(b) > dns.MaxUDP) || b[2]&0x80 == 0 || b[0] != query[0] || b[1] != query[1] {
			t.Fatalf("answer % x to % x", b, query)
		}
		if err := new(mdns.Msg).Unpack(b); err != nil {
			t.Fatalf("answer % x to % x: %v", b, query, err)
		}
	})
}

func BenchmarkDenied(b *testing.B) {
	w := newWorld()
	w.denied = nil
	s := w.server()
	q, err := ask("b.example", mdns.TypeA).Pack()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Answer(context.Background(), q, false)
		w.denied = w.denied[:0]
	}
}
