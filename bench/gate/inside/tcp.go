package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	chunk       = 128 << 10
)

// bulk moves bytes for so long and counts them where they arrive: of an upload the server tells how many came.
func bulk(direction, addr string, d time.Duration, hello string) (numbers, error) {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(d + 20*time.Second))
	head := clientHello(hello)
	head = append(head, direction[0])
	head = binary.BigEndian.AppendUint32(head, uint32(d.Milliseconds()))
	start := time.Now()
	if _, err := c.Write(head); err != nil {
		return nil, err
	}
	var total uint64
	switch direction {
	case "down":
		buf := make([]byte, chunk)
		for err == nil {
			var n int
			n, err = c.Read(buf)
			total += uint64(n)
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
	case "up":
		if total, err = send(c, start.Add(d)); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("bulk: up or down")
	}
	return numbers{"gbit": float64(total) * 8 / time.Since(start).Seconds() / 1e9}, nil
}

func send(c net.Conn, until time.Time) (uint64, error) {
	buf := make([]byte, chunk)
	for time.Now().Before(until) {
		if _, err := c.Write(buf); err != nil {
			return 0, err
		}
	}
	half, ok := c.(*net.TCPConn)
	if !ok {
		return 0, errors.New("not TCP")
	}
	if err := half.CloseWrite(); err != nil {
		return 0, err
	}
	var answer [8]byte
	_, err := io.ReadFull(c, answer[:])
	return binary.BigEndian.Uint64(answer[:]), err
}

// clientHello is what a TLS client sends first, so that a relay that reads it reads a true one. What follows is not TLS: the
// relay is measured, and not how fast the two ends encrypt.
func clientHello(name string) []byte {
	if name == "" {
		return nil
	}
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		_ = tls.Client(a, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}).HandshakeContext(context.Background())
		a.Close()
	}()
	var head [5]byte
	if _, err := io.ReadFull(b, head[:]); err != nil {
		return nil
	}
	record := make([]byte, 5+int(binary.BigEndian.Uint16(head[3:])))
	copy(record, head[:])
	if _, err := io.ReadFull(b, record[5:]); err != nil {
		return nil
	}
	return record
}

// connect times a new connection until its first byte is back.
func connect(addr string, n int) (numbers, error) {
	list := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		c, err := net.DialTimeout("tcp", addr, dialTimeout)
		if err != nil {
			return nil, err
		}
		_ = c.SetDeadline(start.Add(dialTimeout))
		b := [1]byte{'x'}
		if _, err = c.Write(b[:]); err == nil {
			_, err = io.ReadFull(c, b[:])
		}
		list = append(list, time.Since(start))
		c.Close()
		if err != nil {
			return nil, err
		}
	}
	return latencies(list), nil
}
