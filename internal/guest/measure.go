//go:build linux

package guest

import (
	"os"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/sys/measure"
)

// measurement is what a process like those of user code found out about itself at the start: it measures what user code
// will get, not what this program has.
type measurement struct {
	done chan struct{}
	out  []byte // set before done
	err  error
}

func (m *measurement) start(s *server) {
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		m.out, m.err = m.run(s)
	}()
}

func (m *measurement) run(s *server) ([]byte, error) {
	found, err := s.procs.Witness(s.cfg.User.Credential())
	if err != nil {
		return nil, err
	}
	report := struct {
		measure.Measurement
		GuestUID int `json:"guest_uid"`
		Landlock int `json:"landlock_abi"`
	}{Measurement: found, GuestUID: os.Geteuid()}
	if s.confined != nil {
		report.Landlock = s.confined.LandlockABI
	}
	return wire.Marshal(report), nil
}

func (m *measurement) answer(w *http1.Response, r *http1.Request) {
	select {
	case <-m.done:
	case <-r.Context.Done():
		return
	}
	if m.err != nil {
		e := &wire.Error{Code: wire.Internal, Message: "measure: " + m.err.Error()}
		w.JSON(500, wire.Marshal(e))
		return
	}
	w.JSON(200, m.out)
}
