package rule

import (
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/rung-dev/rung"
)

// key is one key that a mapping may have.
type key struct {
	name string
	read func(ast.Node) error
}

// readMap reads a mapping with no other keys than these, each at most once and with a value.
func readMap(n ast.Node, what string, keys []key) error {
	m, err := mapping(n, what)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, v := range m {
		name, err := keyName(v)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		switch {
		case i < 0:
			return nodeError(v.Key, "%s has no key %s", what, quote(name)).WithHint("its keys are " + keyList(keys))
		case seen[name]:
			return nodeError(v.Key, "the key %s is there twice", name)
		case v.Value == nil || v.Value.Type() == ast.NullType:
			return nodeError(v.Key, "%s has no value", name).WithHint("leave the key out, or write [] for a list of nothing")
		}
		seen[name] = true
		if err := keys[i].read(v.Value); err != nil {
			return err
		}
	}
	return nil
}

func mapping(n ast.Node, what string) ([]*ast.MappingValueNode, error) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, nil
	}
	return nil, nodeError(n, "%s is a mapping, not %s", what, kindOf(n))
}

func keyName(v *ast.MappingValueNode) (string, error) {
	if s, ok := v.Key.(*ast.StringNode); ok {
		return s.Value, nil
	}
	return "", nodeError(v.Key, "a key is a word, not %s", kindOf(v.Key))
}

func keyList(keys []key) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// into returns a reader that stores what another has read.
func into[T any](where *T, read func(ast.Node) (T, error)) func(ast.Node) error {
	return func(n ast.Node) (err error) {
		*where, err = read(n)
		return err
	}
}

func readString(n ast.Node) (string, error) {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value, nil
	}
	return "", nodeError(n, "text is expected, not %s", kindOf(n)).WithHint(`quote it: "…"`)
}

func readBool(n ast.Node) (bool, error) {
	if b, ok := n.(*ast.BoolNode); ok {
		switch b.GetToken().Value {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, nodeError(n, "true or false is expected, not %s", kindOf(n))
}

func readInt64(n ast.Node) (int64, error) {
	if _, ok := n.(*ast.IntegerNode); ok {
		text := n.GetToken().Value
		if v, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(v, 10) == text {
			return v, nil
		}
		return 0, nodeError(n, "%s is no whole number in decimal", quote(text))
	}
	return 0, nodeError(n, "a whole number is expected, not %s", kindOf(n))
}

func readInt(n ast.Node) (int, error) {
	v, err := readInt64(n)
	if err == nil && int64(int32(v)) != v {
		return 0, nodeError(n, "%d is too large", v)
	}
	return int(v), err
}

func readFloat(n ast.Node) (float64, error) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		if v, err := strconv.ParseFloat(n.GetToken().Value, 64); err == nil && !strings.ContainsAny(n.GetToken().Value, "xX_pP") {
			return v, nil
		}
	}
	return 0, nodeError(n, "a number is expected, not %s", kindOf(n))
}

func readSize(n ast.Node) (int64, error) {
	if s, ok := n.(*ast.StringNode); ok {
		v, err := parseSize(s.Value)
		if err != nil {
			return 0, nodeError(n, "%w", err)
		}
		return v, nil
	}
	return readInt64(n)
}

