// Package authority is the certificate authority of one sandbox: its certificate lies in that sandbox's trust stores and
// nowhere else, and it signs the certificates with which the gate opens TLS to the hosts whose requests a rule judges.
// The keys are made here, stay in this process's memory and end with the sandbox.
package authority

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/hello"
)

const (
	// skew is how far a sandbox's clock may be behind.
	skew = 5 * time.Minute
	// life is how long the authority signs. A sandbox does not live longer.
	life = 48 * time.Hour
	// maxLeaves caps the cached certificates; the least recently used one is dropped, and made again when asked for.
	maxLeaves = 256
	// maxCommonName is ub-common-name of RFC 5280 A.1.
	maxCommonName = 64
)

// CA signs for one sandbox. It is safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	pem  []byte

	mu     sync.Mutex
	key    *ecdsa.PrivateKey // nil once closed
	leaves map[string]*list.Element
	recent *list.List // of *leaf, the most recent first
}

// leaf is made once; whoever asks meanwhile waits for it.
type leaf struct {
	name string
	once sync.Once
	cert *tls.Certificate
	err  error
}

// New makes an authority for the sandbox of that id.
func New(sandbox string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "make the authority's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: shorten("rung sandbox " + sandbox)},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // it signs leaves only
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "read the authority's certificate: %w", err)
	}
	return &CA{
		cert: cert, key: key, leaves: map[string]*list.Element{}, recent: list.New(),
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// PEM returns the certificate for the sandbox's trust stores.
func (c *CA) PEM() []byte { return append([]byte(nil), c.pem...) }

// Certificate returns the authority's own certificate.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// Leaf returns a certificate for exactly that name, in any case. The name is judged by the caller.
func (c *CA) Leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(name)
	if !hello.ValidName(name) {
		return nil, rung.Errorf(rung.KindInvalid, "no certificate for %.64q: it is not a host name", name)
	}
	l, key, err := c.find(name)
	if err != nil {
		return nil, err
	}
	l.once.Do(func() { l.cert, l.err = c.sign(name, key) })
	if l.err != nil {
		c.forget(l)
	}
	return l.cert, l.err
}

// Close forgets the key and all certificates. Go cannot promise that no copy of the key is left in freed memory.
func (c *CA) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key = nil
	clear(c.leaves)
	c.recent.Init()
}

// find returns the name's entry, new or not, as the most recent one.
func (c *CA) find(name string) (*leaf, *ecdsa.PrivateKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == nil || time.Now().After(c.cert.NotAfter) {
		return nil, nil, rung.Errorf(rung.KindConflict, "the sandbox's certificate authority has ended")
	}
	if e, ok := c.leaves[name]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*leaf), c.key, nil
	}
	l := &leaf{name: name}
	c.leaves[name] = c.recent.PushFront(l)
	if c.recent.Len() > maxLeaves {
		oldest := c.recent.Remove(c.recent.Back()).(*leaf)
		delete(c.leaves, oldest.name)
	}
	return l, c.key, nil
}

// forget drops an entry that failed, so that the next caller tries again.
func (c *CA) forget(l *leaf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.leaves[l.name]; ok && e.Value == l {
		c.recent.Remove(e)
		delete(c.leaves, l.name)
	}
}

func (c *CA) sign(name string, signer *ecdsa.PrivateKey) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "make the key for %s: %w", name, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: shorten(name)},
		NotBefore:             c.cert.NotBefore,
		NotAfter:              c.cert.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), signer)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "sign the certificate for %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "read the certificate for %s: %w", name, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}, nil
}

// newSerial is a random positive number of at most 20 octets: RFC 5280 4.1.2.2.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "make a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func shorten(name string) string { return name[:min(len(name), maxCommonName)] }
