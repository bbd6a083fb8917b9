package registry

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// errUnlisted says that a registry's metadata was read and has no date for what was asked.
var errUnlisted = errors.New("the registry does not tell its date")

// Settle decides a pending verdict: it asks the registry when the version was published. Whatever goes wrong refuses.
func (j *Judge) Settle(ctx context.Context, v Verdict, f Fetcher) Verdict {
	if !v.Pending {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	at, known, err := j.published(ctx, v.read, f)
	v.Pending = false
	now := j.now()
	spec := v.read.name + "@" + v.read.version
	switch age := now.Sub(at); {
	case err != nil:
		v.Reason = "the age of " + spec + " is unknown (" + quoted(err.Error()) + "), and this rule asks for " + days(j.minAge)
		v.Hint = "a rule for " + j.host + " without min_age"
	case age < j.minAge:
		v.Reason = spec + " is " + days(max(age, 0)) + " old, and this rule asks for " + days(j.minAge)
		v.Hint = j.older(ctx, v.read, known, now.Add(-j.minAge), f)
	default:
		v.Allow = true
		return v
	}
	v.Path, v.Package = "", rung.Package{}
	return v
}

// published returns when a version was, and what else is known about the package.
func (j *Judge) published(ctx context.Context, r read, f Fetcher) (time.Time, *facts, error) {
	switch j.kind {
	case NPM:
		return j.pick(ctx, r.name, r.version, func(ctx context.Context) (*facts, error) {
			path := join(append(j.start(), r.name), false)
			// Not the abbreviated form that npm itself may ask for: that one has no times.
			return get(ctx, f, j.source(path, "application/json"), readNPM)
		})
	case Go:
		return j.pick(ctx, r.name+"@"+r.version, r.version, func(ctx context.Context) (*facts, error) {
			return get(ctx, f, j.goSource(r.name, r.version+".info"), readInfo)
		})
	case PyPI:
		return j.publishedPyPI(ctx, r, f)
	}
	return time.Time{}, nil, errUnlisted
}

func (j *Judge) goSource(name, file string) Source {
	segments := append(j.start(), strings.Split(goEscape(name), "/")...)
	return j.source(join(append(segments, "@v", goEscape(file)), false), "")
}

func (j *Judge) pick(ctx context.Context, key, want string, fetch func(context.Context) (*facts, error)) (time.Time, *facts, error) {
	key = j.kind + " " + j.host + join(j.prefix, true) + " " + key
	known, err := j.set.lookUp(ctx, key, want, j.now(), fetch)
	if err != nil {
		return time.Time{}, nil, err
	}
	at, ok := known.at[want]
	if !ok || at.IsZero() {
		return time.Time{}, known, errUnlisted
	}
	return at, known, nil
}

// publishedPyPI asks the project's page on every index of the set, since files may be on a host of their own. Only a page
// that links to this very file speaks for it.
func (j *Judge) publishedPyPI(ctx context.Context, r read, f Fetcher) (time.Time, *facts, error) {
	segments, _, err := split(r.path)
	if err != nil {
		return time.Time{}, nil, err
	}
	want := fileKey(j.host, segments)
	last := errUnlisted
	for _, page := range j.set.pages(r.name) {
		at, known, err := page.judge.pick(ctx, page.source.Path, want, func(ctx context.Context) (*facts, error) {
			return get(ctx, f, page.source, func(r io.Reader) (*facts, error) { return readSimple(r, page.source.url()) })
		})
		if err == nil {
			return at, known, nil
		}
		if last == errUnlisted { //nolint:errorlint // only whether something better to say was found
			last = err
		}
	}
	return time.Time{}, nil, last
}

type page struct {
	judge  *Judge
	source Source
}

// pages are where a project's page may be, rules that are surely an index first.
func (s *Set) pages(name string) []page {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sure, perhaps []page
	for _, j := range s.judges {
		if j.kind != PyPI || !j.names.allow(name) {
			continue
		}
		for _, index := range j.indexes() {
			source := j.source(join(append(append([]string(nil), index...), name), true), "application/vnd.pypi.simple.v1+json")
			if n := len(index); n > 0 && strings.TrimPrefix(index[n-1], "+") == "simple" {
				sure = append(sure, page{j, source})
			} else {
				perhaps = append(perhaps, page{j, source})
			}
		}
	}
	const most = 8
	all := append(sure, perhaps...)
	return all[:min(len(all), most)]
}

func get(ctx context.Context, f Fetcher, s Source, parse func(io.Reader) (*facts, error)) (*facts, error) {
	body, err := f.Fetch(ctx, s)
	if err != nil {
		return nil, err
	}
	found, err := parse(body)
	return found, errors.Join(err, body.Close())
}

// older names the newest version that would pass, where the registry's metadata tells it.
func (j *Judge) older(ctx context.Context, r read, known *facts, moment time.Time, f Fetcher) string {
	version := known.newestBefore(moment)
	if j.kind == Go {
		version = j.olderGo(ctx, r, moment, f)
	}
	if version == "" {
		return "no version of " + r.name + " is old enough; a rule for " + j.host + " without min_age"
	}
	return "the newest version of " + r.name + " that passes is " + version
}

// olderGo asks for the dates of a module's versions, newest first, a few at most.
func (j *Judge) olderGo(ctx context.Context, r read, moment time.Time, f Fetcher) string {
	body, err := f.Fetch(ctx, j.goSource(r.name, "list"))
	if err != nil {
		return ""
	}
	versions, err := readList(body)
	if errors.Join(err, body.Close()) != nil {
		return ""
	}
	descending(versions)
	for _, version := range versions[:min(len(versions), maxProbes)] {
		at, _, err := j.published(ctx, read{name: r.name, version: version}, f)
		if err == nil && !at.After(moment) {
			return version
		}
	}
	return ""
}

// days says a duration as people do.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return strconv.Itoa(int(d/day)) + " days"
	case d >= 2*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " hours"
	}
	return d.Round(time.Second).String()
}
