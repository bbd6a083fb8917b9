package drivertest

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

func (s *suite) createAnswers(t *testing.T) {
	b := s.create(t)
	conn, err := b.Dial(within(t, bound))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := health(conn); err != nil {
		t.Errorf("Create has returned and the guest does not answer: %v", err)
	}
	h := b.Handle()
	if h.Driver != s.driver.Info().Name || h.ID != b.id || h.Version == 0 {
		t.Errorf("Handle %+v does not name driver %s, sandbox %s and a version", h, s.driver.Info().Name, b.id)
	}
}

func (s *suite) badSpecs(t *testing.T) {
	for name, change := range map[string]func(*driver.Spec){
		"no id":             func(p *driver.Spec) { p.ID = "" },
		"a path as id":      func(p *driver.Spec) { p.ID = "../" + p.ID },
		"capitals in id":    func(p *driver.Spec) { p.ID = "Upper" },
		"a newline in id":   func(p *driver.Spec) { p.ID += "\n" },
		"no limits":         func(p *driver.Spec) { p.Limits = rung.Limits{} },
		"negative memory":   func(p *driver.Spec) { p.Limits.Memory = -1 },
		"zero processes":    func(p *driver.Spec) { p.Limits.PIDs = 0 },
		"too much of a cap": func(p *driver.Spec) { p.Limits.Disk = rung.MaxDisk + 1 },
	} {
		spec := s.spec(t)
		change(&spec)
		s.mustRefuse(t, name, spec, rung.KindInvalid)
	}
}

func (s *suite) missingTemplate(t *testing.T) {
	for name, root := range map[string]string{"none": "", "absent": filepath.Join(t.TempDir(), "absent")} {
		spec := s.spec(t)
		spec.Template = driver.Template{Name: "absent", Root: root}
		s.mustRefuse(t, name, spec, "")
	}
}

// mustRefuse checks that Create fails, with that kind where one is given, and leaves nothing.
func (s *suite) mustRefuse(t *testing.T, name string, spec driver.Spec, kind rung.Kind) {
	t.Helper()
	in, err := s.driver.Create(within(t, bound), spec)
	if err == nil {
		_ = in.Destroy(within(t, bound))
		t.Errorf("%s: Create made a sandbox", name)
		return
	}
	if in != nil {
		t.Errorf("%s: Create returned an instance beside the error %v", name, err)
	}
	if kind != "" && rung.KindOf(err) != kind {
		t.Errorf("%s: %v is of kind %s, not %s", name, err, rung.KindOf(err), kind)
	}
	if rung.ValidName(spec.ID) == nil {
		s.nothingLeft(t, spec.ID)
	}
}

func (s *suite) takenName(t *testing.T) {
	b := s.create(t)
	spec := s.spec(t)
	spec.ID = b.id
	if in, err := s.driver.Create(within(t, bound), spec); err == nil {
		_ = in.Destroy(within(t, bound))
		t.Fatal("Create made a second sandbox of a live one's name")
	} else if k := rung.KindOf(err); k != rung.KindExists && k != rung.KindConflict {
		t.Errorf("%v is of kind %s, not exists", err, k)
	}
	if got := b.sh(t, "echo still here"); got != "still here\n" {
		t.Errorf("the first sandbox suffered: %q", got)
	}
}

// createCancelled cuts Create off at many points of its work.
func (s *suite) createCancelled(t *testing.T) {
	for _, after := range []time.Duration{
		0, 200 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond,
		7 * time.Millisecond, 11 * time.Millisecond, 16 * time.Millisecond, 25 * time.Millisecond, 40 * time.Millisecond,
	} {
		spec := s.spec(t)
		ctx, cancel := context.WithTimeout(context.Background(), after)
		start := time.Now()
		in, err := s.driver.Create(ctx, spec)
		took := time.Since(start)
		cancel()
		if err == nil { // it was faster
			s.destroy(t, newBox(in, spec.ID))
		} else if took > after+10*time.Second {
			t.Errorf("Create returned %v after its context was done: %v", took-after, err)
		}
		s.nothingLeft(t, spec.ID)
	}
}

func (s *suite) dialSeveral(t *testing.T) {
	b := s.create(t)
	ctx := within(t, bound)
	conns := make([]net.Conn, 8)
	for i := range conns {
		c, err := b.Dial(ctx)
		if err != nil {
			t.Fatalf("Dial %d: %v", i, err)
		}
		defer c.Close()
		conns[i] = c
	}
	_ = conns[3].Close() // one client leaves; the others do not notice
	var wait sync.WaitGroup
	for i, c := range conns {
		if i == 3 {
			continue
		}
		wait.Go(func() {
			for range 20 {
				if err := health(c); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func (s *suite) dialAfterCut(t *testing.T) {
	b := s.create(t)
	p := b.start(t, "/bin/sh", "-c", "echo before; read line; echo after $line; exit 7")
	p.waitOutput(t, "before\n")
	p.cut() // the client is gone in the middle of a stream

	again := b.redial(t)
	if !again.lists(t, p.pid) {
		t.Fatal("the process is not there any more")
	}
	q := again.attach(t, p.pid)
	q.input(t, "the cut\n")
	out, code := q.wait(t)
	if want := "before\nafter the cut\n"; out != want {
		t.Errorf("output after the cut is %q, want %q", out, want)
	}
	if code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
}
