package wire

import "strconv"

// ChunkRoom is how many bytes ChunkStart reserves.
const ChunkRoom = 10

// ChunkStart begins a chunk at the end of dst: the size line is filled in by ChunkEnd. Several envelopes share one chunk,
// and so one write to the connection.
func ChunkStart(dst []byte) []byte { return append(dst, "00000000\r\n"...) }

// ChunkEnd finishes the chunk that begins at from. An empty chunk is taken back, as it would mean the body's end.
func ChunkEnd(dst []byte, from int) []byte {
	n := len(dst) - from - ChunkRoom
	if n == 0 {
		return dst[:from]
	}
	var digits [8]byte
	hex := strconv.AppendUint(digits[:0], uint64(n), 16)
	copy(dst[from+8-len(hex):], hex)
	return append(dst, "\r\n"...)
}

// LastChunk ends a chunked body.
const LastChunk = "0\r\n\r\n"

// AppendChunk appends p as one chunk.
func AppendChunk(dst, p []byte) []byte {
	from := len(dst)
	return ChunkEnd(append(ChunkStart(dst), p...), from)
}
