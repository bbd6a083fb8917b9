package registry

import (
	"io"
	"net/url"
	"strings"
	"time"
)

// maxFacts is how many versions or files of one package are remembered; no real one has as many.
const maxFacts = 50_000

// facts are publication times by key: versions for npm and go, "host/path" of files for pypi. The zero time is unknown.
type facts struct {
	at      map[string]time.Time
	version map[string]string // of a file's key, where the key is not the version
	read    time.Time
}

func newFacts() *facts { return &facts{at: map[string]time.Time{}, version: map[string]string{}} }

// add remembers one fact. Two about one key contradict each other or are a trick: the whole document is refused.
func (f *facts) add(key, text string) error {
	if _, twice := f.at[key]; twice {
		return errJSON
	}
	if len(f.at) >= maxFacts {
		return errLarge
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		at = time.Time{} // a date nobody knows: so is the version's age
	}
	f.at[key] = at
	return nil
}

// readNPM reads the times of a package document: {"time": {"VERSION": "DATE", …}}. The abbreviated form has none.
func readNPM(r io.Reader) (*facts, error) {
	s, f, seen := newScanner(r), newFacts(), false
	err := s.object(func(key string) error {
		if key != "time" {
			return s.skip()
		}
		if seen {
			return errJSON
		}
		seen = true
		return s.object(func(version string) error {
			isText, err := s.isText()
			if err != nil || version == "created" || version == "modified" {
				return firstOf(err, s.skip)
			}
			if !isText { // "unpublished" is an object
				return firstOf(f.add(version, ""), s.skip)
			}
			at, err := s.text()
			if err != nil {
				return err
			}
			return f.add(version, at)
		})
	})
	if err != nil {
		return nil, err
	}
	return f, s.end()
}

func firstOf(err error, otherwise func() error) error {
	if err != nil {
		return err
	}
	return otherwise()
}

// readSimple reads a project page in its JSON form (PEP 691, PEP 700): {"files": [{"url": …, "upload-time": …}]}. Links may
// be relative to the page.
func readSimple(r io.Reader, page *url.URL) (*facts, error) {
	s, f, seen := newScanner(r), newFacts(), false
	err := s.object(func(key string) error {
		if key != "files" {
			return s.skip()
		}
		if seen {
			return errJSON
		}
		seen = true
		return s.array(func() error { return readSimpleFile(s, f, page) })
	})
	if err != nil {
		return nil, err
	}
	return f, s.end()
}

func readSimpleFile(s *scanner, f *facts, page *url.URL) error {
	member, err := s.texts("url", "upload-time")
	if err != nil {
		return err
	}
	link, err := page.Parse(member["url"])
	if err != nil || link.Host == "" {
		return nil //nolint:nilerr // a file nobody can ask for by that link has no age
	}
	segments, slash, err := split(link.EscapedPath())
	if err != nil || slash || len(segments) == 0 {
		return nil //nolint:nilerr // likewise: Request refuses such a path
	}
	key := fileKey(link.Hostname(), segments)
	if _, version, ok := pypiFile(segments[len(segments)-1]); ok {
		f.version[key] = version
	}
	return f.add(key, member["upload-time"])
}

// fileKey names a file wherever its link was written.
func fileKey(host string, segments []string) string {
	return strings.ToLower(host) + join(segments, false)
}

// readInfo reads a module proxy's .info: {"Version": …, "Time": …}. Time is that of the commit, which its author can choose;
// the protocol has no other.
func readInfo(r io.Reader) (*facts, error) {
	s, f := newScanner(r), newFacts()
	member, err := s.texts("Version", "Time")
	if err != nil {
		return nil, err
	}
	if err := f.add(member["Version"], member["Time"]); err != nil {
		return nil, err
	}
	return f, s.end()
}

// readList reads a module proxy's list of versions, one a line.
func readList(r io.Reader) ([]string, error) {
	const most = 1 << 20
	body, err := io.ReadAll(&capped{r: r, left: most})
	if err != nil {
		return nil, err
	}
	var versions []string
	for line := range strings.Lines(string(body)) {
		version, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if goVersion(version) && len(versions) < maxFacts {
			versions = append(versions, version)
		}
	}
	return versions, nil
}
