package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// refusal is an answer that rung gives itself.
type refusal struct {
	status int
	code   string // X-Rung-Denied or X-Rung-Error
	rung.NetDenial
	failed bool // upstream failed; nobody refused
}

const notAgain = "Retrying will not help: the policy decides the same way until its owner changes it. Ways around it are refused and recorded too."

// maxShown caps what of a request is repeated in an answer.
const maxShown = 256

// deny tells the client and the sink. The answer says what was refused, why, what would allow it, and that trying again
// is useless: agents take a bare 403 for an outage and look for a way around it.
func (s *server) deny(w http.ResponseWriter, accept string, r refusal) {
	r.Host, r.Port = s.Name, s.Port
	r.Request = shown(r.Request)
	if s.Secrets.Masks(s.Name) { // errors quote what the server sent
		r.Reason = s.Secrets.MaskText(r.Reason)
	}
	if r.Layer == "" {
		r.Layer = "http"
	}
	name := "X-Rung-Denied"
	if r.failed {
		name = "X-Rung-Error"
	} else {
		r.Count, r.First = 1, time.Now()
		s.Sink.Denied(r.NetDenial)
	}
	if w, ok := w.(*writer); ok && w.settle != nil {
		w.settle() // before the answer says whether the connection stays
	}
	h := w.Header()
	clear(h)
	h.Set(name, fieldText(r.code))
	h.Set("Cache-Control", "no-store")
	body := r.text()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if strings.Contains(strings.ToLower(accept), "json") {
		h.Set("Content-Type", "application/json")
		body = r.json()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(r.status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

func (r refusal) text() []byte {
	var b strings.Builder
	if r.failed {
		fmt.Fprintf(&b, "rung could not get an answer for: %s (%s port %d)\nreason: %s\n", r.Request, r.Host, r.Port, r.Reason)
		return []byte(b.String())
	}
	fmt.Fprintf(&b, "rung refused: %s (%s port %d)\nreason: %s\n", r.Request, r.Host, r.Port, r.Reason)
	if r.Rule != "" {
		fmt.Fprintf(&b, "nearest rule: %s\n", r.Rule)
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "what would allow it: %s\n", r.Hint)
	}
	b.WriteString(notAgain + "\n")
	return []byte(b.String())
}

func (r refusal) json() []byte {
	out := map[string]any{
		"request": r.Request, "host": r.Host, "port": r.Port, "reason": r.Reason, "code": r.code, "retry": r.failed,
	}
	if r.failed {
		out["error"] = "upstream failed"
	} else {
		out["error"], out["advice"] = "denied by rung", notAgain
	}
	if r.Rule != "" {
		out["rule"] = r.Rule
	}
	if r.Hint != "" {
		out["hint"] = r.Hint
	}
	b, err := json.Marshal(out)
	if err != nil { // strings, numbers and booleans always encode
		return []byte("{}")
	}
	return append(b, '\n')
}

// shown makes a request printable and short.
func shown(request string) string {
	return fieldText(request[:min(len(request), maxShown)])
}

// fieldText keeps visible ASCII and spaces.
func fieldText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, s[:min(len(s), maxShown)])
}

// refused makes a refusal of an error: 403 and the error's own words.
func refused(code string, request string, err error) refusal {
	return refusal{status: http.StatusForbidden, code: code, NetDenial: rung.NetDenial{
		Request: request, Reason: err.Error(), Hint: rung.HintOf(err),
	}}
}

// stopped is refused for KindRefused, and a failure of rung's own for anything else.
func stopped(code, request, rule string, err error) refusal {
	no := refused(code, request, err)
	no.Rule = rule
	if rung.KindOf(err) != rung.KindRefused {
		no.status, no.failed = http.StatusBadGateway, true
	}
	return no
}
