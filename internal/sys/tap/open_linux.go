package tap

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
)

// device is the one that makes TUN and TAP interfaces (Documentation/networking/tuntap.rst).
const device = "/dev/net/tun"

// Open makes a TAP interface of that name in the calling thread's network namespace and returns its descriptor: each read
// and write is one Ethernet frame. The descriptor is non-blocking and closed on exec. The interface is down, and gone
// when the last descriptor is closed.
func Open(name string) (*os.File, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unavailable(err)
	}
	if err := attach(fd, name); err != nil {
		_ = unix.Close(fd) // nothing was made
		return nil, err
	}
	return os.NewFile(uintptr(fd), device), nil
}

// Usable says whether this process may open the device at all: nil, or why not and what would help. Making an interface
// in a network namespace also takes CAP_NET_ADMIN over it.
func Usable() error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return unavailable(err)
	}
	_ = unix.Close(fd) // was only opened to see whether it can be
	return nil
}

func attach(fd int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return rung.Errorf(rung.KindInvalid, "interface name %q: %w", name, err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return rung.Errorf(rung.KindUnavailable, "make TAP interface %q: %w", name, err).
			WithHint("making a network interface takes CAP_NET_ADMIN in its network namespace; --egress none needs none")
	}
	return nil
}

func unavailable(err error) error {
	e := rung.Errorf(rung.KindUnavailable, "open %s: %w", device, err)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return e.WithHint("let this user read and write " + device + " (distributions do: mode 0666), or use --egress none")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return e.WithHint("load the kernel's tun module (modprobe tun), or use --egress none")
	default:
		return e
	}
}
