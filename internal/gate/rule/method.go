package rule

import "slices"

// defaultMethods is what a rule without methods lets through: the methods of RFC 9110 section 9 and RFC 5789 that mean the
// same to every server. CONNECT makes a tunnel, TRACE echoes headers with their secrets.
var defaultMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// isMethod reports whether a text is a method as servers know them: an upper-case token of letters, digits and hyphens.
func isMethod(m string) bool {
	const longest = 32
	if m == "" || len(m) > longest || m[0] < 'A' || m[0] > 'Z' {
		return false
	}
	for i := range len(m) {
		if c := m[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func neverMethod(m string) bool { return m == "CONNECT" || m == "TRACE" }

// allows reports whether the rule lets the method through.
func (c *compiled) allows(method string) bool {
	switch {
	case c.rule.Methods != nil:
		return slices.Contains(c.rule.Methods, method)
	case c.rule.Registry != nil:
		return method == "GET" || method == "HEAD"
	default:
		return slices.Contains(defaultMethods, method)
	}
}
