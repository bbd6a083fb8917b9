package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// load is what web is told.
type load struct {
	addr, name, proxy string
	conns, rate       int
	d                 time.Duration
}

// web sends requests on kept HTTP/1.1 connections, as fast as answers come or at a rate over all connections together. The
// time of a request that had to wait for the one before it counts from when it was due.
func web(args []string) (numbers, error) {
	var l load
	f := flag.NewFlagSet("web", flag.ContinueOnError)
	f.StringVar(&l.addr, "addr", "", "HOST:PORT to connect to")
	f.StringVar(&l.name, "name", "", "name of the server")
	f.StringVar(&l.proxy, "proxy", "", "HTTP proxy to ask for the connection")
	f.IntVar(&l.conns, "conns", 1, "connections")
	f.IntVar(&l.rate, "rate", 0, "requests per second; 0: as fast as possible")
	f.DurationVar(&l.d, "for", time.Second, "how long")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	conns, err := l.open()
	if err != nil {
		return nil, err
	}
	results := make([][]time.Duration, l.conns)
	failures := make([]error, l.conns)
	var wait sync.WaitGroup
	start := time.Now()
	for i, c := range conns {
		wait.Go(func() {
			defer c.Close()
			results[i], failures[i] = l.requests(c, start, i)
		})
	}
	wait.Wait()
	took := time.Since(start).Seconds()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	var all []time.Duration
	for _, list := range results {
		all = append(all, list...)
	}
	n := latencies(all)
	n["rps"] = float64(len(all)) / took
	return n, nil
}

// open makes all connections first, a few at once: handshakes are not what is measured.
func (l *load) open() ([]net.Conn, error) {
	list := make([]net.Conn, l.conns)
	failures := make([]error, l.conns)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range l.conns {
		wait.Go(func() {
			slots <- struct{}{}
			list[i], failures[i] = l.dial()
			<-slots
		})
	}
	wait.Wait()
	return list, errors.Join(failures...)
}

func (l *load) dial() (net.Conn, error) {
	to := l.addr
	if l.proxy != "" {
		to = l.proxy
	}
	c, err := net.DialTimeout("tcp", to, dialTimeout)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(l.d + 30*time.Second))
	if l.proxy != "" {
		if _, err := fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", l.name, l.name); err != nil {
			return nil, err
		}
		if err := answer(bufio.NewReaderSize(c, 1024), true); err != nil { // nothing follows before we speak
			return nil, fmt.Errorf("CONNECT: %w", err)
		}
	}
	t := tls.Client(c, &tls.Config{ServerName: l.name, MinVersion: tls.VersionTLS12})
	if err := t.HandshakeContext(context.Background()); err != nil {
		return nil, err
	}
	return t, l.one(t, bufio.NewReader(t)) // upstream stands after it
}

func (l *load) one(c net.Conn, r *bufio.Reader) error {
	if _, err := c.Write(l.request()); err != nil {
		return err
	}
	return answer(r, false)
}

func (l *load) request() []byte {
	return []byte("GET /v1/items/42 HTTP/1.1\r\nHost: " + l.name + "\r\nUser-Agent: inside/1\r\nAccept: application/json\r\n\r\n")
}

func (l *load) requests(c net.Conn, start time.Time, i int) ([]time.Duration, error) {
	r := bufio.NewReaderSize(c, 8<<10)
	text := l.request()
	list := make([]time.Duration, 0, 1<<12)
	end := start.Add(l.d)
	gap := time.Duration(0)
	due := start
	if l.rate > 0 {
		gap = time.Second * time.Duration(l.conns) / time.Duration(l.rate)
		due = start.Add(gap * time.Duration(i) / time.Duration(l.conns))
	}
	for {
		from := time.Now()
		if gap > 0 {
			if wait := due.Sub(from); wait > 0 {
				time.Sleep(wait)
				from = time.Now()
			} else {
				from = due
			}
			due = due.Add(gap)
		}
		if !time.Now().Before(end) {
			return list, nil
		}
		if _, err := c.Write(text); err != nil {
			return nil, err
		}
		if err := answer(r, false); err != nil {
			return nil, err
		}
		list = append(list, time.Since(from))
	}
}

// answer reads one response of status 200. It is a tenth of what net/http does, so that the client is the least part of what
// is measured.
func answer(r *bufio.Reader, headOnly bool) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) && !bytes.HasPrefix(line, []byte("HTTP/1.0 200")) {
		return fmt.Errorf("answer %q", line)
	}
	size, chunked := 0, false
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if headOnly {
		return nil
	}
	if !chunked {
		_, err = r.Discard(size)
		return err
	}
	return chunks(r)
}

func chunks(r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return err
		}
		if _, err := r.Discard(int(size) + 2); err != nil { // and CR LF; no trailers come here
			return err
		}
		if size == 0 {
			return nil
		}
	}
}
