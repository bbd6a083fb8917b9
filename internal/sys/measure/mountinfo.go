package measure

import (
	"bytes"
	"strings"
)

// Mount is one line of /proc/<pid>/mountinfo.
type Mount struct {
	Root    string // the directory of the source that is mounted
	Point   string // where
	Options string // per-mount options, comma separated
	Shared  bool   // propagates to a peer group
	Type    string
	Source  string
	Super   string // options of the file system, comma separated
}

// ReadOnly reports whether nothing can be written through this mount.
func (m Mount) ReadOnly() bool { return hasOption(m.Options, "ro") || hasOption(m.Super, "ro") }

// Has reports whether a per-mount option such as nosuid is set.
func (m Mount) Has(option string) bool { return hasOption(m.Options, option) }

func hasOption(list, want string) bool {
	for o := range strings.SplitSeq(list, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// ParseMountInfo reads the text of mountinfo in its order: a later line for the same point lies on top of an earlier one. The
// last line is dropped when the text was cut in it.
func ParseMountInfo(text []byte) ([]Mount, error) {
	var list []Mount
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		// id parent major:minor root point options optional... - type source super
		f := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
		sep := -1
		for i := 6; i < len(f); i++ {
			if f[i] == "-" {
				sep = i
				break
			}
		}
		if sep < 0 || len(f) < sep+3 {
			return nil, malformed("mountinfo", line)
		}
		m := Mount{Root: unescape(f[3]), Point: unescape(f[4]), Options: f[5], Type: f[sep+1], Source: unescape(f[sep+2])}
		if len(f) > sep+3 {
			m.Super = f[sep+3]
		}
		for _, o := range f[6:sep] {
			m.Shared = m.Shared || strings.HasPrefix(o, "shared:")
		}
		list = append(list, m)
	}
	return list, nil
}

// unescape undoes the kernel's octal escapes (\040 for a space); anything else stays as it is.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
