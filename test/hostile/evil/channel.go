//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net"
	"os"
	"time"
)

// channelActs break the control channel itself, before a word of HTTP.
func channelActs() map[string]func(net.Conn) {
	return map[string]func(net.Conn){
		"silence": func(net.Conn) { <-time.After(forever) },
		"exit":    func(net.Conn) { os.Exit(7) },
		"hang-up": func(c net.Conn) { c.Close(); <-time.After(forever) },
		"garbage": func(c net.Conn) {
			b := make([]byte, 64<<10)
			for {
				_, _ = rand.Read(b) // never fails
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		},
		"zeroes": func(c net.Conn) {
			b := make([]byte, 64<<10)
			for {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		},
		"drip": func(c net.Conn) { // a frame header that never gets complete
			for {
				if _, err := c.Write([]byte{0}); err != nil {
					return
				}
				<-time.After(3 * time.Second)
			}
		},
	}
}

// frame is a header of the multiplexer's: version 0, type, flags, connection, length.
func frame(kind byte, flags uint16, id, length uint32) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, id)
	return binary.BigEndian.AppendUint32(b, length)
}

// frameActs write frames that no guest writes, once the client has asked for the measurement.
func frameActs() map[string]func(*channel) {
	flood := func(f []byte) func(*channel) {
		return func(c *channel) {
			many := bytes.Repeat(f, 1+(64<<10)/len(f))
			for {
				if _, err := c.Write(many); err != nil {
					return
				}
			}
		}
	}
	return map[string]func(*channel){
		"frame-opens-connection": flood(frame(1, 1, 2, 0)),
		"frame-pings":            flood(frame(2, 1, 0, 1)),
		"frame-says-goodbye":     flood(frame(3, 0, 0, 0)),
		"frame-of-4-GiB":         flood(frame(0, 0, 1, 0xffffffff)),
		"frame-beyond-window":    flood(append(frame(0, 0, 1, 256<<10), make([]byte, 256<<10)...)),
		"frame-never-opened":     flood(frame(0, 0, 99999, 0)),
		"frame-window-overflow":  flood(frame(1, 0, 1, 0xffffffff)),
		"frame-resets":           flood(frame(1, 8, 1, 0)),
	}
}
