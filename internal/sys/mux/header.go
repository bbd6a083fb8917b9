package mux

import "encoding/binary"

// The yamux frame header: version, type, flags (16 bit), stream (32), length (32), all big-endian.
const headerSize = 12

type header [headerSize]byte

const (
	typeData   = 0
	typeWindow = 1

	flagACK = 2
	flagFIN = 4
	flagRST = 8
)

func (h header) kind() byte     { return h[1] }
func (h header) flags() uint16  { return binary.BigEndian.Uint16(h[2:]) }
func (h header) stream() uint32 { return binary.BigEndian.Uint32(h[4:]) }
func (h header) length() uint32 { return binary.BigEndian.Uint32(h[8:]) }

// body is how many bytes follow the header.
func (h header) body() int {
	if h.kind() != typeData {
		return 0
	}
	return int(h.length())
}
