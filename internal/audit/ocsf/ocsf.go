// Package ocsf turns lines of the event log into events of the Open Cybersecurity Schema Framework, version 1.6.0, for the
// tools that collect them.
//
//	net (dns)            DNS Activity 4003
//	net (http)           HTTP Activity 4002
//	net (all other)      Network Activity 4001
//	run, refused         Process Activity 1007
//	denied               Kernel Activity 1003
//	secret, agent        Entity Management 3004
//	the log's own        Event Log Activity 1008
//	anything else        Base Event 0
//	severity high or
//	critical, any kind   Detection Finding 2004
//
// What the schema has no attribute for is in "unmapped", and each event names its line by the log's id and number.
package ocsf

import (
	"encoding/json"
	"strings"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

// SchemaVersion is the version of the schema that the events follow.
const SchemaVersion = "1.6.0"

// Source says whose events they are.
type Source struct {
	Version string // of rung
	Host    string // the machine's name
	Log     string // the log's id
}

// Classes, see https://schema.ocsf.io/1.6.0/classes.
const (
	classBase      = 0
	classKernel    = 1003
	classProcess   = 1007
	classEventLog  = 1008
	classFinding   = 2004
	classEntity    = 3004
	classNetwork   = 4001
	classHTTP      = 4002
	classDNS       = 4003
	activityOther  = 99
	statusSuccess  = 1
	statusFailure  = 2
	actionAllowed  = 1
	actionDenied   = 2
	blocked        = 2 // disposition
	allowed        = 1
	deviceServer   = 1
	deviceVirtual  = 6
	kernelSyscall  = 2
	networkOpen    = 1
	networkRefuse  = 5
	dnsQuery       = 1
	rcodeNXDomain  = 3
	processLaunch  = 1
	processEnd     = 2
	kernelInvoke   = 4
	findingCreate  = 1
	logArchive     = 4
	logDelete      = 2
	logStart       = 6
	logUnspecified = 99
)

type object = map[string]any

// Event returns one line's event.
func Event(s Source, line *log.Line) object {
	class, activity, event := classify(s, line)
	if line.Severity == log.High || line.Severity == log.Critical {
		class, activity, event = finding(s, line, class)
	}
	event["activity_id"] = activity
	event["category_uid"] = class / 1000
	event["class_uid"] = class
	event["type_uid"] = class*100 + activity
	event["time"] = line.Time.UnixMilli()
	event["severity_id"] = severity(line.Severity)
	event["message"] = message(line)
	event["metadata"] = metadata(s, line, class)
	event["unmapped"] = line
	if n, ok := number(line, "count"); ok && n > 0 {
		event["count"] = n
	}
	if activity == activityOther {
		event["activity_name"] = line.Kind
	}
	outcome(line, class, event)
	return event
}

// Marshal is Event as one line of JSON.
func Marshal(s Source, line *log.Line) ([]byte, error) {
	text, err := json.Marshal(Event(s, line))
	if err != nil {
		return nil, rung.Errorf(rung.KindInternal, "encode an event: %w", err)
	}
	return text, nil
}

func metadata(s Source, line *log.Line, class int) object {
	m := object{
		"version": SchemaVersion, "product": object{"name": "rung", "vendor_name": "rung", "version": s.Version},
		"uid": uid(s, line), "sequence": line.Seq, "event_code": line.Kind, "log_name": "rung", "log_provider": "rung",
		"original_time": line.Time.Format("2006-01-02T15:04:05.999999999Z07:00"),
	}
	if line.Call != "" {
		m["correlation_uid"] = line.Call
	} else if line.Sandbox != "" {
		m["correlation_uid"] = line.Sandbox
	}
	if class != classBase && class != classEntity {
		m["profiles"] = []string{"security_control"}
	}
	return m
}

// uid names a line among all logs.
func uid(s Source, line *log.Line) string {
	return s.Log + "-" + number64(line.Seq)
}

// outcome adds the security_control profile's attributes and the status.
func outcome(line *log.Line, class int, event object) {
	profiled := class != classBase && class != classEntity
	switch line.Decision {
	case log.Allow:
		if event["status_id"] = statusSuccess; profiled {
			event["action_id"], event["disposition_id"] = actionAllowed, allowed
		}
	case log.Deny:
		if event["status_id"] = statusFailure; profiled {
			event["action_id"], event["disposition_id"] = actionDenied, blocked
		}
		if line.Reason != "" {
			event["status_detail"] = line.Reason
		}
	}
	if class == classFinding { // the status of a finding is about its handling: new
		event["status_id"] = 1
	}
	if profiled && line.Rule != "" {
		event["firewall_rule"] = object{"name": line.Rule}
	}
}

// severity per the schema: 1 informational to 5 critical.
func severity(s string) int {
	switch s {
	case log.Low:
		return 2
	case log.Medium:
		return 3
	case log.High:
		return 4
	case log.Critical:
		return 5
	}
	return 1
}

func message(line *log.Line) string {
	parts := []string{line.Kind}
	if line.Decision != log.Info {
		parts = append(parts, line.Decision)
	}
	for _, name := range []string{"syscall", "request", "host", "address"} {
		if v := text(line, name); v != "" {
			parts = append(parts, v)
		}
	}
	if line.Reason != "" {
		parts = append(parts, line.Reason)
	}
	return strings.Join(parts, ": ")
}
