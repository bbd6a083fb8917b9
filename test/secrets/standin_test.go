//go:build linux

package secrets

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// nameServer answers for the names below.
const nameServer = "203.0.113.53"

// names are the hosts there are. h1.example speaks HTTP/1.1 only.
var names = map[string]string{
	"api.example": "203.0.113.10", "h1.example": "203.0.113.11", "other.example": "203.0.113.12", "aws.example": "203.0.113.13",
	"who.example": "203.0.113.14", "raw.example": "203.0.113.15",
}

// seen is a request as a server got it.
type seen struct {
	Host, Proto, Method, Path, Query, Body string
	Header                                 http.Header
}

// outside is everything that the sandbox can or cannot reach.
type outside struct {
	authority []byte // PEM
	mu        sync.Mutex
	got       []seen
	asked     []string // names at the name server
	raw       []string // bytes at raw.example
}

var world = &outside{}

func (o *outside) take() []seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.got
	o.got = nil
	return list
}

func (o *outside) takeRaw() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.raw
	o.raw = nil
	return list
}

// network makes the addresses and starts the servers.
func network() error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, a := range append([]string{nameServer}, values(names)...) {
		if out, err := exec.Command("ip", "addr", "add", a+"/32", "dev", "lo").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if err := world.serveNames(); err != nil {
		return err
	}
	leaf, err := world.certify()
	if err != nil {
		return err
	}
	for name, addr := range names {
		if err := world.serve(name, addr, leaf); err != nil {
			return err
		}
	}
	return nil
}

func values(m map[string]string) (list []string) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

func (o *outside) serveNames() error {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		name := strings.TrimSuffix(strings.ToLower(q.Question[0].Name), ".")
		o.mu.Lock()
		o.asked = append(o.asked, name)
		o.mu.Unlock()
		addr, ok := names[name]
		switch {
		case strings.HasSuffix(name, ".wild.example"):
			addr, ok = names["api.example"], true
		case !ok:
			m.Rcode = dns.RcodeNameError
		}
		if ok && q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
				A:   netip.MustParseAddr(addr).AsSlice(),
			})
		}
		_ = w.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		up := make(chan struct{})
		failed := make(chan error, 1)
		s := &dns.Server{Addr: nameServer + ":53", Net: network, Handler: handler, NotifyStartedFunc: func() { close(up) }}
		go func() { failed <- s.ListenAndServe() }()
		select {
		case <-up:
		case err := <-failed:
			return err
		}
	}
	return nil
}

// certify makes an authority, and one certificate of all names.
func (o *outside) certify() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	o.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "stand-in"}, DNSNames: []string{"*.wild.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for name := range names {
		leaf.DNSNames = append(leaf.DNSNames, name)
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, own.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}, err
}

func (o *outside) serve(name, addr string, leaf tls.Certificate) error {
	quiet := log.New(io.Discard, "", 0)
	for port, secure := range map[string]bool{"443": true, "80": false, "8080": false} {
		l, err := net.Listen("tcp", addr+":"+port)
		if err != nil {
			return err
		}
		s := &http.Server{Handler: o.handler(name), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
		if !secure {
			go func() { _ = s.Serve(l) }()
			continue
		}
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{leaf}}
		if name == "h1.example" {
			s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}
		go func() { _ = s.ServeTLS(l, "", "") }()
	}
	if name != "raw.example" {
		return nil
	}
	l, err := net.Listen("tcp", addr+":7000")
	if err == nil {
		go o.rawServer(l)
	}
	return err
}

// rawServer keeps what it is sent.
func (o *outside) rawServer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			text, _ := io.ReadAll(io.LimitReader(c, 1<<16))
			o.mu.Lock()
			o.raw = append(o.raw, string(text))
			o.mu.Unlock()
		}()
	}
}

// handler notes each request and echoes it as its path says.
func (o *outside) handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		o.mu.Lock()
		o.got = append(o.got, seen{name, r.Proto, r.Method, r.URL.Path, r.URL.RawQuery, string(body), r.Header.Clone()})
		o.mu.Unlock()
		if r.URL.Path == "/socket" {
			o.socket(w, r)
			return
		}
		echo(w, r, credential(r, string(body)), string(body))
	})
}

