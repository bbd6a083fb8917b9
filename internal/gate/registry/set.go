package registry

import (
	"context"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung"
)

const (
	maxJudges   = 64
	maxRemember = 400_000          // facts of all packages together, some tens of megabytes
	staleAfter  = 5 * time.Minute  // a version that is missing from older metadata is looked up again
	settleTime  = 30 * time.Second // for one question, however many answers it takes
	atOnce      = 8                // look-ups
	maxProbes   = 10               // versions of a Go module that are asked for a hint
)

// Source is a document the gate asks a registry for by itself.
type Source struct {
	Host   string
	Port   int
	TLS    bool
	Path   string // spelled for upstream
	Accept string
}

// Fetcher asks a registry. The address is judged as it is for the sandbox's own requests, redirects are not followed, and an
// answer other than 200 is an error.
type Fetcher interface {
	Fetch(ctx context.Context, source Source) (io.ReadCloser, error)
}

// Set is the judges of one sandbox and what they learnt about versions' ages.
type Set struct {
	mu     sync.Mutex
	judges []*Judge
	known  map[string]*entry
	order  []string // of known, oldest first
	total  int      // facts in known
	slots  chan struct{}
}

// entry is what is known about one package. Its own lock makes requests for the same package wait for one look-up.
type entry struct {
	mu    sync.Mutex
	facts *facts
}

// NewSet returns an empty one.
func NewSet() *Set { return &Set{known: map[string]*entry{}, slots: make(chan struct{}, atOnce)} }

func (s *Set) add(j *Judge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.judges) >= maxJudges {
		return rung.Errorf(rung.KindInvalid, "more than %d registry rules", maxJudges)
	}
	s.judges = append(s.judges, j)
	return nil
}

// lookUp returns the facts under a key, by fetch when there are none or when want is missing from old ones.
func (s *Set) lookUp(ctx context.Context, key, want string, now time.Time, fetch func(context.Context) (*facts, error)) (*facts, error) {
	e := s.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.facts != nil {
		if _, known := e.facts.at[want]; known || now.Sub(e.facts.read) < staleAfter {
			return e.facts, nil
		}
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	found, err := fetch(ctx)
	if err != nil {
		return nil, err
	}
	found.read = now
	s.remember(key, e, found)
	return found, nil
}

func (s *Set) entry(key string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[key]
	if e == nil {
		e = &entry{}
		s.known[key] = e
		s.order = append(s.order, key)
		s.total++ // an empty one costs too
		s.shrink(key)
	}
	return e
}

func (s *Set) remember(key string, e *entry, found *facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[key] == e {
		s.total += len(found.at)
		if e.facts != nil {
			s.total -= len(e.facts.at)
		}
	}
	e.facts = found
	s.shrink(key)
}

// shrink forgets the oldest packages but the one in use.
func (s *Set) shrink(keep string) {
	for s.total > maxRemember && len(s.order) > 1 {
		oldest := s.order[0]
		s.order = s.order[1:]
		if oldest == keep {
			s.order = append(s.order, oldest)
			continue
		}
		s.total--
		if e := s.known[oldest]; e.facts != nil {
			s.total -= len(e.facts.at)
		}
		delete(s.known, oldest)
	}
}

// source is a document on this judge's host.
func (j *Judge) source(path, accept string) Source {
	return Source{Host: j.host, Port: j.port, TLS: j.tls, Path: path, Accept: accept}
}

func (s Source) url() *url.URL {
	path, err := url.PathUnescape(s.Path)
	if err != nil {
		path = s.Path
	}
	scheme := "https"
	if !s.TLS {
		scheme = "http"
	}
	return &url.URL{Scheme: scheme, Host: strings.ToLower(s.Host), Path: path, RawPath: s.Path}
}
