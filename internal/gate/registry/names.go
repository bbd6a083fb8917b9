package registry

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rung-dev/rung"
)

const (
	maxNames = 10_000 // packages on one rule's list
	maxName  = 214    // npm's limit, the only one that is written down; Go's module paths may be longer
	maxGo    = 255
)

// names is a list of packages: nil for all.
type names struct {
	kind  string
	exact map[string]struct{}
	below []string // "@scope/" and "example.org/x/": everything below
}

func newNames(kind string, list []string) (*names, error) {
	if !slices.Contains(Kinds(), kind) {
		return nil, rung.Errorf(rung.KindInvalid, "unknown registry %q", kind).WithHint("one of: " + strings.Join(Kinds(), ", "))
	}
	if list == nil {
		return nil, nil //nolint:nilnil // no list is a value of its own: all packages
	}
	if len(list) > maxNames {
		return nil, rung.Errorf(rung.KindInvalid, "%d packages on one %s rule; the most is %d", len(list), kind, maxNames)
	}
	n := &names{kind: kind, exact: make(map[string]struct{}, len(list))}
	for _, text := range list {
		name, below := strings.CutSuffix(text, "/*")
		if below && kind != NPM && kind != Go {
			return nil, badName(kind, text)
		}
		if below && kind == NPM {
			if len(name) < 2 || name[0] != '@' || !npmPart(name[1:]) {
				return nil, badName(kind, text)
			}
			n.below = append(n.below, name+"/")
			continue
		}
		name, ok := Normal(kind, name)
		if !ok {
			return nil, badName(kind, text)
		}
		if below {
			n.below = append(n.below, name+"/")
			continue
		}
		n.exact[name] = struct{}{}
	}
	return n, nil
}

func badName(kind, text string) error {
	return rung.Errorf(rung.KindInvalid, "%q is no name of a %s package", quoted(text), kind).
		WithHint("exact names without versions; npm also takes @scope/*, go also takes example.org/path/*")
}

func (n *names) allow(name string) bool {
	if n == nil {
		return true
	}
	if _, ok := n.exact[name]; ok {
		return true
	}
	return slices.ContainsFunc(n.below, func(b string) bool { return strings.HasPrefix(name, b) })
}

// related holds for a module path above or below a listed one. The go command asks for those to find which module has a
// package, takes 404 for "not this one" and anything else for the end of the search.
func (n *names) related(name string) bool {
	for listed := range n.exact {
		if strings.HasPrefix(listed, name+"/") || strings.HasPrefix(name, listed+"/") {
			return true
		}
	}
	return slices.ContainsFunc(n.below, func(b string) bool { return strings.HasPrefix(b, name+"/") })
}

// Normal returns the one form of a package's name in which names are compared, and whether it is a name at all.
func Normal(kind, name string) (string, bool) {
	switch kind {
	case NPM:
		return name, npmName(name)
	case PyPI:
		return pypiName(name)
	case Go:
		return name, goPath(name)
	case Debian:
		return name, debianName(name)
	}
	return "", false
}

// npmName holds for names as the npm registry has them. Old ones have capitals, and case matters: two names that differ only
// in it are two packages.
func npmName(name string) bool {
	if len(name) > maxName {
		return false
	}
	if scoped, ok := strings.CutPrefix(name, "@"); ok {
		scope, base, found := strings.Cut(scoped, "/")
		return found && npmPart(scope) && npmPart(base)
	}
	return npmPart(name)
}

func npmPart(s string) bool {
	return s != "" && s[0] != '.' && s[0] != '-' && only(s, "._~-")
}

var pypiRuns = regexp.MustCompile(`[-_.]+`)

// pypiName normalises as PEP 503 does: lower case, runs of -, _ and . are one dash.
func pypiName(name string) (string, bool) {
	if name == "" || len(name) > maxName || !only(name, "._-") || !letter(name[0]) || !letter(name[len(name)-1]) {
		return "", false
	}
	return strings.ToLower(pypiRuns.ReplaceAllString(name, "-")), true
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' }

// goPath holds for module paths (go.dev/ref/mod#module-path), in their unescaped form.
func goPath(path string) bool {
	if path == "" || len(path) > maxGo {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part[0] == '.' || part[len(part)-1] == '.' || !only(part, "-._~") {
			return false
		}
	}
	return path[0] != '-'
}

// debianName holds for binary and source package names (Debian Policy 5.6.1).
func debianName(name string) bool {
	return len(name) > 1 && len(name) <= maxName && letter(name[0]) && only(name, "+-.") && name == strings.ToLower(name)
}