// credential is what of a request was the secret.
func credential(r *http.Request, body string) string {
	if v := r.Header.Get("X-Api-Key"); v != "" {
		return v
	}
	if _, pass, ok := r.BasicAuth(); ok {
		return pass
	}
	if v, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return v
	}
	if v := r.URL.Query().Get("key"); v != "" {
		return v
	}
	return body
}

// echo tells the client what it sent, in the spelling of the path.
func echo(w http.ResponseWriter, r *http.Request, value, body string) {
	std, link := base64.StdEncoding, base64.RawURLEncoding
	quoted, _ := json.Marshal(value)
	token := strings.TrimPrefix(r.Header.Get("X-Auto"), "Token ")
	switch r.URL.Path {
	case "/headers":
		w.Header().Set("X-Echo", value)
		w.Header().Set("X-Echo-Base64", std.EncodeToString([]byte("ab"+value+"c")))
		w.Header().Set("Set-Cookie", "session="+url.QueryEscape(value)+"; Path=/")
		w.Header().Set("Location", "https://other.example/?key="+url.QueryEscape(value))
		w.WriteHeader(http.StatusFound)
	case "/body":
		for shift := range 3 {
			fmt.Fprintf(w, "%s %s %s %s\n", value, std.EncodeToString([]byte("xyz"[:shift]+value+"!")), link.EncodeToString([]byte("xyz"[:shift]+value)), url.QueryEscape(value))
		}
		fmt.Fprintf(w, "%s %s %s\n", url.PathEscape(value), quoted, strings.ReplaceAll(string(quoted), "/", `\/`))
		for _, c := range []byte(value) {
			fmt.Fprintf(w, `\u%04X`, c)
		}
		for _, c := range []byte(value) {
			fmt.Fprintf(w, `%%%02x`, c)
		}
		_ = r.Header.Write(w)
		fmt.Fprint(w, r.URL.RawQuery, body)
	case "/chunks": // cut at every byte
		for i := range len(value) {
			fmt.Fprint(w, value[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		fmt.Fprint(w, "as if it were compressed")
	case "/encoding": // named after the secret
		w.Header().Set("Content-Encoding", token+value)
		fmt.Fprint(w, "x")
	case "/trailer":
		w.Header().Set("Trailer", "X-Late")
		fmt.Fprint(w, "x")
		w.Header().Set("X-Late", value)
	case "/name": // a header named after it
		w.Header()["X-"+token] = []string{"x"}
		w.Header()[token] = []string{"x"}
	case "/early":
		w.Header().Set("Link", "<"+value+">")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "x")
	case "/malformed":
		garbage(w, "HTTP/1.1 "+token+" "+value+"\r\n\r\n")
	case "/status":
		garbage(w, "HTTP/1.1 200 "+value+"\r\nContent-Length: 1\r\n\r\nx")
	case "/field":
		garbage(w, "HTTP/1.1 200 OK\r\n"+token+" "+value+"\r\n\r\n")
	case "/length":
		garbage(w, "HTTP/1.1 200 OK\r\nContent-Length: "+token+value+"\r\n\r\n")
	default:
		fmt.Fprint(w, "ok")
	}
}

// garbage answers with bytes of its own, on HTTP/1.1.
func garbage(w http.ResponseWriter, text string) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fmt.Fprint(w, "no HTTP/1.1") // HTTP/2 has no such shapes
		return
	}
	defer c.Close()
	_, _ = rw.WriteString(text)
	_ = rw.Flush()
}

// socket accepts an upgrade, tells what of the request was the secret, and keeps one message.
func (o *outside) socket(w http.ResponseWriter, r *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	value := credential(r, "none")
	_, _ = rw.Write(append([]byte{0x81, byte(len(value))}, value...))
	_ = rw.Flush()
	text, _ := io.ReadAll(io.LimitReader(bufio.NewReader(rw), 1<<16))
	for i := 8; i < len(text); i++ { // the mask of the program inside
		text[i] ^= byte((i-8)%4 + 1)
	}
	o.mu.Lock()
	o.raw = append(o.raw, string(text))
	o.mu.Unlock()
}
