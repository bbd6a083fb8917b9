package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// compareVersions orders versions well enough for a hint: numbers by value, a pre-release before its release. Nothing is
// allowed or refused by it.
func compareVersions(a, b string) int {
	a, b = strings.TrimPrefix(a, "v"), strings.TrimPrefix(b, "v")
	if c := cmp.Compare(boolean(!preRelease(a)), boolean(!preRelease(b))); c != 0 {
		return c
	}
	as, bs := versionParts(a), versionParts(b)
	for i := range min(len(as), len(bs)) {
		if c := comparePart(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(as), len(bs))
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// preRelease holds for 1.0.0-rc.1 and 1.0rc1, not for Go's +incompatible or a post release.
func preRelease(v string) bool {
	v, _, _ = strings.Cut(v, "+")
	v = strings.Replace(v, ".post", ".", 1)
	return strings.Trim(v, "0123456789.") != ""
}

func versionParts(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == '.' || r == '-' || r == '+' })
}

func comparePart(a, b string) int {
	number := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	switch an, bn := number(a), number(b); {
	case an && bn:
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if c := cmp.Compare(len(a), len(b)); c != 0 {
			return c
		}
	case an != bn:
		return boolean(bn) - boolean(an)
	}
	return cmp.Compare(a, b)
}

// newestBefore names the highest version published before the moment, "" where there is none.
func (f *facts) newestBefore(moment time.Time) string {
	best := ""
	for key, at := range f.at {
		version, ok := f.version[key]
		if !ok {
			version = key
		}
		if at.IsZero() || at.After(moment) || strings.Contains(version, "/") {
			continue
		}
		if best == "" || compareVersions(version, best) > 0 {
			best = version
		}
	}
	return best
}

// descending sorts a list of versions, highest first.
func descending(versions []string) {
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
}
