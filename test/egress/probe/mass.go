//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/internal/sys/tap"
	"github.com/rung-dev/rung/test/egress/order"
)

// scan connects to every port up to Count of an address, and some above, and says which answer.
func (p *probe) scan(c order.Case) (string, error) {
	ports := []int{}
	for n := 1; n <= c.Count; n++ {
		ports = append(ports, n)
	}
	ports = append(ports, 1080, 2375, 3128, 5432, 6443, 8080, 8099, 8443, 9090, 10250, 50051, 65535)
	var mu sync.Mutex
	var open []string
	slots := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for _, port := range ports {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.Host, strconv.Itoa(port)), time.Second)
			if err != nil {
				return
			}
			conn.Close()
			mu.Lock()
			defer mu.Unlock()
			open = append(open, strconv.Itoa(port))
		})
	}
	wg.Wait()
	return "open: " + strings.Join(open, " "), nil
}

// unix connects to a socket in the file system.
func (p *probe) unix(c order.Case) (string, error) { return local("unix", c) }

func (p *probe) unixgram(c order.Case) (string, error) { return local("unixgram", c) }

func local(network string, c order.Case) (string, error) {
	path := c.Host
	if list, err := filepath.Glob(path); err == nil && len(list) > 0 {
		path = list[0]
	}
	conn, err := net.DialTimeout(network, path, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	got, err := exchange(conn, orToken(c), 300*time.Millisecond)
	return "connected " + got, err
}

// env shows a variable.
func (p *probe) env(c order.Case) (string, error) { return os.Getenv(c.Host), nil }

// late leaves a process behind that dials on when this one has ended.
func (p *probe) late(c order.Case) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	a := c.Host
	if _, err := netip.ParseAddr(a); err != nil {
		list, err := p.resolve(a)
		if err != nil {
			return "", err
		}
		a = list[0].String()
	}
	cmd := exec.Command(self, "late", net.JoinHostPort(a, strconv.Itoa(c.Port)), c.Token) //nolint:noctx // it is meant to stay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return "left", cmd.Start()
}

// many holds connections open and says how many live at the same time.
func (p *probe) many(c order.Case) (string, error) {
	var mu sync.Mutex
	var open []net.Conn
	var last error
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for range c.Count {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			conn, err := p.connect(c.Host, c.Port, 2*refusal)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				last = err
				return
			}
			open = append(open, conn)
		})
	}
	wg.Wait()
	alive := 0
	for _, conn := range open { // one that is over the budget is reset
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, err := conn.Write([]byte("G"))
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			alive++
		} else {
			last = err
		}
	}
	for _, conn := range open {
		conn.Close()
	}
	return fmt.Sprintf("alive %d of %d; last: %v", alive, c.Count, last), nil
}

// bytes sends Count bytes.
func (p *probe) bytes(c order.Case) (string, error) {
	conn, err := p.connect(c.Host, c.Port, 2*refusal)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	sent, block := 0, make([]byte, 16<<10)
	copy(block, c.Token)
	for sent < c.Count {
		n, err := conn.Write(block)
		sent += n
		if err != nil {
			return fmt.Sprintf("sent %d", sent), err
		}
	}
	return fmt.Sprintf("sent %d", sent), nil
}

// header sends a header without an end, Count megabytes at most.
func (p *probe) header(c order.Case) (string, error) {
	conn, err := p.connect(c.Host, c.Port, 2*refusal)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	sent, block := 0, []byte("X-"+c.Token+": "+strings.Repeat("a", 8<<10)+"\r\n")
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: " + c.Host + "\r\n"))
	for err == nil && sent < c.Count<<20 {
		n := 0
		n, err = conn.Write(block)
		sent += n
	}
	return fmt.Sprintf("sent %d", sent), err
}

// slow holds Count connections whose requests come a byte at a time, and asks for something else meanwhile.
func (p *probe) slow(c order.Case) (string, error) {
	var held []net.Conn
	for range c.Count {
		conn, err := p.connect(c.Host, c.Port, 2*refusal)
		if err != nil {
			break
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: " + c.Host + "\r\nX-A: ")) // a refused one counts as held too
		held = append(held, conn)
	}
	for range 5 {
		for _, conn := range held {
			_, _ = conn.Write([]byte("a"))
		}
	}
	got, err := p.stream(order.Case{Token: c.Token, Host: c.Host, Port: c.Port, Send: c.Send})
	return fmt.Sprintf("held %d; then %s", len(held), got), err
}

// syns opens Count connections without finishing one: by frames of its own, or as fast as connect goes.
func (p *probe) syns(c order.Case) (string, error) {
	if link, err := net.InterfaceByName(tap.Name); err == nil {
		if fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err == nil {
			defer unix.Close(fd)
			for n := range c.Count {
				f := frames(&order.Frame{Dst: c.Host, Kind: "syn", Port: 1 + n%60000}, "")[0]
				if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}); err != nil && !errors.Is(err, unix.ENOBUFS) {
					return fmt.Sprintf("sent %d", n), err
				}
			}
			return "flooded by frames", nil
		}
	}
	a, err := netip.ParseAddr(c.Host)
	if err != nil {
		return "", err
	}
	to := a.As4()
	for n := range min(c.Count, 2000) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Sprintf("connected %d", n), err
		}
		_ = unix.Connect(fd, &unix.SockaddrInet4{Addr: to, Port: 1 + n}) // in progress, or refused
		unix.Close(fd)
	}
	return "flooded by connects", nil
}

// until asks Host and waits for its answer, which comes when the test wants it to.
func (p *probe) until(c order.Case) (string, error) {
	c.Send = []byte("GET /hold-" + c.Token + " HTTP/1.1\r\nHost: " + c.Host + "\r\n\r\n")
	return p.stream(c)
}

// again dials Host until that works.
func (p *probe) again(c order.Case) (string, error) {
	deadline := time.Now().Add(wait(c, 20*time.Second))
	var last error
	for time.Now().Before(deadline) {
		conn, err := p.connect(c.Host, c.Port, 2*time.Second)
		var got string
		if err == nil {
			got, err = exchange(conn, orToken(c), time.Second)
			conn.Close()
		}
		if strings.Contains(got, "canary") {
			return got, nil
		}
		last = err
	}
	return "", last
}

// once dials Host until that fails, and says so: what the test waited for has happened.
func (p *probe) once(c order.Case) (string, error) {
	deadline := time.Now().Add(wait(c, 10*time.Second))
	for n := 0; time.Now().Before(deadline); n++ {
		conn, err := p.connect(c.Host, c.Port, 2*time.Second)
		var got string
		if err == nil {
			got, err = exchange(conn, orToken(c), time.Second)
			conn.Close()
		}
		if err != nil || !strings.Contains(got, "canary") {
			return fmt.Sprintf("failed after %d: %v %.80q", n, err, got), nil
		}
	}
	return "never failed", nil
}
