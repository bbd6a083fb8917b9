package dns

import (
	"fmt"
	"strings"
	"sync"
)

// wildcards counts the different names that a sandbox looked up below each wildcard.
type wildcards struct {
	mu    sync.Mutex
	names map[string]map[string]bool
}

// admit says why a name below *.suffix is not looked up, or "".
func (w *wildcards) admit(name, suffix string) string {
	part := strings.TrimSuffix(strings.TrimSuffix(name, suffix), ".")
	if len(part) > MaxWildcardPart {
		return fmt.Sprintf("more than %d characters below *.%s, as data smuggled out in names has", MaxWildcardPart, suffix)
	}
	for label := range strings.SplitSeq(part, ".") {
		switch {
		case len(label) > MaxLabel:
			return fmt.Sprintf("a label of more than %d characters below *.%s, as data smuggled out in names has", MaxLabel, suffix)
		case len(label) >= EntropyFrom && entropy(label) > MaxEntropy:
			return fmt.Sprintf("a label below *.%s that looks like data smuggled out in names", suffix)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.names[suffix]
	switch {
	case seen[name]:
		return ""
	case seen == nil && len(w.names) >= MaxWildcards, len(seen) >= MaxWildcardNames:
		return fmt.Sprintf("more than %d different names below *.%s", MaxWildcardNames, suffix)
	case seen == nil:
		seen = map[string]bool{}
		w.names[suffix] = seen
	}
	seen[name] = true
	return ""
}
