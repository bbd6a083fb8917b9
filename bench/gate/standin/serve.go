package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const (
	chunk    = 128 << 10
	maxBulk  = time.Minute
	itemSize = 1 << 10
)

// afterHello skips the TLS record that a client begins with.
func afterHello(c net.Conn) {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[3:]))); err != nil {
		return
	}
	bulk(c)
}

// bulk does what one byte and a time in milliseconds say: u takes bytes and tells how many came, d sends.
func bulk(c net.Conn) {
	var head [5]byte
	_ = c.SetDeadline(time.Now().Add(maxBulk))
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	end := time.Now().Add(time.Duration(binary.BigEndian.Uint32(head[1:])) * time.Millisecond)
	buf := make([]byte, chunk)
	if head[0] == 'd' {
		for time.Now().Before(end) {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
		return
	}
	var total uint64
	for {
		n, err := c.Read(buf)
		total += uint64(n)
		if err != nil {
			break
		}
	}
	_, _ = c.Write(binary.BigEndian.AppendUint64(nil, total))
}

// items answers every request of a kept HTTP/1.1 connection with the same kilobyte. It does the least that a server can, so
// that it is the least part of what is measured.
func items(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(maxBulk))
	body := `{"items":"` + strings.Repeat("x", itemSize-12) + `"}`
	text := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	r := bufio.NewReaderSize(c, 8<<10)
	for {
		for { // requests have no body here
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) <= 2 {
				break
			}
		}
		if _, err := c.Write(text); err != nil {
			return
		}
	}
}
