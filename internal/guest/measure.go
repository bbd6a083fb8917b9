//go:build linux

package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rung-dev/rung/api/wire"
	"github.com/rung-dev/rung/internal/guest/http1"
	"github.com/rung-dev/rung/internal/guest/proc"
)

const (
	measureTimeout = 5 * time.Second
	maxMeasure     = 256 << 10
)

// measurement is what `rung-guest measure` printed, run once at the start, as the user, through the very code that starts
// user processes: it measures what user code will get, not what this program has.
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

// selfPath is where this very program is. Drivers start it under its path inside (argv[0]); the link in /proc leads to the
// mount it was started from, which on rung process is gone and which Landlock therefore refuses.
func selfPath() string {
	if filepath.IsAbs(os.Args[0]) {
		if _, err := os.Stat(os.Args[0]); err == nil {
			return os.Args[0]
		}
	}
	return "/proc/self/exe" // followed in the child
}

func (m *measurement) run(s *server) ([]byte, error) {
	spec := proc.Spec{
		Path: selfPath(), Args: []string{"measure"}, Env: s.environ(s.cfg.User, nil), Dir: "/", User: s.cfg.User,
		Timeout: measureTimeout, Internal: true,
	}
	_, sub, err := s.procs.Start(spec)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	var out [2][]byte
	for !sub.Ended() {
		if i, data := sub.Take(); data != nil {
			if len(out[i])+len(data) > maxMeasure {
				return nil, fmt.Errorf("the measurement is larger than %d bytes", maxMeasure)
			}
			out[i] = append(out[i], data...)
			sub.Advance(i, len(data))
			continue
		}
		sub.Wait(context.Background(), measureTimeout)
	}
	var obj map[string]json.RawMessage
	if err := json.Unmarshal(out[proc.Stdout], &obj); err != nil {
		return nil, fmt.Errorf("the measurement is no JSON object: %q %q", clip(out[proc.Stdout]), clip(out[proc.Stderr]))
	}
	obj["guest_uid"] = wire.Marshal(os.Geteuid())
	if s.confined != nil {
		obj["landlock_abi"] = wire.Marshal(s.confined.LandlockABI)
	}
	return wire.Marshal(obj), nil
}

func clip(b []byte) []byte { return b[:min(len(b), 200)] }

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
