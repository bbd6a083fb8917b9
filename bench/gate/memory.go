package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/internal/sys/rights"
	"github.com/rung-dev/rung/internal/sys/tap"
)

// settle is how long a gate gets to become idle before its memory is counted.
const settle = 3 * time.Second

func memoryRuns(w *world) []measurement {
	return []measurement{
		{"deny", func() (map[string]float64, error) { return w.idleSessions(nil) }},
		{"inspect", func() (map[string]float64, error) {
			return w.idleSessions([]rung.EgressRule{{Host: "web.example", Methods: []string{"GET"}}})
		}},
	}
}

// idleSessions opens sessions at a gate of their own, each with its network stack on a link on which nothing moves.
func (w *world) idleSessions(rules []rung.EgressRule) (map[string]float64, error) {
	dir, err := os.MkdirTemp(w.dir, "m")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // sandboxes are below it, as users of their own
		return nil, err
	}
	args := w.rungArgs("hardened", "", nil, []string{"/bin/true"})
	if _, err := w.numbers(append([]string{"env", "RUNG_RUNTIME_DIR=" + dir}, args...)...); err != nil {
		return nil, err
	}
	found, _ := filepath.Glob(filepath.Join(dir, "gate-*.sock")) // the pattern is valid
	if len(found) != 1 {
		return nil, fmt.Errorf("%d gates in %s, not one", len(found), dir)
	}
	socket := found[0]
	pid, err := gatePID(socket)
	if err != nil {
		return nil, err
	}
	time.Sleep(settle)
	before, err := pss(pid)
	if err != nil {
		return nil, err
	}
	var open []interface{ Close() error }
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := range w.idle {
		list, err := openSession(socket, fmt.Sprintf("idle-%d", i), rules)
		open = append(open, list...)
		if err != nil {
			return nil, err
		}
	}
	time.Sleep(settle)
	after, err := pss(pid)
	if err != nil {
		return nil, err
	}
	return map[string]float64{"empty": before, "each": (after - before) / float64(w.idle)}, nil
}

func dial(socket string) (*control.Conn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return control.NewConn(c), nil
}

func gatePID(socket string) (int, error) {
	c, err := dial(socket)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var r control.Reply
	if err := c.Send(control.Request{Ping: true}); err != nil {
		return 0, err
	}
	if _, err := c.Receive(&r); err != nil {
		return 0, err
	}
	if r.Status == nil {
		return 0, errors.New("the gate does not say what it is")
	}
	return r.Status.PID, nil
}

// openSession is what rung and a holder do for a sandbox, without the sandbox. What must stay open is returned.
func openSession(socket, id string, rules []rung.EgressRule) (open []interface{ Close() error }, err error) {
	c, err := dial(socket)
	if err != nil {
		return nil, err
	}
	open = append(open, c)
	err = c.Send(control.Request{Open: &control.Open{Version: control.Version, ID: id, Default: rung.EgressDeny, Rules: rules}})
	if err != nil {
		return open, err
	}
	var r control.Reply
	file, err := c.Receive(&r)
	if err != nil {
		return open, err
	}
	if r.Failed != nil {
		return open, r.Failed.Err()
	}
	if file == nil {
		return open, errors.New("the gate sent no link")
	}
	open = append(open, file)
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return open, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "frames"), os.NewFile(uintptr(pair[1]), "frames")
	open = append(open, ours)
	defer theirs.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return open, err
	}
	open = append(open, conn)
	if err := rights.Send(conn.(*net.UnixConn), []byte{tap.LinkFrames}, theirs); err != nil {
		return open, err
	}
	return open, answers(ours)
}

// answers asks who has the gate's address (RFC 826), so that the session is known to be served.
func answers(f *os.File) error {
	guest, gate := "\x02rung\x02", "\xff\xff\xff\xff\xff\xff"
	arp := "\x00\x01\x08\x00\x06\x04\x00\x01" + guest + "\xc0\x00\x00\x02" + "\x00\x00\x00\x00\x00\x00" + "\xc0\x00\x00\x01"
	frame := gate + guest + "\x08\x06" + arp
	if _, err := f.WriteString("\x00\x00\x00" + string(rune(len(frame))) + frame); err != nil {
		return err
	}
	_, err := io.ReadFull(f, make([]byte, 4+len(frame)))
	return err
}

// pss is a process's proportional set size in MiB.
func pss(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			n, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			return n / 1024, err
		}
	}
	return 0, errors.New("smaps_rollup has no Pss")
}
