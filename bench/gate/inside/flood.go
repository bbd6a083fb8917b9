package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// flood asks the name server at addr for names that nobody allowed, at a rate, until standard input ends. With addr "self"
// it answers itself, which is what the asking costs where no gate is.
func flood(addr string, rate int, d time.Duration) (numbers, error) {
	if addr == "self" {
		var err error
		if addr, err = respond(); err != nil {
			return nil, err
		}
	}
	c, err := net.Dial("udp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var answered, sent atomic.Int64
	go func() {
		buf := make([]byte, 1500)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			answered.Add(1)
		}
	}()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	fmt.Println("up")
	start := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(d)
	for going := true; going; {
		select {
		case <-tick.C:
			due := int64(time.Since(start).Seconds() * float64(rate))
			for n := sent.Load(); n < due; n = sent.Add(1) {
				if _, err := c.Write(question(n)); err != nil {
					return nil, err
				}
			}
		case <-ended:
			going = false
		case <-limit:
			going = false
		}
	}
	s := time.Since(start).Seconds()
	return numbers{"sent": float64(sent.Load()) / s, "answered": float64(answered.Load()) / s}, nil
}

// question is a query for the address of a name that differs from the last (RFC 1035, section 4.1).
func question(n int64) []byte {
	q := binary.BigEndian.AppendUint16(nil, uint16(n))
	q = append(q, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for _, label := range []string{fmt.Sprintf("n%d", n%1000), "denied", "example"} {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, 1, 0, 1)
}

// respond sends every datagram back.
func respond() (string, error) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = l.WriteTo(buf[:n], from)
		}
	}()
	return l.LocalAddr().String(), nil
}
