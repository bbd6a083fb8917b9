package web

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 4.2.2 wants it; nothing rests on it
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/secret"
)

// socket is a client's connection that asked to become a WebSocket.
type socket struct {
	conn   net.Conn
	br     *bufio.Reader
	header http.Header // as the client sent it
	writer *writer
	taken  bool // it has become one
}

// guid is the one of RFC 6455 1.3.
const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// handshake makes out the request for an upgrade, without extensions: RFC 6455 4.1.
func (k *socket) handshake(out *http.Request) error {
	key, err := base64.StdEncoding.DecodeString(k.key())
	if err != nil || len(key) != 16 || k.header.Get("Sec-Websocket-Version") != "13" {
		return rung.Errorf(rung.KindRefused, "the upgrade to websocket has no proper Sec-WebSocket-Key and version 13")
	}
	out.Header.Del("Sec-Websocket-Extensions")
	out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	out.Header["Sec-Websocket-Key"], out.Header["Sec-Websocket-Version"] = []string{k.key()}, []string{"13"}
	return nil
}

func (k *socket) key() string { return k.header.Get("Sec-Websocket-Key") }

// accepts checks the server's half: RFC 6455 4.2.2.
func (k *socket) accepts(res *http.Response) bool {
	sum := sha1.Sum([]byte(k.key() + guid)) //nolint:gosec // see above
	return res.Header.Get("Sec-Websocket-Accept") == base64.StdEncoding.EncodeToString(sum[:]) &&
		strings.EqualFold(res.Header.Get("Upgrade"), "websocket") && len(res.Header["Sec-Websocket-Extensions"]) == 0
}

// relay answers 101 and passes frames both ways until one side ends.
func (k *socket) relay(s *server, w http.ResponseWriter, res *http.Response, rule string, masks bool) error {
	up, ok := res.Body.(io.ReadWriteCloser)
	if !ok || !k.accepts(res) {
		s.deny(w, "", refusal{status: http.StatusBadGateway, code: "upstream-websocket", failed: true, NetDenial: rung.NetDenial{
			Request: "GET websocket", Reason: "the server's answer to the upgrade is not the one RFC 6455 asks for",
		}})
		return nil
	}
	answerFields(w.Header(), res.Header)
	w.Header()["Upgrade"] = []string{"websocket"}
	w.WriteHeader(http.StatusSwitchingProtocols)
	k.taken = true
	if err := k.writer.FlushError(); err != nil {
		return err
	}
	_ = k.conn.SetReadDeadline(time.Time{}) // the timer below bounds it
	idle := time.AfterFunc(upstreamIdle, func() { k.shut(up) })
	defer idle.Stop()
	target := secret.Target{Host: s.Name, TLS: s.TLS}
	data, control := s.Secrets.Scan(target, "a websocket message"), s.Secrets.Scan(target, "a websocket control frame")
	out := &frames{from: k.br, to: up, masked: true, idle: idle, look: func(b []byte, isControl bool) error {
		scanner := data
		if isControl {
			scanner = control
		}
		_, err := scanner.Write(b)
		return err
	}}
	in := &frames{from: bufio.NewReaderSize(up, 4<<10), to: impatient{k.conn}, idle: idle}
	if masks {
		in.blank = s.Secrets.Blank
	}
	ends := make(chan error, 2)
	go func() { ends <- out.run() }()
	go func() { ends <- in.run() }()
	first := <-ends
	k.shut(up)
	second := <-ends
	for _, err := range []error{first, second} {
		if secret.IsRefused(err) {
			r := &request{method: http.MethodGet, path: res.Request.URL.Path}
			s.Sink.Denied(s.leaks(r, rule, err).denial(s))
			return err
		}
	}
	return quiet(first)
}

func (k *socket) shut(up io.Closer) {
	_, _ = k.conn.Close(), up.Close() // the copying goroutines see it
}

// impatient gives each write its time.
type impatient struct{ net.Conn }

func (c impatient) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(clientIdle)) // fails on a closed connection, as the write will
	return c.Conn.Write(b)
}

const (
	// blankStep is how much of a frame is passed on once twice as much is there: no spelling of a value is as long.
	blankStep = 64 << 10
)

