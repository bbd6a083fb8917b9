package egress

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
)

// pair is a connected socket as to the gate.
func pair(t *testing.T) *control.Conn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	f := os.NewFile(uintptr(fds[0]), "gate")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return control.NewConn(c.(*net.UnixConn))
}

// TestBrokersAnswers: what a broker says of a failed lease keeps its kind and hint, nonsense is rung's own failure, and one
// that hangs, with a child that holds its output, ends with the context.
func TestBrokersAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		script     string
		kind       rung.Kind
		says, hint string
	}{
		"lent":      {`echo '{"lease":"l1","secrets":[{"name":"A","placeholder":"p"}]}'`, "", "", ""},
		"failed":    {`echo '{"failed":{"kind":"not_found","msg":"no secret A","hint":"rung secret add A"}}'; exit 125`, rung.KindNotFound, "no secret A", "rung secret add A"},
		"silent":    {`exit 3`, rung.KindInternal, "exit status 3", ""},
		"nonsense":  {`echo hello`, rung.KindInternal, "lease", ""},
		"endless":   {`while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done`, rung.KindTimeout, "in time", "rung secret check tells which source is slow"},
		"hanging":   {`sleep 100 & exec sleep 100`, rung.KindTimeout, "in time", "rung secret check tells which source is slow"},
		"unclean":   {`[ -z "$GODEBUG$GOTRACEBACK" ] && [ "$RUNG_STATE_DIR" = /state ] && echo '{"lease":"l1"}'`, "", "", ""},
		"no socket": {`[ -S /proc/self/fd/3 ] && echo '{"lease":"l1"}'`, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "rung-broker"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			t.Setenv("GODEBUG", "x=y")
			t.Setenv("GOTRACEBACK", "crash")
			t.Setenv("RUNG_STATE_DIR", "/elsewhere")
			limit := 30 * time.Second
			if c.kind == rung.KindTimeout {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			conn := pair(t)
			begin := time.Now()
			_, err := runBroker(ctx, Host{StateDir: "/state", RuntimeDir: "/run"}, conn, leaseOrder{})
			if rung.KindOf(err) != c.kind && !(c.kind == "" && err == nil) || err != nil && !strings.Contains(err.Error(), c.says) || rung.HintOf(err) != c.hint {
				t.Errorf("%v (%s, %s)", err, rung.KindOf(err), rung.HintOf(err))
			}
			if d := time.Since(begin); d > limit+brokerGrace+20*time.Second {
				t.Errorf("it took %v", d)
			}
			// The socket's deadlines still hold: it must not have become a blocking one.
			_ = conn.Raw().SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := conn.Receive(&struct{}{}); !os.IsTimeout(err) {
				t.Errorf("after it: %v", err)
			}
		})
	}
}
