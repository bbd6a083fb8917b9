package secret

import (
	"bytes"
	"slices"

	"github.com/rung-dev/rung"
)

// perGroup is how many values Hide keeps of one group: the ones that answers on their way may still hold.
const perGroup = 3

// Watch looks for the placeholder of a secret that no request carries, since the gate signs with it. On its way to the
// hosts it may stand where clients put what they sign with; anywhere else it is refused.
func (s *Swap) Watch(name, placeholder string, hosts []string) error {
	if name == "" || len(name) > 128 || !rung.IsPlaceholder(placeholder) || len(hosts) == 0 {
		return rung.Errorf(rung.KindInvalid, "the secret %.128q comes without a name, a placeholder or a host", name)
	}
	e := &entry{Binding: Binding{Name: name, Hosts: slices.Clone(hosts)}, placeholder: placeholder, signed: true}
	s.mu.Lock()
	i := slices.IndexFunc(s.tab.entries, func(o *entry) bool { return o.signed && o.Name == name && o.placeholder == placeholder })
	if i >= 0 { // one key pair signs for several services
		entries := slices.Clone(s.tab.entries)
		e.Hosts, e.find = append(e.Hosts, entries[i].Hosts...), entries[i].find
		entries[i] = e
		s.tab = newTable(entries)
	}
	s.mu.Unlock()
	if i >= 0 {
		return nil
	}
	e.find = spellings([]byte(placeholder), placeholder, true)
	return s.add(e)
}

// Hide masks a value in what a host answers that nobody inside has a placeholder for: what the gate itself puts into
// requests. Of one group the newest few are masked; to hide what is hidden already costs little.
func (s *Swap) Hide(group string, v Value, host string) error {
	if len(v) < minValue || len(v) > maxValue {
		return nil // nothing that could be masked, such as the session of a key pair that has none
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return rung.Errorf(rung.KindConflict, "the sandbox's secrets have ended")
	}
	entries := slices.Clone(s.tab.entries)
	same := func(e *entry) bool { return e.group == group && bytes.Equal(e.Value, v) }
	if i := slices.IndexFunc(entries, same); i >= 0 {
		if entries[i].named(host) {
			return nil
		}
		with := *entries[i]
		with.Hosts = append(slices.Clone(with.Hosts), host)
		entries[i] = &with
		s.tab = newTable(entries)
		return nil
	}
	mine := func(e *entry) bool { return e.group == group }
	count := 0
	for _, e := range entries {
		if mine(e) {
			count++
		}
	}
	if count >= perGroup {
		i := slices.IndexFunc(entries, mine)
		entries[i].wipe()
		entries = slices.Delete(entries, i, i+1)
	}
	e := &entry{Binding: Binding{Name: group, Value: slices.Clone(v), Hosts: []string{host}}, group: group}
	e.hide("***")
	s.tab = newTable(append(entries, e))
	return nil
}

// Holds is whether one of the texts has a placeholder in it, in any spelling that is found.
func (s *Swap) Holds(texts ...string) bool {
	if s.Empty() {
		return false
	}
	held := false
	_ = s.with(func(tab *table) error { // a closed Swap finds nothing
		for _, text := range texts {
			_, _, found := tab.find.next([]byte(text), true)
			held = held || found
		}
		return nil
	})
	return held
}

// wipe overwrites what an entry holds of its value.
func (e *entry) wipe() {
	clear(e.Value)
	for _, list := range [][]pattern{e.mask, e.names} {
		(&engine{patterns: list}).wipe()
	}
}
