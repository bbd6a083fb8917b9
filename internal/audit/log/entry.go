package log

import "github.com/rung-dev/rung"

// Kinds that the log writes itself; nobody else may.
const (
	KindGenesis    = "genesis"    // first line, signed
	KindCheckpoint = "checkpoint" // signed: the line before it and so all before that
	KindTorn       = "torn"       // the log was not as it had been left: see Causes
	KindPruned     = "pruned"     // signed: old segments were removed on request
	KindOverflow   = "overflow"   // more events at once than MaxEntries
)

// Causes of a torn line, in its field "cause".
const (
	CauseCut     = "cut"     // half a line at the end, from a crash or a full disk, was removed
	CauseGarbage = "garbage" // the same of whole lines that no appender writes
	CauseLost    = "lost"    // lines that the head file names are not there: truncated, or lost in a power cut
	CauseChanged = "changed" // the line that the head file names is another one
)

// Decisions.
const (
	Allow = "allow"
	Deny  = "deny"
	Info  = "info" // nothing was decided; the default, and the lowest severity
)

// Severities above Info.
const (
	Low      = "low"
	Medium   = "medium"
	High     = "high"
	Critical = "critical"
)

// Entry is what a caller says about one cause; how often it happened belongs into the field "count".
type Entry struct {
	Kind     string         `json:"kind"`              // lower case, digits, _ . -
	Sandbox  string         `json:"sandbox,omitempty"` // its id
	Agent    string         `json:"agent,omitempty"`
	Task     string         `json:"task,omitempty"`
	Call     string         `json:"call,omitempty"` // the caller's own id of what caused it, see ParseCall
	Rule     string         `json:"rule,omitempty"` // the rule that decided or came nearest
	Decision string         `json:"decision"`       // Allow, Deny or Info
	Severity string         `json:"severity"`       // Info, Low, Medium, High or Critical
	Reason   string         `json:"reason,omitempty"`
	Fields   map[string]any `json:"fields,omitempty"` // strings, numbers, booleans, lists and maps of these
}

const maxKind = 64

func isKind[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxKind
}

// check completes an entry and refuses what only a mistake in the program can make.
func (e *Entry) check() error {
	switch e.Kind {
	case KindGenesis, KindCheckpoint, KindTorn, KindPruned, KindOverflow:
		return rung.Errorf(rung.KindInvalid, "events of kind %s are the log's own", e.Kind)
	}
	if !isKind(e.Kind) {
		return rung.Errorf(rung.KindInvalid, "%.64q is no kind of event", e.Kind)
	}
	if e.Decision == "" {
		e.Decision = Info
	}
	if e.Severity == "" {
		e.Severity = Info
	}
	switch e.Decision {
	case Allow, Deny, Info:
	default:
		return rung.Errorf(rung.KindInvalid, "%.64q is no decision", e.Decision)
	}
	switch e.Severity {
	case Info, Low, Medium, High, Critical:
	default:
		return rung.Errorf(rung.KindInvalid, "%.64q is no severity", e.Severity)
	}
	return nil
}

func (e *Entry) urgent() bool { return e.Severity == High || e.Severity == Critical }

// capped returns copies of at most MaxEntries entries, the urgent ones first when there are more, and how many it left out.
func capped(all []Entry) (list []Entry, left int) {
	if len(all) <= MaxEntries {
		return append([]Entry(nil), all...), 0
	}
	for _, urgent := range []bool{true, false} {
		for i := range all {
			if all[i].urgent() == urgent && len(list) < MaxEntries {
				list = append(list, all[i])
			}
		}
	}
	return list, len(all) - len(list)
}

func overflow(left int) Entry {
	return Entry{
		Kind: KindOverflow, Decision: Info, Severity: Medium, Reason: "more events at once than are kept",
		Fields: map[string]any{"count": left},
	}
}