// readList reads a list, which is never nil: [] is not the same as no list.
func readList[T any](read func(ast.Node) (T, error)) func(ast.Node) ([]T, error) {
	return func(n ast.Node) ([]T, error) {
		s, ok := n.(*ast.SequenceNode)
		if !ok {
			return nil, nodeError(n, "a list is expected, not %s", kindOf(n)).WithHint("write it in brackets: [ … ]")
		}
		list := make([]T, 0, len(s.Values))
		for _, v := range s.Values {
			if v == nil || v.Type() == ast.NullType {
				return nil, nodeError(n, "the list has an entry without a value")
			}
			x, err := read(v)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		return list, nil
	}
}

func readVersion(n ast.Node) error {
	if v, err := readInt64(n); err != nil || v != 1 {
		return nodeError(n, "this rung reads policies of version 1")
	}
	return nil
}

func readEgress(n ast.Node) (rung.Egress, error) {
	var e rung.Egress
	err := readMap(n, "egress", []key{
		{"mode", into(&e.Mode, readMode)},
		{"rules", into(&e.Rules, readList(readRule))},
		{"budget", into(&e.Budget, readBudget)},
	})
	if err != nil {
		return rung.Egress{}, err
	}
	if len(e.Rules) > MaxRules {
		return rung.Egress{}, nodeError(n, "%d egress rules are too many: at most %d", len(e.Rules), MaxRules)
	}
	if e.Mode == rung.EgressNone && len(e.Rules) > 0 {
		return rung.Egress{}, nodeError(n, "mode none has no network, so that its rules could never hold")
	}
	return e, nil
}

func readMode(n ast.Node) (rung.EgressMode, error) {
	s, err := readString(n)
	if err != nil {
		return "", err
	}
	m, err := rung.ParseEgressMode(s)
	if err != nil {
		return "", nodeError(n, "%w", err)
	}
	return m, nil
}

func readBudget(n ast.Node) (rung.NetBudget, error) {
	var b rung.NetBudget
	err := readMap(n, "a budget", []key{
		{"connections", into(&b.Connections, readInt)},
		{"connections_per_second", into(&b.Rate, readFloat)},
		{"bytes_out", into(&b.BytesOut, readSize)},
		{"bytes_in", into(&b.BytesIn, readSize)},
		{"requests", into(&b.Requests, readInt64)},
		{"lookups", into(&b.Lookups, readInt64)},
	})
	if err != nil {
		return b, err
	}
	if f := checkBudget(b, ""); f != nil {
		return b, nodeError(n, "%w", f.err)
	}
	return b, nil
}

// readRule reads one rule and checks it, so that what is wrong in it is said with its place.
func readRule(n ast.Node) (rung.EgressRule, error) {
	var r rung.EgressRule
	places := map[string]*token.Token{}
	at := func(name string, read func(ast.Node) error) key {
		return key{name, func(v ast.Node) error {
			places[name] = v.GetToken()
			return read(v)
		}}
	}
	strs := readList(readString)
	err := readMap(n, "a rule", []key{
		at("name", into(&r.Name, readString)),
		at("host", into(&r.Host, readString)),
		at("cidr", into(&r.CIDR, readString)),
		at("ports", into(&r.Ports, readList(readInt))),
		at("protocol", into(&r.Protocol, readString)),
		at("require_tls", into(&r.RequireTLS, readBool)),
		at("methods", into(&r.Methods, strs)),
		at("paths", into(&r.Paths, strs)),
		at("websocket", into(&r.WebSocket, readBool)),
		at("approve", into(&r.Approve, readBool)),
		at("secrets", into(&r.Secrets, strs)),
		at("identity", into(&r.Identity, readString)),
		at("limits", into(&r.Limits, readLimits)),
		at("registry", into(&r.Registry, readRegistry)),
	})
	if err != nil {
		return r, err
	}
	r, f := normalWritten(r)
	if f == nil {
		return r, nil
	}
	place := n.GetToken()
	if p := places[f.field]; p != nil {
		place = p
	}
	if f.field == "" {
		return r, tokenError(place, "%w", f.err)
	}
	return r, tokenError(place, "%s: %w", f.field, f.err)
}

// normalWritten takes host: "example.com:8443" apart and refuses what only a file can say: an empty list of ports, which
// would read as nothing but mean the usual ones.
func normalWritten(r rung.EgressRule) (rung.EgressRule, *fault) {
	if r.Ports != nil && len(r.Ports) == 0 {
		return r, faultf("ports", "an empty list would match nothing").hinted("leave ports out for 443 and 80")
	}
	if strings.Contains(r.Host, ":") {
		if r.Ports != nil {
			return r, faultf("host", "it has a port of its own beside ports")
		}
		split, f := splitHost(r, r.Host)
		if f != nil {
			return r, &fault{"host", f.err}
		}
		r = split
	}
	return normal(r)
}

func readLimits(n ast.Node) (*rung.NetBudget, error) {
	b, err := readBudget(n)
	return &b, err
}

// readRegistry reads a kind, or a mapping with one.
func readRegistry(n ast.Node) (*rung.Registry, error) {
	g := &rung.Registry{}
	if s, ok := n.(*ast.StringNode); ok {
		g.Kind = s.Value
		return g, nil
	}
	age := func(n ast.Node) error {
		s, err := readString(n)
		if err != nil {
			return err
		}
		if g.MinAge, err = ParseAge(s); err != nil {
			return nodeError(n, "%w", err)
		}
		return nil
	}
	return g, readMap(n, "a registry", []key{
		{"kind", into(&g.Kind, readString)},
		{"prefix", into(&g.Prefix, readString)},
		{"packages", into(&g.Packages, readList(readString))},
		{"min_age", age},
	})
}
