// Command mitm is the peer of rung's gate in bench/gate.sh: github.com/elazarl/goproxy, which opens every TLS connection,
// set up as fast as its documentation tells: certificates kept, upstream connections kept. It is a module of its own so
// that goproxy never enters rung's.
//
//	mitm DIR ADDR NAME=ADDR    signs with DIR/ca.pem and ca.key, and connects to ADDR for NAME; ends with standard input
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: mitm DIR ADDR NAME=ADDR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "mitm:", err)
		os.Exit(1)
	}
}

// certificates keeps what was signed.
type certificates struct {
	mu   sync.Mutex
	kept map[string]*tls.Certificate
}

// Fetch implements goproxy.CertStorage.
func (c *certificates) Fetch(host string, sign func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.kept[host]; kept != nil {
		return kept, nil
	}
	made, err := sign()
	if err == nil {
		c.kept[host] = made
	}
	return made, err
}

func run(dir, addr, name string) error {
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return errors.New("ca.pem holds no certificate")
	}
	_, to, _ := strings.Cut(name, "=")
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0)
	p.CertStore = &certificates{kept: map[string]*tls.Certificate{}}
	p.Tr = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, to)
		},
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 1024, // the default of 2 would make a handshake of nearly every request
		DisableCompression:  true,
	}
	mitm := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)}
	p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) { return mitm, host })
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: p.Logger.(*log.Logger)}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		s.Close()
	}()
	fmt.Println("up")
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
