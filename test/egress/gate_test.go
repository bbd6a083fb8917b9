//go:build linux

package egress

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/control"
	"github.com/rung-dev/rung/test/egress/order"
)

// gateSocket is where gates listen: a pattern.
func (w *theWorld) gateSocket() string { return filepath.Join(w.dir, "run", "gate-*.sock") }

// gate asks the running gate about itself.
func (w *theWorld) gate(t *testing.T) *control.Status {
	t.Helper()
	list, _ := filepath.Glob(w.gateSocket()) // a well-formed pattern
	for _, path := range list {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			continue // an ended one's
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		conn := control.NewConn(c)
		var reply control.Reply
		if err := conn.Send(control.Request{Ping: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Receive(&reply); err != nil || reply.Status == nil {
			t.Fatalf("the gate's status: %+v, %v", reply, err)
		}
		return reply.Status
	}
	t.Fatalf("no gate among %s", list)
	return nil
}

func get(name, op, host string) hostile {
	return hostile{Case: order.Case{Name: name, Op: op, Host: host, Port: 80, Send: []byte("GET /{t} HTTP/1.1\r\nHost: " + host + "\r\n\r\n")}}
}

// TestKilledGate: without the gate nothing passes and nothing opens; the run ends with a word about it, and the next run has
// a gate again.
func TestKilledGate(t *testing.T) {
	w := needWorld(t)
	for _, r := range rungs() {
		t.Run(string(r), func(t *testing.T) {
			b := &batch{name: "killed", args: []string{"--allow", "ok.test"}, allowed: tcp("203.0.113.10:80"), serial: true, cases: []hostile{
				get("until it fails", "once", "ok.test"),
				get("pain-28 an allowed name afterwards", "stream", "ok.test"),
				get("a denied name afterwards", "stream", "{t}.denied.test"),
				dial("an allowed address afterwards", "203.0.113.10", 443, ""),
				dial("pain-28 a denied address afterwards", "203.0.113.66", 80, ""),
				{Case: order.Case{Name: "UDP afterwards", Op: "udp", Host: "203.0.113.66", Port: 53, Send: []byte("{t}")}},
			}}
			w.prepare(t, b)
			x := w.begin(t, r, b, true)
			waitFor(t, bound, "traffic", func() bool { return len(w.stands.heardOf(b.cases[0].Token)) > 0 })
			before := w.gate(t)
			if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			out := x.finish(t)
			if got := out.results["until it fails"].Got; !strings.HasPrefix(got, "failed after") {
				t.Errorf("traffic did not stop: %s", got)
			}
			for _, c := range b.cases[1:] {
				if how := w.crossing(c, out); how != "" {
					t.Errorf("%s: crossed: %s", c.Name, how)
				}
			}
			if list := strangers(out.begun, b.allowed); len(list) > 0 {
				t.Errorf("crossed: began what no rule names: %s", strings.Join(list, ", "))
			}
			if n := out.record.Network; n == nil || !strings.Contains(strings.Join(n.Notes, "; "), "the gate ended") {
				t.Errorf("the record does not say that the gate ended: %+v", n)
			}
			next := &batch{name: "next", args: b.args, cases: []hostile{get("next", "stream", "ok.test")}}
			if out := w.run(t, r, next); w.crossing(next.cases[0], out) == "" {
				t.Errorf("the next run has no network: %+v", out.results)
			}
			if after := w.gate(t); after.PID == before.PID {
				t.Error("the same gate")
			}
		})
	}
}

// TestStoppedGate: a gate that hangs lets nothing through, and goes on as before when it can.
func TestStoppedGate(t *testing.T) {
	w := needWorld(t)
	for _, r := range []rung.Rung{rung.Process, rung.Hardened} {
		t.Run(string(r), func(t *testing.T) {
			b := &batch{name: "stopped", args: []string{"--allow", "ok.test"}, serial: true, cases: []hostile{
				get("until it fails", "once", "ok.test"), get("until it works", "again", "ok.test"),
			}}
			w.prepare(t, b)
			x := w.begin(t, r, b, false)
			waitFor(t, bound, "traffic", func() bool { return len(w.stands.heardOf(b.cases[0].Token)) > 0 })
			pid := w.gate(t).PID
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			resume := func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // gone is as good
			defer resume()
			if got := x.result(t, "until it fails").Got; !strings.HasPrefix(got, "failed after") {
				t.Errorf("a stopped gate lets traffic through: %s", got)
			}
			if parts := w.stands.heardOf(b.cases[1].Token); len(parts) > 0 {
				t.Errorf("crossed: %s", parts)
			}
			resume()
			if got := x.result(t, "until it works"); !strings.Contains(got.Got, "canary") {
				t.Errorf("the gate does not go on: %+v", got)
			}
			x.drain(t)
		})
	}
}

func (x *running) drain(t *testing.T) {
	t.Helper()
	for range x.lines { // until the run ends
	}
	if err := x.cmd.Wait(); err != nil {
		t.Errorf("rung: %v: %s", err, x.stderr.String())
	}
	x.cancel()
}

// TestGateWithoutDescriptors: a gate that may have few descriptors refuses what it cannot open, and goes on.
func TestGateWithoutDescriptors(t *testing.T) {
	w := needWorld(t)
	for _, r := range []rung.Rung{rung.Process, rung.Hardened} {
		t.Run(string(r), func(t *testing.T) {
			runtime, err := os.MkdirTemp(w.dir, "few") // a gate of its own, and a short path
			if err == nil {
				err = os.Chmod(runtime, 0o711)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := &batch{
				name: "starved", files: 48, env: []string{"RUNG_RUNTIME_DIR=" + runtime}, serial: true, allowed: tcp("203.0.113.10:80", "203.0.113.10:5432"),
				args: []string{"--allow", "ok.test", "--allow", "203.0.113.10/32:5432/tcp", "--open-files", "48"},
				cases: []hostile{
					{Case: order.Case{Name: "starved", Op: "many", Host: "203.0.113.10", Port: 5432, Count: 44}},
					get("afterwards", "again", "ok.test"), dial("a denied address afterwards", "203.0.113.66", 80, "tcp: no rule names that address"),
				},
			}
			out := w.run(t, r, b)
			if how := atMost("alive ", 43)(b.cases[0], out.results["starved"]); how != "" {
				t.Errorf("nothing was scarce: %s", how)
			}
			if got := out.results["afterwards"]; !strings.Contains(got.Got, "canary") {
				t.Errorf("the gate does not go on: %+v", got)
			}
			w.judge(t, r, b.cases[2], out)
			if list := strangers(out.begun, b.allowed); len(list) > 0 {
				t.Errorf("crossed: began what no rule names: %s", strings.Join(list, ", "))
			}
		})
	}
}

// TestLeftBehind (pain-38): a process that means to outlive its run, with its network, does not.
func TestLeftBehind(t *testing.T) {
	w := needWorld(t)
	for _, r := range linked() {
		t.Run(string(r), func(t *testing.T) {
			b := &batch{name: "left", args: []string{"--allow", "raw.test:5432/tcp"}, cases: []hostile{
				{Case: order.Case{Name: "pain-38 left behind", Op: "late", Host: "raw.test", Port: 5432}},
			}}
			out := w.run(t, r, b)
			if got := out.results["pain-38 left behind"]; got.Got != "left" {
				t.Fatalf("nothing was left: %+v", got)
			}
			dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline") // a constant, well-formed pattern
			for _, file := range dirs {
				if raw, err := os.ReadFile(file); err == nil && bytes.Contains(raw, []byte(b.cases[0].Token)) {
					t.Errorf("crossed: %s outlives its run: %q", file, raw)
				}
			}
		})
	}
}
