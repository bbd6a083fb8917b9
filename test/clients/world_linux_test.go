package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/websocket"
	"golang.org/x/sys/unix"
)

// inWorld is set in the process that has the namespace for itself.
const inWorld = "RUNG_CLIENTS_WORLD"

// The stand-ins' addresses: for documentation (RFC 5737, RFC 3849), and this namespace's own.
const (
	web4 = "203.0.113.10"
	web6 = "2001:db8::10"
	// An address that answers nothing.
	hole6 = "2001:db8:dead::1"
)

// names is what the local name server knows.
func names() map[string][]string {
	return map[string][]string{
		"web.test.":   {"60 A " + web4, "60 AAAA " + web6},
		"other.test.": {"60 A " + web4},
		"six.test.":   {"60 AAAA " + web6},
		// IPv6 in the DNS and nothing behind it, as on many hosts.
		"half.test.":    {"60 A " + web4, "60 AAAA " + hole6},
		"slow.test.":    {"60 A " + web4}, // questions for AAAA get no answer
		"short.test.":   {"1 A " + web4},
		"private.test.": {"60 A 10.0.0.5"},
		"git.test.":     {"60 A " + web4},
		"chain.test.":   {"60 CNAME web.test.", "60 A " + web4},
	}
}

// enter runs the calling test once more in a network namespace of its own.
func enter(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run", only(t), "-test.v", "-test.timeout", "15m")
	cmd.Env = append(os.Environ(), inWorld+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // as it comes: a run that hangs shows where
	if err := cmd.Run(); err != nil {
		t.Fatal("in the namespace: ", err)
	}
}

// world makes the namespace's addresses and servers and returns the environment that rung needs in it.
func world(t *testing.T, dir string) []string {
	t.Helper()
	ip(t, "link set lo up", "addr add "+web4+"/32 dev lo", "addr add "+web6+"/128 dev lo nodad")
	hole(t)
	nameServer(t)
	authority, leaf := certificates(t)
	bundle, conf := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "resolv.conf")
	write := func(name string, data []byte) {
		if err := os.WriteFile(name, data, 0o644); err != nil { //nolint:gosec // the gate's own user reads it
			t.Fatal(err)
		}
	}
	write(bundle, authority)
	write(conf, []byte("nameserver 127.0.0.1\n"))
	webServer(t, leaf, filepath.Join(dir, "git"))
	return []string{"SSL_CERT_FILE=" + bundle, "RUNG_GATE_RESOLV_CONF=" + conf}
}

// hole makes an interface that takes all and answers nothing.
func hole(t *testing.T) {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	request, err := unix.NewIfreq("hole")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	ip(t, "link set hole up", "addr add 2001:db8:dead::ff/64 dev hole nodad")
}

func ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, args := range commands {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
}

func nameServer(t *testing.T) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name, kind := strings.ToLower(q.Question[0].Name), q.Question[0].Qtype
		if name == "slow.test." && kind == dns.TypeAAAA {
			return
		}
		records, known := names()[name]
		if !known {
			m.Rcode = dns.RcodeNameError
		}
		for _, text := range records {
			owner := name
			if strings.Contains(strings.Join(records, ""), "CNAME") && !strings.Contains(text, "CNAME") {
				owner = "web.test."
			}
			rr, err := dns.NewRR(owner + " " + text)
			if err != nil {
				t.Error(err)
				return
			}
			if rr.Header().Rrtype == kind || rr.Header().Rrtype == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		started := make(chan struct{})
		s := &dns.Server{Addr: "127.0.0.1:53", Net: network, Handler: handler, NotifyStartedFunc: func() { close(started) }}
		go func() {
			if err := s.ListenAndServe(); err != nil {
				t.Error(err)
			}
		}()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
}

// certificates makes an authority, and one certificate of it for all names.
func certificates(t *testing.T) (authority []byte, leaf tls.Certificate) {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := func(c, parent *x509.Certificate, public any, k *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, parent, public, k)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	caKey, leafKey := key(), key()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stand-in authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "stand-in"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for name := range names() {
		c.DNSNames = append(c.DNSNames, strings.TrimSuffix(name, "."))
	}
	der := sign(ca, ca, &caKey.PublicKey, caKey)
	leaf = tls.Certificate{Certificate: [][]byte{sign(c, ca, &leafKey.PublicKey, caKey)}, PrivateKey: leafKey}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), leaf
}

type connKey struct{}

// webServer serves HTTPS and HTTP on both addresses.
func webServer(t *testing.T, leaf tls.Certificate, repositories string) {
	t.Helper()
	for _, port := range []uint16{443, 80} {
		s := &http.Server{Handler: handler(repositories), ReadHeaderTimeout: time.Minute, ConnContext: connections()}
		serve := s.Serve
		if port == 443 {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12}
			serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
		}
		for _, a := range []string{web4, web6} {
			l, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(a), port).String())
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = serve(l) }()
		}
		t.Cleanup(func() { _ = s.Close() })
	}
}

// noise is n bytes that are the same each time.
func noise(n int64) io.Reader {
	return io.LimitReader(mathrand.NewChaCha8([32]byte{1}), n)
}

func sum(r io.Reader) string {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%s %d %v", hex.EncodeToString(h.Sum(nil)), n, err)
}

func handler(repositories string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello by", r.Proto, r.Method) })
	mux.HandleFunc("/conn", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Context().Value(connKey{})) })
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		_, _ = io.Copy(w, noise(n))
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, sum(r.Body)) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://other.test/hello", http.StatusFound)
	})
	events(mux)
	mux.Handle("/ws", websocket.Handler(func(c *websocket.Conn) {
		var text string
		for websocket.Message.Receive(c, &text) == nil && websocket.Message.Send(c, text) == nil {
		}
	}))
	mux.Handle("/git/", &cgi.Handler{
		Path: gitBackend(), Root: "/git", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + repositories, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=tester", "GIT_CONFIG_NOSYSTEM=1"},
	})
	return mux
}

// events sends one event, and the second when the first was acknowledged while the answer was still open.
func events(mux *http.ServeMux) {
	seen := make(chan struct{}, 16)
	mux.HandleFunc("/sse/ack", func(http.ResponseWriter, *http.Request) { seen <- struct{}{} })
	mux.HandleFunc("/sse", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-seen:
			fmt.Fprint(w, "data: two\n\n")
		case <-time.After(20 * time.Second):
			fmt.Fprint(w, "data: late\n\n")
		}
	})
}

// gitBackend is git's program for this, beside its others.
func gitBackend() string {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return ""
	}
	return filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
}

var connNumber atomic.Int64

// only is what of the calling test is to run, as its caller chose.
func only(t *testing.T) string {
	t.Helper()
	if _, below, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		return "^" + t.Name() + "$/" + below
	}
	return "^" + t.Name() + "$"
}
