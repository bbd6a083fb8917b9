package audit

import (
	"maps"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

// Of is the part of an entry that all events of one sandbox share.
type Of struct{ Sandbox, Agent, Task, Call string }

func (o Of) entry(kind string) Entry {
	return Entry{Kind: kind, Sandbox: o.Sandbox, Agent: o.Agent, Task: o.Task, Call: o.Call}
}

// RunEvents are what a finished run leaves in the log: the run, with its record's signature so that the log vouches for the
// record too, and one event per kind of denied call and per cause of a refused or let-through use of the network.
func RunEvents(of Of, rec *rung.Record) []Entry {
	of.Sandbox = rec.ID
	run := of.entry(EventRun)
	run.Decision, run.Reason = log.Allow, rec.Error
	run.Fields = map[string]any{
		"rung": string(rec.Rung), "threat": string(rec.Threat), "template": rec.Template, "egress": rec.Egress,
		"exit_code": rec.ExitCode, "exit_reason": string(rec.ExitReason), "started": rec.Started.UTC().Format(time.RFC3339Nano),
	}
	if rec.Signature != nil {
		run.Fields["record"] = rec.Signature.Value
	}
	list := []Entry{run}
	for i := range rec.Denied {
		d := &rec.Denied[i]
		if d.Network != nil {
			list = append(list, Denial(of, d.Network))
			continue
		}
		e := of.entry(EventDenied)
		e.Decision, e.Severity = log.Deny, log.Low
		e.Fields = map[string]any{
			"syscall": d.Syscall, "args": d.Args, "pid": d.PID, "process": d.Process, "count": d.Count, "first": d.First.UTC().Format(time.RFC3339Nano),
		}
		list = append(list, e)
	}
	if rec.Network != nil {
		for i := range rec.Network.Allowed {
			list = append(list, Allowed(of, &rec.Network.Allowed[i]))
		}
	}
	return list
}

// Refused is the event of a run that the policy refused before anything was made.
func Refused(of Of, threat, pinned string, why error, reasons any) Entry {
	e := of.entry(EventRefused)
	e.Decision, e.Severity, e.Reason = log.Deny, log.Low, why.Error()
	e.Fields = compact(map[string]any{"threat": threat, "pinned": pinned, "reasons": reasons})
	return e
}

// AcceptedLower is the event of an exception: a run on a rung below its threat's list.
func AcceptedLower(of Of, threat, accepted string) Entry {
	e := of.entry(EventAcceptedLower)
	e.Decision, e.Severity, e.Reason = log.Allow, log.Low, "a rung below the threat's list was accepted by name"
	e.Fields = map[string]any{"threat": threat, "accepted": accepted}
	return e
}

// Did is the event of something done to a secret or an agent by name: kind is EventSecret or EventAgent.
func Did(kind, action, name, reason string, fields map[string]any) Entry {
	e := Entry{Kind: kind, Decision: log.Info, Reason: reason, Fields: map[string]any{"action": action, "name": name}}
	if kind == EventAgent {
		e.Agent = name
		e.Severity = log.Medium
	}
	maps.Copy(e.Fields, fields)
	return e
}

// Leased are the events of a lease: one for each secret, and one for each audience that gets tokens of the task's identity.
func Leased(of Of, lease string, secrets, audiences []string) (list []Entry) {
	one := func(name, what string) {
		e := of.entry(EventSecret)
		e.Decision = log.Allow
		e.Fields = map[string]any{"action": "lease", "name": name, "what": what, "lease": lease}
		list = append(list, e)
	}
	for _, name := range secrets {
		one(name, "secret")
	}
	for _, audience := range audiences {
		one(audience, "identity")
	}
	return list
}

// Denial is the event of one refused use of the network.
func Denial(of Of, d *rung.NetDenial) Entry {
	e := of.entry(EventNet)
	e.Decision, e.Severity, e.Rule, e.Reason = log.Deny, log.Low, d.Rule, d.Reason
	if d.Severity == log.High {
		e.Severity = log.High
	}
	e.Fields = compact(map[string]any{
		"layer": d.Layer, "host": d.Host, "address": d.Address, "port": d.Port, "request": d.Request, "hint": d.Hint, "count": d.Count,
	})
	if !d.First.IsZero() {
		e.Fields["first"] = d.First.UTC().Format(time.RFC3339Nano)
	}
	return e
}

// Allowed is the event of one destination that was used.
func Allowed(of Of, a *rung.NetAllowed) Entry {
	e := of.entry(EventNet)
	e.Decision, e.Rule = log.Allow, a.Rule
	e.Fields = compact(map[string]any{
		"layer": "tcp", "host": a.Host, "address": a.Address, "port": a.Port, "address_checked": a.Checked, "count": a.Count,
	})
	return e
}

// compact leaves out what is empty.
func compact(m map[string]any) map[string]any {
	for k, v := range m {
		if v == "" || v == 0 || v == int64(0) {
			delete(m, k)
		}
	}
	return m
}

// maxCall bounds a parent call's id.
const maxCall = 256

// ParseCall returns the id of the call that caused a run: the flag's, else the environment's TRACEPARENT. A flag that is
// not printable ASCII is an error; an environment that is no trace parent is ignored, as W3C Trace Context section 3.2.2
// asks.
func ParseCall(flag, traceparent string) (string, error) {
	if flag == "" {
		if !isTraceparent(traceparent) {
			return "", nil
		}
		return traceparent, nil
	}
	if len(flag) > maxCall {
		return "", rung.Errorf(rung.KindInvalid, "--trace: longer than %d bytes", maxCall)
	}
	for _, c := range []byte(flag) {
		if c <= ' ' || c > '~' {
			return "", rung.Errorf(rung.KindInvalid, "--trace %.64q: not printable ASCII without spaces", flag)
		}
	}
	return flag, nil
}

// isTraceparent checks version 00: 2, 32, 16 and 2 lower-case hex digits with dashes between, and neither id zero.
func isTraceparent(s string) bool {
	part := strings.Split(s, "-")
	if len(s) != 55 || len(part) != 4 || part[0] != "00" || len(part[1]) != 32 || len(part[2]) != 16 {
		return false
	}
	for _, p := range part[1:] {
		if strings.Trim(p, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(part[1], "0") != "" && strings.Trim(part[2], "0") != ""
}