// frames passes one direction's frames on: RFC 6455 5.2.
type frames struct {
	from   *bufio.Reader
	to     io.Writer
	masked bool // by the client, who has to
	idle   *time.Timer
	look   func(b []byte, control bool) error // sees payloads, unmasked
	blank  func(b []byte) error               // changes payloads in place
}

// frame is one frame's head.
type frame struct {
	raw     []byte // as it came
	control bool
	length  uint64
	mask    []byte
}

func (f *frames) run() error {
	for {
		head, err := f.head()
		if err != nil {
			return err
		}
		if _, err := f.to.Write(head.raw); err != nil {
			return err
		}
		if err := f.payload(head); err != nil {
			return err
		}
	}
}

// head reads a frame's head and refuses what only an extension could mean.
func (f *frames) head() (frame, error) {
	raw := make([]byte, 2, 14)
	if _, err := io.ReadFull(f.from, raw); err != nil {
		return frame{}, err
	}
	f.idle.Reset(upstreamIdle)
	opcode, final := raw[0]&0xf, raw[0]&0x80 != 0
	h := frame{control: opcode >= 8, length: uint64(raw[1] & 0x7f)}
	extra := 0
	switch h.length {
	case 126:
		extra = 2
	case 127:
		extra = 8
	}
	if f.masked {
		extra += 4
	}
	switch {
	case raw[0]&0x70 != 0, opcode > 2 && opcode < 8, opcode > 10:
		return frame{}, rung.Errorf(rung.KindInvalid, "a websocket frame begins with %#02x", raw[0])
	case f.masked != (raw[1]&0x80 != 0):
		return frame{}, rung.Errorf(rung.KindInvalid, "a websocket frame is masked by the wrong side")
	case h.control && (!final || h.length > 125):
		return frame{}, rung.Errorf(rung.KindInvalid, "a websocket control frame is fragmented or too long")
	}
	h.raw = raw[:2+extra]
	if _, err := io.ReadFull(f.from, h.raw[2:]); err != nil {
		return frame{}, err
	}
	switch h.length {
	case 126:
		h.length = uint64(binary.BigEndian.Uint16(h.raw[2:]))
	case 127:
		h.length = binary.BigEndian.Uint64(h.raw[2:])
	}
	if h.length>>63 != 0 {
		return frame{}, rung.Errorf(rung.KindInvalid, "a websocket frame of %d bytes", h.length)
	}
	if f.masked {
		h.mask = h.raw[len(h.raw)-4:]
	}
	return h, nil
}

// payload moves a frame's content.
func (f *frames) payload(h frame) error {
	if f.blank != nil {
		return f.blanked(h)
	}
	var plain []byte
	buf := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buf)
	for at := uint64(0); at < h.length; {
		n, err := f.from.Read(buf[:min(pieceSize, h.length-at)])
		if err != nil {
			return err
		}
		f.idle.Reset(upstreamIdle)
		piece := buf[:n]
		if f.look != nil {
			plain = append(plain[:0], piece...)
			for i := range plain {
				plain[i] ^= h.mask[(at+uint64(i))%4]
			}
			if err := f.look(plain, h.control); err != nil {
				return err
			}
		}
		if _, err := f.to.Write(piece); err != nil {
			return err
		}
		at += uint64(n)
	}
	return nil
}

// blanked moves a frame's content with a window large enough to see each value whole.
func (f *frames) blanked(h frame) error {
	var window []byte
	for left := h.length; left > 0 || len(window) > 0; {
		if take := min(left, uint64(2*blankStep-len(window))); take > 0 {
			at := len(window)
			window = append(window, make([]byte, take)...)
			if _, err := io.ReadFull(f.from, window[at:]); err != nil {
				return err
			}
			left -= take
			f.idle.Reset(upstreamIdle)
		}
		if err := f.blank(window); err != nil {
			return err
		}
		out := len(window)
		if left > 0 {
			out = blankStep
		}
		if _, err := f.to.Write(window[:out]); err != nil {
			return err
		}
		window = append(window[:0], window[out:]...)
	}
	return nil
}
