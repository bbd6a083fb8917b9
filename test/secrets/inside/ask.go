//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const patience = 20 * time.Second

func failed(err error) result { return result{Err: err.Error()} }

func (s step) http() result {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: s.Two, DisableKeepAlives: true, DisableCompression: true}
	if !s.Two {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	method := s.Method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if s.Body != "" {
		body = strings.NewReader(s.Body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.URL, body)
	if err != nil {
		return failed(err)
	}
	for k, v := range s.Header {
		req.Header.Set(k, expand(v))
	}
	if s.User != "" {
		req.SetBasicAuth(s.User, s.Pass)
	}
	res, err := client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	r := result{Status: res.StatusCode, Proto: res.Proto, Header: res.Header, Body: string(text)}
	for k, v := range res.Trailer {
		r.Header["Trailer:"+k] = v
	}
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// dial opens a connection, by the proxy where there is one.
func dial(host string, port int) (net.Conn, error) {
	to := net.JoinHostPort(host, strconv.Itoa(port))
	proxy := os.Getenv("HTTPS_PROXY")
	if proxy == "" {
		return net.DialTimeout("tcp", to, patience)
	}
	u, err := url.Parse(proxy)
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp", u.Host, patience)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	res, err := http.ReadResponse(bufio.NewReaderSize(one{c}, 16), &http.Request{Method: http.MethodConnect})
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("proxy: %s", res.Status)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// one reads byte by byte, so that nothing of the tunnel is taken.
type one struct{ net.Conn }

func (o one) Read(p []byte) (int, error) { return o.Conn.Read(p[:1]) }

// socket opens a WebSocket and sends Body as a text message.
func (s step) socket() result {
	c, err := dial(s.Host, s.Port)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	t := tls.Client(c, &tls.Config{ServerName: s.Host, NextProtos: []string{"http/1.1"}})
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	fmt.Fprintf(t, "GET /socket HTTP/1.1\r\nHost: %s:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
		s.Host, s.Port, base64.StdEncoding.EncodeToString(key))
	for k, v := range s.Header {
		fmt.Fprintf(t, "%s: %s\r\n", k, expand(v))
	}
	fmt.Fprint(t, "\r\n")
	br := bufio.NewReader(t)
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodGet})
	if err != nil {
		return failed(err)
	}
	r := result{Status: res.StatusCode, Header: res.Header}
	if res.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<16))
		r.Body = string(text)
		return r
	}
	frame := []byte{0x81, 0x80 | 126, byte(len(s.Body) >> 8), byte(len(s.Body)), 1, 2, 3, 4}
	for i := range len(s.Body) {
		frame = append(frame, s.Body[i]^byte(i%4+1))
	}
	if _, err := t.Write(frame); err != nil {
		return failed(err)
	}
	text, err := io.ReadAll(io.LimitReader(br, 1<<16))
	r.Body = string(text)
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// sni opens TLS to a host under another name.
func (s step) sni() result {
	c, err := dial(s.Host, s.Port)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	t := tls.Client(c, &tls.Config{ServerName: s.Name, InsecureSkipVerify: true})
	if err := t.Handshake(); err != nil {
		return failed(err)
	}
	return result{Status: 1}
}

func (s step) lookup() result {
	if os.Getenv("HTTPS_PROXY") != "" {
		c, err := dial(s.Host, 443)
		if err != nil {
			return failed(err)
		}
		c.Close()
		return result{Status: 1}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addrs, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, s.Host)
	if err != nil {
		return failed(err)
	}
	return result{Status: 1, Body: strings.Join(addrs, " ")}
}

// tcp sends bytes and reads what comes.
func (s step) tcp() result {
	c, err := dial(s.Host, s.Port)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, s.Body); err != nil {
		return failed(err)
	}
	text, err := io.ReadAll(io.LimitReader(c, 1<<16))
	r := result{Status: 1, Body: string(text)}
	if err != nil {
		r.Err = err.Error()
	}
	return r
}
