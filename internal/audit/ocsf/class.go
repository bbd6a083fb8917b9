package ocsf

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rung-dev/rung/internal/audit/log"
)

// classify returns a line's class and activity, and the attributes that its class requires.
func classify(s Source, line *log.Line) (class, activity int, event object) {
	switch line.Kind {
	case "net":
		return network(line)
	case "run":
		e := onHost(s, line)
		e["process"] = process(line)
		if code, ok := number(line, "exit_code"); ok {
			e["exit_code"] = code
		}
		return classProcess, processEnd, e
	case "refused", "accepted_lower":
		e := onHost(s, line)
		e["process"] = process(line)
		return classProcess, processLaunch, e
	case "denied":
		e := onHost(s, line)
		name := or(text(line, "syscall"), "unknown")
		e["kernel"] = object{"name": name, "type_id": kernelSyscall, "system_call": name}
		return classKernel, kernelInvoke, e
	case "secret", "agent":
		return classEntity, entityActivity(line), object{
			"entity": object{"name": or(text(line, "name"), or(line.Agent, line.Kind)), "type": line.Kind},
			"actor":  actor(line),
		}
	case log.KindGenesis, log.KindCheckpoint, log.KindTorn, log.KindPruned, log.KindOverflow:
		e := onHost(s, line)
		e["log_name"], e["log_provider"] = "rung", "rung"
		return classEventLog, logActivity(line.Kind), e
	}
	return classBase, activityOther, object{}
}

func logActivity(kind string) int {
	switch kind {
	case log.KindGenesis:
		return logStart
	case log.KindPruned:
		return logDelete
	case log.KindCheckpoint:
		return logArchive
	}
	return logUnspecified
}

// entityActivity of a field "action": 1 create, 2 read, 3 update, 4 delete, by the schema.
func entityActivity(line *log.Line) int {
	switch text(line, "action") {
	case "add", "create":
		return 1
	case "lease", "read":
		return 2
	case "update", "rotate":
		return 3
	case "remove", "revoke", "delete":
		return 4
	}
	return activityOther
}

// network: what was asked for tells the class; both ends are told as far as they are known.
func network(line *log.Line) (class, activity int, event object) {
	event = object{"src_endpoint": object{"uid": or(line.Sandbox, "unknown"), "type_id": deviceVirtual}, "actor": actor(line)}
	host, address := text(line, "host"), text(line, "address")
	dst := object{}
	if host != "" {
		dst["hostname"] = host
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		dst["ip"] = ip.String()
	}
	if port, ok := number(line, "port"); ok {
		dst["port"] = port
	}
	if host != "" || dst["ip"] != nil {
		event["dst_endpoint"] = dst
	}
	switch text(line, "layer") {
	case "dns":
		event["query"] = object{"hostname": or(host, "unknown")}
		if line.Decision == log.Deny {
			event["rcode_id"], event["rcode"] = rcodeNXDomain, "NXDomain"
		}
		return classDNS, dnsQuery, event
	case "http", "registry", "secret":
		if method, path, ok := strings.Cut(text(line, "request"), " "); ok {
			url := object{"path": path, "url_string": path}
			if host != "" {
				url["hostname"], url["url_string"] = host, host+path
			}
			event["http_request"] = object{"http_method": method, "url": url}
			return classHTTP, httpActivity(method), event
		}
	}
	event["connection_info"] = object{"direction_id": 2, "protocol_name": protocol(line)} // 2: outbound
	if line.Decision == log.Deny {
		return classNetwork, networkRefuse, event
	}
	return classNetwork, networkOpen, event
}

func protocol(line *log.Line) string {
	switch layer := text(line, "layer"); layer {
	case "udp", "icmp":
		return layer
	}
	return "tcp"
}

// httpActivity per the schema.
func httpActivity(method string) int {
	for i, m := range []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE", "PATCH"} {
		if m == method {
			return i + 1
		}
	}
	return activityOther
}

// finding is any event that somebody should look at, with its own class told.
func finding(s Source, line *log.Line, class int) (int, int, object) {
	_, _, evidence := classify(s, line)
	id := uid(s, line)
	event := object{
		"finding_info": object{
			"uid": id, "title": message(line), "created_time": line.Time.UnixMilli(),
			"types": []string{line.Kind}, "related_events": []object{{"uid": id, "type_uid": class * 100}},
		},
		"is_alert": true, "resources": []object{{"uid": or(line.Sandbox, "unknown"), "type": "sandbox"}},
	}
	ev := object{}
	for _, name := range []string{"src_endpoint", "dst_endpoint", "query", "connection_info", "actor", "process"} {
		if v, ok := evidence[name]; ok {
			ev[name] = v
		}
	}
	if len(ev) > 0 {
		event["evidences"] = []object{ev}
	}
	return classFinding, findingCreate, event
}

// onHost has what the System Activity category requires.
func onHost(s Source, line *log.Line) object {
	return object{
		"actor":  actor(line),
		"device": object{"hostname": or(s.Host, "unknown"), "type_id": deviceServer},
	}
}

func actor(line *log.Line) object {
	a := object{"app_name": "rung"}
	if line.Sandbox != "" {
		a["app_uid"] = line.Sandbox
	}
	if line.Agent != "" {
		a["user"] = object{"name": line.Agent, "uid": line.Agent, "type_id": 99, "type": "agent"}
	}
	if line.Task != "" {
		a["session"] = object{"uid": line.Task}
	}
	return a
}

// process stands for the sandbox: a process of its own, as the host sees it.
func process(line *log.Line) object {
	p := object{"uid": or(line.Sandbox, "none"), "name": or(text(line, "process"), "sandbox")}
	if name := text(line, "rung"); name != "" {
		p["sandbox"] = name
	}
	return p
}

func text(line *log.Line, name string) string {
	s, _ := line.Fields[name].(string)
	return s
}

func number(line *log.Line, name string) (int64, bool) {
	n, ok := line.Fields[name].(json.Number)
	if !ok {
		return 0, false
	}
	v, err := n.Int64()
	return v, err == nil
}

func number64(n int64) string { return strconv.FormatInt(n, 10) }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
