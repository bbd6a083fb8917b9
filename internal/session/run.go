package session

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/client"
	"github.com/rung-dev/rung/driver"
)

// run is one Task on its way.
type run struct {
	*Runner
	task  Task
	rec   *rung.Record
	inst  driver.Instance
	guest *client.Guest
	files *client.Files
	cap   *capped
	out   bytes.Buffer // kept output, when the task has no writers
	errs  bytes.Buffer

	mu     sync.Mutex
	denied map[string]int // key -> index in rec.Denied; guarded by mu, as rec.Denied is
}

func (r *run) do(ctx context.Context) error {
	begin := time.Now()
	err := r.create(ctx)
	r.rec.Timings.Create = millis(begin)
	if err == nil {
		if r.task.Started != nil {
			r.task.Started(r.rec.Timings.Create)
		}
		err = r.work(ctx)
	}
	if r.inst == nil {
		return err
	}
	if r.guest != nil {
		r.guest.Close()
	}
	ending := time.Now()
	destroyed := r.inst.Destroy(context.WithoutCancel(ctx))
	r.rec.Timings.Destroy = millis(ending)
	r.judge(ctx)
	return errors.Join(err, destroyed)
}

// create gets a sandbox and refuses it unless what is measured inside is what the driver promises.
func (r *run) create(ctx context.Context) error {
	t := r.task
	spec := driver.Spec{
		ID: t.ID, Template: t.Template, Limits: t.Limits, Owned: true,
		// So that a process inside can tell what it is in, where the kernel does not: `rung whereami` believes it downwards.
		Env: []string{"RUNG_SANDBOX=" + string(t.Rung)},
		// A backstop outside the client: its own clock ends the command first.
		WallClock: t.Limits.Timeout + r.Grace + time.Minute,
		Events:    r.event, Link: t.Link, Files: t.Files,
	}
	var err error
	if r.inst, err = r.Driver.Create(ctx, spec); err != nil {
		return err
	}
	if t.Created != nil {
		if err := t.Created(); err != nil {
			return err
		}
	}
	r.guest = client.New(r.inst.Dial)
	r.files = r.guest.Files("")
	if l, ok := r.inst.(driver.Limited); ok {
		r.rec.Limits.Unforced = append(r.rec.Limits.Unforced, l.Unenforced()...)
	}
	return r.verify(ctx, spec)
}

// verifyTimeout bounds the measurement inside.
const verifyTimeout = 15 * time.Second

func (r *run) verify(ctx context.Context, spec driver.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	inside, err := r.measure(ctx)
	if err != nil {
		return rung.Errorf(rung.KindUnverified, "measure the wall from inside: %w", err)
	}
	var host *rung.Isolation
	if i, ok := r.inst.(driver.Inspector); ok {
		if host, err = i.Inspect(ctx); err != nil {
			return rung.Errorf(rung.KindUnverified, "measure the wall from outside: %w", err)
		}
	}
	if r.rec.Isolation, err = r.Merge(inside, host); err != nil {
		return rung.Errorf(rung.KindUnverified, "measure the wall from inside: %w", err)
	}
	if e, ok := r.Driver.(driver.Expecter); ok {
		return e.Expect(spec).Verify(r.rec.Isolation)
	}
	return nil
}

func (r *run) measure(ctx context.Context) (json.RawMessage, error) {
	if m, ok := r.inst.(driver.Measured); ok && m.Measured() != nil {
		return m.Measured(), nil
	}
	return r.guest.Measure(ctx)
}

// event collects what the driver saw.
func (r *run) event(e driver.Event) {
	if e.Denied == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := e.Denied.Syscall
	if i, ok := r.denied[key]; ok {
		r.rec.Denied[i].Count += e.Denied.Count
	} else if len(r.rec.Denied) < maxDenied {
		if r.denied == nil {
			r.denied = map[string]int{}
		}
		r.denied[key] = len(r.rec.Denied)
		r.rec.Denied = append(r.rec.Denied, *e.Denied)
	}
	if r.task.Denied != nil {
		r.task.Denied(*e.Denied)
	}
}

// maxDenied bounds the record; there are fewer watched calls than this.
const maxDenied = 256

// work copies in, runs, copies out.
func (r *run) work(ctx context.Context) error {
	for _, in := range r.task.Inputs {
		if err := r.copyIn(ctx, in); err != nil {
			return err
		}
	}
	begin := time.Now()
	err := r.command(ctx)
	r.rec.Timings.Run = millis(begin)
	if err != nil {
		return err
	}
	if len(r.task.Outputs) == 0 {
		return nil
	}
	return r.copyOut(ctx)
}

// finish puts kept output into the record.
func (r *run) finish() {
	if r.task.Stdout != nil {
		return
	}
	out, errs := r.out.Bytes(), r.errs.Bytes()
	if utf8.Valid(out) && utf8.Valid(errs) {
		r.rec.Stdout, r.rec.Stderr = string(out), string(errs)
		return
	}
	r.rec.Encoding = "base64"
	r.rec.Stdout, r.rec.Stderr = base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errs)
}

// judge corrects the guest's account of the end by what the holder saw.
func (r *run) judge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	end, err := r.inst.Wait(ctx)
	if err != nil {
		return // the holder went without a word; what the client saw stands
	}
	r.rec.OOMKilled = end.OOM
	died := r.rec.ExitReason == rung.Signaled || r.rec.ExitReason == rung.Failed || r.rec.ExitCode == rung.ExitKilled
	if end.OOM && died && r.rec.ExitReason != rung.TimedOut && r.rec.ExitReason != rung.Limit {
		r.rec.ExitReason, r.rec.ExitCode = rung.OOM, rung.ExitKilled
		r.rec.Error = ""
	}
}

// capped counts the output of both streams against one cap and ends the run at the first byte beyond it.
type capped struct {
	mu     sync.Mutex
	left   int64
	over   bool
	broken error // the owner's writer failed
	stop   func()
}

// writer returns a writer to w under the cap. Its errors never reach the guest's stream reader, which must go on draining.
func (c *capped) writer(w io.Writer) io.Writer { return cappedWriter{c, w} }

type cappedWriter struct {
	*capped
	w io.Writer
}

func (c cappedWriter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	if int64(n) > c.left {
		p, c.over = p[:c.left], true
		c.stop()
	}
	c.left -= int64(len(p))
	if c.broken == nil && len(p) > 0 {
		if _, c.broken = c.w.Write(p); c.broken != nil {
			c.stop()
		}
	}
	return n, nil
}
