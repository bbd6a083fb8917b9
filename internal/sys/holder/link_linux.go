package holder

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// ProxyPort is where a sandbox with a ProxyLink finds the gate's proxy, on 127.0.0.1.
const ProxyPort = 3128

// link makes what the gate reads from in the sandbox's network namespace, which is this process's own, and hands it over.
// The descriptor stays open here as well: when the gate dies the interface is still there, and nobody answers on it.
func (h *held) link() error {
	if h.tap != nil && h.order.Link != TAPLink {
		h.tap.Close() // the interface goes with its last descriptor
		h.tap = nil
	}
	if h.order.Link == NoLink {
		return nil
	}
	if len(h.keep) == 0 || !h.order.Namespaces {
		return rung.Errorf(rung.KindInternal, "holder: no link to the gate came with the order")
	}
	gate := h.keep[len(h.keep)-1]
	kind, f, err := byte(tap.LinkTAP), h.tap, error(nil)
	if f == nil {
		if kind, f, err = h.order.Link.make(); err != nil {
			return err
		}
	}
	h.keep = append(h.keep, f)
	if err := unix.Sendmsg(int(gate.Fd()), []byte{kind}, unix.UnixRights(int(f.Fd())), nil, unix.MSG_NOSIGNAL); err != nil {
		return rung.Errorf(rung.KindUnavailable, "hand the sandbox's network to the gate: %w", err)
	}
	return nil
}

// linkAhead makes the TAP that the client most likely wants while it makes up its mind. What fails here is tried again, and
// told, when it is known to be needed.
func (h *held) linkAhead() {
	if os.Getenv(linkAhead) == "" {
		return
	}
	if _, f, err := TAPLink.make(); err == nil {
		h.tap = f
	} else if f != nil {
		f.Close()
	}
}

func (k LinkKind) make() (kind byte, f *os.File, err error) {
	switch k {
	case TAPLink:
		if f, err = tap.Open(tap.Name); err == nil {
			_, err = tap.Configure(tap.Name)
		}
		return tap.LinkTAP, f, err
	case ProxyLink:
		f, err = proxySocket()
		return tap.LinkListener, f, err
	}
	return 0, nil, rung.Errorf(rung.KindInternal, "holder: no link of kind %q", k)
}

// proxySocket listens on the sandbox's loopback address. A socket belongs to the network namespace it was made in, whoever
// accepts on it.
func proxySocket() (*os.File, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ProxyPort})
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "the gate's proxy inside: %w", err)
	}
	defer l.Close()
	return l.File()
}
