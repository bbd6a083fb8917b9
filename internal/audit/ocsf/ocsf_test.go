package ocsf

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rung-dev/rung/internal/audit/log"
)

// required are the attributes that OCSF 1.6.0 requires of every event, and those of each class that this package uses, as
// paths; a path with alternatives needs one of them.
var required = map[int][][]string{
	-1: {
		{"activity_id"},
		{"category_uid"},
		{"class_uid"},
		{"type_uid"},
		{"time"},
		{"severity_id"},
		{"metadata.version"},
		{"metadata.product.name"},
		{"metadata.product.vendor_name"},
	},
	classBase:     {},
	classKernel:   {{"actor.app_name"}, {"device.type_id"}, {"device.hostname"}, {"kernel.name"}, {"kernel.type_id"}},
	classProcess:  {{"actor.app_name"}, {"device.type_id"}, {"device.hostname"}, {"process.pid", "process.uid"}},
	classEventLog: {{"actor.app_name"}, {"device.type_id"}, {"log_name"}},
	classFinding:  {{"finding_info.uid"}, {"finding_info.title"}, {"status_id"}},
	classEntity:   {{"entity.name"}},
	classNetwork:  {{"src_endpoint.uid"}, {"connection_info.direction_id"}},
	classHTTP:     {{"src_endpoint.uid"}, {"http_request.url.url_string"}, {"http_request.http_method"}},
	classDNS:      {{"src_endpoint.uid"}, {"query.hostname"}},
}

// activities are those that each class defines, next to 0 and 99.
var activities = map[int]int{classKernel: 4, classProcess: 5, classEventLog: 10, classFinding: 3, classEntity: 4, classNetwork: 7, classHTTP: 9, classDNS: 6}

func TestEvents(t *testing.T) {
	net := func(layer, decision, severity string, more map[string]any) log.Entry {
		f := map[string]any{"layer": layer, "count": 3}
		maps.Copy(f, more)
		return log.Entry{Kind: "net", Sandbox: "r1", Agent: "a", Task: "t", Call: "c", Rule: "web", Decision: decision, Severity: severity, Reason: "why", Fields: f}
	}
	dst := map[string]any{"host": "x.example", "address": "192.0.2.1", "port": 443}
	for _, c := range []struct {
		entry           log.Entry
		class, activity int
	}{
		{net("dns", log.Deny, "", map[string]any{"host": "x.example"}), classDNS, 1},
		{net("dns", log.Deny, "", nil), classDNS, 1},
		{net("tcp", log.Deny, "", dst), classNetwork, 5},
		{net("tcp", log.Allow, "", dst), classNetwork, 1},
		{net("icmp", log.Deny, "", map[string]any{"address": "\x1b"}), classNetwork, 5},
		{net("http", log.Deny, "", map[string]any{"host": "x", "request": "POST /a"}), classHTTP, 6},
		{net("http", log.Deny, "", map[string]any{"request": "BREW /a"}), classHTTP, 99},
		{net("http", log.Deny, "", nil), classNetwork, 5},
		{net("secret", log.Deny, log.High, map[string]any{"host": "x", "request": "GET /a"}), classFinding, 1},
		{log.Entry{Kind: "run", Sandbox: "r1", Decision: log.Allow, Fields: map[string]any{"exit_code": 3, "rung": "gvisor"}}, classProcess, 2},
		{log.Entry{Kind: "refused", Decision: log.Deny}, classProcess, 1},
		{log.Entry{Kind: "accepted_lower", Decision: log.Allow}, classProcess, 1},
		{log.Entry{Kind: "denied", Decision: log.Deny, Fields: map[string]any{"syscall": "bpf", "process": "p"}}, classKernel, 4},
		{log.Entry{Kind: "denied"}, classKernel, 4},
		{log.Entry{Kind: "secret", Fields: map[string]any{"action": "add", "name": "TOKEN"}}, classEntity, 1},
		{log.Entry{Kind: "secret", Fields: map[string]any{"action": "leak"}, Severity: log.Critical}, classFinding, 1},
		{log.Entry{Kind: "agent", Agent: "a", Fields: map[string]any{"action": "revoke"}}, classEntity, 4},
		{log.Entry{Kind: "something.new"}, classBase, 99},
	} {
		line := roundTrip(t, c.entry)
		checkEvent(t, line, c.class, c.activity)
	}
}

// The log's own lines are exported too.
func TestLogsOwnEvents(t *testing.T) {
	for kind, activity := range map[string]int{
		log.KindGenesis: 6, log.KindCheckpoint: 4, log.KindPruned: 2, log.KindTorn: 99, log.KindOverflow: 99,
	} {
		checkEvent(t, &log.Line{Seq: 1, Time: time.Unix(1, 0).UTC(), Entry: log.Entry{Kind: kind, Decision: log.Info, Severity: log.Info}}, classEventLog, activity)
	}
}

// roundTrip writes an entry to a log and reads it back, so that its fields have the types that export meets.
func roundTrip(t *testing.T, e log.Entry) (read *log.Line) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := log.Open(root, testKey)
	defer l.Close()
	if err := l.Append(e); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Scan(log.Position{}, log.Filter{Kind: e.Kind}, func(line *log.Line, _ []byte) error {
		c := *line
		read = &c
		return nil
	}); err != nil || read == nil {
		t.Fatal(err)
	}
	return read
}

func checkEvent(t *testing.T, line *log.Line, class, activity int) {
	t.Helper()
	text, err := Marshal(Source{Version: "1", Log: "lid"}, line)
	if err != nil {
		t.Fatal(err)
	}
	var e map[string]any
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	if e["class_uid"] != float64(class) || e["activity_id"] != float64(activity) || e["type_uid"] != float64(class*100+activity) || e["category_uid"] != float64(class/1000) {
		t.Errorf("%s: class %v, activity %v, type %v", line.Kind, e["class_uid"], e["activity_id"], e["type_uid"])
	}
	if activity != 99 && activity > activities[class] {
		t.Errorf("class %d has no activity %d", class, activity)
	}
	if activity == 99 && e["activity_name"] == nil {
		t.Errorf("%s: another activity without a name", line.Kind)
	}
	for _, alternatives := range slices.Concat(required[-1], required[class]) {
		if !slices.ContainsFunc(alternatives, func(path string) bool { return has(e, path) }) {
			t.Errorf("%s: class %d lacks %v: %s", line.Kind, class, alternatives, text)
		}
	}
	if line.Decision == log.Deny && class != classBase && class != classEntity && (e["action_id"] != 2.0 || e["disposition_id"] != 2.0) {
		t.Errorf("%s: a denial is told as %v, %v", line.Kind, e["action_id"], e["disposition_id"])
	}
	if n, ok := number(line, "count"); ok && e["count"] != float64(n) {
		t.Errorf("%s: count %v", line.Kind, e["count"])
	}
	if has(e, "metadata.uid") && e["metadata"].(map[string]any)["uid"] != fmt.Sprintf("lid-%d", line.Seq) {
		t.Errorf("%s: %s", line.Kind, text)
	}
}

func has(e map[string]any, path string) bool {
	var v any = e
	for len(path) > 0 {
		name := path
		for i := range path {
			if path[i] == '.' {
				name = path[:i]
				break
			}
		}
		m, ok := v.(map[string]any)
		if !ok {
			return false
		}
		if v, ok = m[name]; !ok || v == nil || v == "" {
			return false
		}
		path = path[min(len(path), len(name)+1):]
	}
	return true
}

func testKey() (ed25519.PrivateKey, error) {
	return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), nil
}
