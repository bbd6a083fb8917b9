//go:build linux

package guest_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/internal/guest"
	"github.com/rung-dev/rung/internal/guest/ident"
	"github.com/rung-dev/rung/internal/sys/mux"
)

// BenchmarkLife is one guest from its exec to the end of `true` in it, without a wall: what rung-guest itself costs a run.
// Medians, as machines are shared.
func BenchmarkLife(b *testing.B) {
	for _, procs := range []string{"", "1"} {
		b.Run("GOMAXPROCS="+procs, func(b *testing.B) { benchLife(b, procs) })
	}
}

func benchLife(b *testing.B, procs string) {
	cfg := guest.Config{ControlFD: 3, DropCaps: os.Geteuid() == 0, User: ident.User{Name: "tester", UID: os.Geteuid(), GID: os.Getegid(), Home: "/"}}
	if os.Geteuid() == 0 {
		cfg.User.UID, cfg.User.GID = 31000, 31000
	}
	arg, err := json.Marshal(cfg)
	if err != nil {
		b.Fatal(err)
	}
	var health, measured, ran, exited, cpu []time.Duration
	for b.Loop() {
		begin := time.Now()
		lap := func(d *[]time.Duration, err error) {
			if err != nil {
				b.Fatal(err)
			}
			*d = append(*d, time.Since(begin))
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		cmd := exec.Command(program, "serve", string(arg))
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+procs)
		cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		theirs.Close()
		conn, err := net.FileConn(ours)
		if err != nil {
			b.Fatal(err)
		}
		ours.Close()
		s, err := mux.Open(conn)
		if err != nil {
			b.Fatal(err)
		}
		g := client.New(s.Dial)
		lap(&health, g.Health(context.Background()))
		_, err = g.Measure(context.Background())
		lap(&measured, err)
		p, err := g.Start(context.Background(), client.Cmd{Path: "true"})
		if err == nil {
			_, err = p.Wait(io.Discard, io.Discard)
		}
		lap(&ran, err)
		s.Close()
		cmd.Wait()
		lap(&exited, nil)
		cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	for name, d := range map[string][]time.Duration{"health": health, "measured": measured, "ran": ran, "exited": exited, "cpu": cpu} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2])/1e6, "ms-"+name)
	}
}
