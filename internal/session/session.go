// Package session is the life of a sandbox from a decision to a record: it asks a driver for a sandbox, verifies what is
// really enforced before any user code runs, copies inputs in, runs the command, copies declared outputs out, destroys the
// sandbox and says how it ended, as seen from outside. It decides nothing about what is allowed (internal/policy does) and
// knows no driver by name.
package session

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/driver"
)

// Task is one command to run in a sandbox of its own.
type Task struct {
	ID       string
	Rung     rung.Rung
	Threat   rung.Threat
	Accepted string // the exception that let a rung below the threat's list pass, for the record
	Template driver.Template
	Command  []string
	Env      []string // "K=V", for the command
	Limits   rung.Limits
	Link     *driver.Link  // the sandbox's way out; nil = no network
	Files    []driver.File // shown inside
	// Created is called when the sandbox stands, before anything of the task runs in it; its error ends the run. May be nil.
	Created func() error
	Inputs  []Input
	Outputs []Output
	Workdir string    // where relative paths inside start; "" = /work
	Stdin   io.Reader // nil = empty
	// Stdout and Stderr get the command's output as it comes; nil = keep it in the record. A write error ends the run.
	Stdout, Stderr io.Writer
	// Interrupts are the owner's wishes to end: the first asks the command to terminate, the second ends the sandbox.
	Interrupts <-chan struct{}
	// Denied is told of each refused system call as it is seen; may be nil.
	Denied func(rung.Denied)
	// Started is told when the command has started; may be nil.
	Started func(create rung.Millis)
}

// Input is a file or directory to copy into the sandbox before the command starts.
type Input struct {
	Host   string
	Inside string // absolute, or relative to /work
	Data   []byte // the content itself, when Host is empty
	Mode   uint32 // permission bits of Data
}

// Output is a file or directory to copy out of the sandbox after the command has ended.
type Output struct {
	Inside string // absolute, or relative to /work
	Host   string
}

// Merge combines what a user process measured inside with what the host knows; wired by cmd to internal/sys/measure.
type Merge func(inside json.RawMessage, host *rung.Isolation) (*rung.Isolation, error)

// Runner runs tasks. All fields are set by cmd.
type Runner struct {
	Driver driver.Driver
	Info   rung.DriverInfo
	Merge  Merge
	// Grace is how long a command has between a polite request to end and the end of its sandbox.
	Grace time.Duration
	// Drain is how long output may take to arrive after a command was ended from outside.
	Drain time.Duration
}

// DefaultGrace and DefaultDrain are for Runner.
const (
	DefaultGrace = 5 * time.Second
	DefaultDrain = 200 * time.Millisecond
)

// Run runs one task. The record is never nil and tells as much as happened; the error, if not nil, is rung's own: the
// sandbox did not come up as asked, or an input or output could not be copied. When Run returns nothing of the sandbox is
// left, or the error says what is.
func (r *Runner) Run(ctx context.Context, t Task) (*rung.Record, error) {
	rec := newRecord(r, t)
	run := &run{Runner: r, task: t, rec: rec}
	err := run.do(ctx)
	if err != nil && (rec.ExitReason == "" || rec.ExitCode == 0) {
		// Also when the command was fine and an output could not be copied: nobody may take that for success.
		rec.ExitReason, rec.ExitCode = rung.Failed, exitCode(err)
	}
	if err != nil {
		rec.Error = err.Error()
	}
	run.finish()
	return rec, err
}

func newRecord(r *Runner, t Task) *rung.Record {
	rec := &rung.Record{
		ID: t.ID, Rung: t.Rung, Threat: t.Threat, Accepted: t.Accepted, Template: t.Template.Name, Digest: t.Template.Digest,
		Command: t.Command, Driver: r.Info, Started: time.Now().UTC(), Limits: t.Limits, Egress: "none", Denied: []rung.Denied{},
	}
	if s, ok := r.Driver.(driver.Seer); ok {
		rec.Visibility = s.Visibility()
	}
	return rec
}

func millis(since time.Time) rung.Millis { return rung.Millis(time.Since(since).Microseconds()) / 1000 }
