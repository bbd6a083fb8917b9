package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rung-dev/rung"
)

var today = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const week = 7 * 24 * time.Hour

// shelf is a registry: documents by host and path.
type shelf struct {
	mu    sync.Mutex
	docs  map[string]string
	asked []string
}

func (s *shelf) Fetch(_ context.Context, source Source) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, source.Host+source.Path+" "+source.Accept)
	doc, ok := s.docs[source.Host+source.Path]
	if !ok {
		return nil, errors.New("404 Not Found")
	}
	return io.NopCloser(strings.NewReader(doc)), nil
}

func at(j *Judge) *Judge {
	j.now = func() time.Time { return today }
	return j
}

func settle(j *Judge, path string, s *shelf) Verdict {
	v := j.Request("GET", path, "")
	if !v.Pending || v.Allow {
		return Verdict{Reason: fmt.Sprintf("not pending: %+v", v)}
	}
	return j.Settle(context.Background(), v, s)
}

const packument = `{"name":"odd","readme":"{\"time\":\"\\\\\"}","versions":{"1.0.0":{"time":{"9.9.9":"2020-01-01T00:00:00Z"}}},
"time":{"created":"2020-01-01T00:00:00Z","modified":"2020-01-01T00:00:00Z","1.0.0":"2025-01-01T00:00:00.000Z","1.10.0":"2025-02-01T00:00:00Z",
"1.9.0":"2025-03-01T00:00:00+00:00","2.0.0-rc.1":"2025-04-01T00:00:00Z","2.0.0":"2026-11-29T12:00:00Z","3.0.0":"2031-01-01T00:00:00Z",
"4.0.0":"yesterday","5.0.0":20250101,"unpublished":{"time":"2020-01-01T00:00:00Z"}}}`

func TestAgeNPM(t *testing.T) {
	s := &shelf{docs: map[string]string{
		"registry.example/odd":            packument,
		"registry.example/young":          `{"time":{"1.0.0":"2026-11-30T11:00:00Z"}}`,
		"registry.example/@a%2fb":         `{"time":{"1.0.0":"2026-01-30T11:00:00Z"}}`,
		"registry.example/abbreviated":    `{"name":"abbreviated","modified":"2020-01-01T00:00:00Z","versions":{"1.0.0":{}}}`,
		"registry.example/twice":          `{"time":{"1.0.0":"2026-11-30T11:00:00Z","1.0.0":"2020-01-01T00:00:00Z"}}`,
		"registry.example/twice-time":     `{"time":{"1.0.0":"2020-01-01T00:00:00Z"},"time":{}}`,
		"registry.example/cut":            `{"time":{"1.0.0":"2020-01-01T00:00:00Z"}`,
		"registry.example/tail":           `{"time":{"1.0.0":"2020-01-01T00:00:00Z"}}x`,
		"registry.example/not-utf8":       "{\"time\":{\"1.0.0\xff\":\"2020-01-01T00:00:00Z\",\"1.0.0\":\"2020-01-01T00:00:00Z\"}}",
		"registry.example/list":           `[{"time":{"1.0.0":"2020-01-01T00:00:00Z"}}]`,
		"registry.example/time-is-text":   `{"time":"2020-01-01T00:00:00Z"}`,
		"registry.example/deep":           `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `,"time":{"1.0.0":"2020-01-01T00:00:00Z"}}`,
		"registry.example/long-name":      `{"time":{"` + strings.Repeat("1", 5000) + `":"2020-01-01T00:00:00Z"}}`,
		"registry.example/long-number":    `{"a":` + strings.Repeat("1", 5000) + `}`,
		"registry.example/html":           `<html>`,
		"registry.example/nothing":        ``,
		"registry.example/huge-but-right": `{"readme":"` + strings.Repeat("x", 8<<20) + `","time":{"1.0.0":"2020-01-01T00:00:00Z"}}`,
	}}
	j := at(judge(t, NPM, "", nil, week))
	for path, want := range map[string]string{
		"/odd/-/odd-1.0.0.tgz":                       "ok",
		"/odd/-/odd-2.0.0-rc.1.tgz":                  "ok",
		"/odd/-/odd-2.0.0.tgz":                       "odd@2.0.0 is 24 hours old, and this rule asks for 7 days; the newest version of odd that passes is 1.10.0",
		"/odd/-/odd-3.0.0.tgz":                       "odd@3.0.0 is 0s old, and this rule asks for 7 days; the newest version of odd that passes is 1.10.0",
		"/odd/-/odd-9.9.9.tgz":                       "unknown",
		"/odd/-/odd-4.0.0.tgz":                       "unknown",
		"/odd/-/odd-5.0.0.tgz":                       "unknown",
		"/odd/-/odd-modified.tgz":                    "unknown",
		"/odd/-/odd-created.tgz":                     "unknown",
		"/young/-/young-1.0.0.tgz":                   "young@1.0.0 is 1h0m0s old, and this rule asks for 7 days; no version of young is old enough; a rule for registry.example without min_age",
		"/@a/b/-/b-1.0.0.tgz":                        "ok",
		"/huge-but-right/-/huge-but-right-1.0.0.tgz": "ok",
		"/abbreviated/-/abbreviated-1.0.0.tgz":       "unknown",
		"/twice/-/twice-1.0.0.tgz":                   "unknown",
		"/twice-time/-/twice-time-1.0.0.tgz":         "unknown",
		"/cut/-/cut-1.0.0.tgz":                       "unknown",
		"/tail/-/tail-1.0.0.tgz":                     "unknown",
		"/not-utf8/-/not-utf8-1.0.0.tgz":             "unknown",
		"/list/-/list-1.0.0.tgz":                     "unknown",
		"/time-is-text/-/time-is-text-1.0.0.tgz":     "unknown",
		"/deep/-/deep-1.0.0.tgz":                     "unknown",
		"/long-name/-/long-name-1.0.0.tgz":           "unknown",
		"/long-number/-/long-number-1.0.0.tgz":       "unknown",
		"/html/-/html-1.0.0.tgz":                     "unknown",
		"/nothing/-/nothing-1.0.0.tgz":               "unknown",
		"/absent/-/absent-1.0.0.tgz":                 "unknown",
	} {
		checkSettled(t, path, settle(j, path, s), want)
	}
	if n := len(slices.DeleteFunc(s.asked, func(a string) bool { return !strings.Contains(a, "/odd ") })); n != 1 {
		t.Errorf("odd was asked for %d times", n)
	}
}

func checkSettled(t *testing.T, path string, v Verdict, want string) {
	t.Helper()
	got := v.Reason + "; " + v.Hint
	switch {
	case v.Allow && v.Path != "" && v.Package.Name != "":
		got = "ok"
	case v.Allow || v.Pending || v.Path != "" || v.Package.Name != "":
		got = fmt.Sprintf("neither: %+v", v)
	case strings.HasPrefix(v.Reason, "the age of ") && v.Hint != "":
		got = "unknown"
	}
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s (%s)", path, got, want, v.Reason)
	}
}

func TestAgeGo(t *testing.T) {
	s := &shelf{docs: map[string]string{
		"registry.example/g/example.org/%21x/@v/v1.0.0.info": `{"Version":"v1.0.0","Time":"2025-01-01T00:00:00Z"}`,
		"registry.example/g/example.org/%21x/@v/v1.1.0.info": `{"Version":"v1.1.0","Time":"2025-02-01T00:00:00Z","Origin":{"VCS":"git"}}`,
		"registry.example/g/example.org/%21x/@v/v1.2.0.info": `{"Version":"v1.2.0","Time":"2026-11-29T00:00:00Z"}`,
		"registry.example/g/example.org/%21x/@v/list":        "v1.0.0\nv1.2.0\nv1.1.0\n\n\xff\n",
		"registry.example/g/example.org/%21x/@v/main.info":   `{"Version":"v1.1.0","Time":"2025-02-01T00:00:00Z"}`,
		"registry.example/g/example.org/%21x/@v/v9.0.0.info": `{"Version":"v9.0.0","Version":"v9.0.0","Time":"2025-02-01T00:00:00Z"}`,
	}}
	j := at(judge(t, Go, "/g", nil, week))
	for path, want := range map[string]string{
		"/g/example.org/!x/@v/v1.1.0.zip": "ok",
		"/g/example.org/!x/@v/v1.2.0.zip": "example.org/X@v1.2.0 is 36 hours old, and this rule asks for 7 days; the newest version of example.org/X that passes is v1.1.0",
		"/g/example.org/!x/@v/main.zip":   "unknown",
		"/g/example.org/!x/@v/v9.0.0.zip": "unknown",
		"/g/example.org/!x/@v/v8.0.0.zip": "unknown",
	} {
		checkSettled(t, path, settle(j, path, s), want)
	}
	if v := j.Request("GET", "/g/example.org/!x/@v/v1.2.0.mod", ""); !v.Allow {
		t.Errorf("metadata waits for an age: %+v", v)
	}
}

func TestAgePyPI(t *testing.T) {
	page := `{"meta":{"api-version":"1.1"},"name":"idna","files":[
	{"filename":"idna-3.8.tar.gz","url":"https://files.example/packages/aa/idna-3.8.tar.gz","upload-time":"2024-01-01T00:00:00.123456Z"},
	{"filename":"idna-3.9.tar.gz","url":"https://files.example/packages/bb/idna-3.9.tar.gz","upload-time":"2026-11-30T00:00:00Z","hashes":{"url":"x"}},
	{"filename":"idna-3.7.tar.gz","url":"../../packages/cc/idna-3.7.tar.gz#sha256=00","upload-time":"2024-01-01T00:00:00Z"},
	{"filename":"idna-3.6.tar.gz","url":"https://files.example/packages/dd/idna-3.6.tar.gz"},
	{"filename":"idna-3.5.tar.gz","url":17,"upload-time":{"a":[]}}, {"url":"::","upload-time":"2024-01-01T00:00:00Z"}]}`
	s := &shelf{docs: map[string]string{
		"index.example/simple/idna/":   page,
		"other.example/simple/idna/":   `{"files":[{"url":"https://other.example/packages/idna-4.0.tar.gz","upload-time":"2024-01-01T00:00:00Z"}]}`,
		"index.example/simple/broken/": `{"files":{}}`,
		"index.example/simple/html/":   `<!DOCTYPE html><a href="https://files.example/packages/html-1.0.tar.gz">`,
	}}
	set := NewSet()
	add := func(host, prefix string) *Judge {
		j, err := set.Judge(rung.EgressRule{Host: host, RequireTLS: true, Registry: &rung.Registry{Kind: PyPI, Prefix: prefix, MinAge: week}})
		if err != nil {
			t.Fatal(err)
		}
		return at(j)
	}
	files, index := add("files.example", "/packages"), add("index.example", "/simple")
	add("other.example", "")
	for path, want := range map[string]string{
		"/packages/aa/idna-3.8.tar.gz":        "ok",
		"/packages/bb/idna-3.9.tar.gz":        "idna@3.9 is 12 hours old, and this rule asks for 7 days; the newest version of idna that passes is 3.8",
		"/packages/dd/idna-3.6.tar.gz":        "unknown",
		"/packages/elsewhere/idna-3.8.tar.gz": "unknown", // old by its name, but no page links there
		"/packages/idna-4.0.tar.gz":           "unknown", // another index's file
		"/packages/broken-1.0.tar.gz":         "unknown",
		"/packages/html-1.0.tar.gz":           "unknown",
	} {
		checkSettled(t, path, settle(files, path, s), want)
	}
	checkSettled(t, "relative", settle(index, "/packages/cc/idna-3.7.tar.gz", s), "ok")
	if !slices.Contains(s.asked, "index.example/simple/idna/ application/vnd.pypi.simple.v1+json") {
		t.Errorf("asked: %v", s.asked)
	}
}

// A version that appears while a sandbox runs is found once what is known has become old.
func TestAgeAgain(t *testing.T) {
	s := &shelf{docs: map[string]string{"registry.example/odd": `{"time":{}}`}}
	now := today
	j := judge(t, NPM, "", nil, week)
	j.now = func() time.Time { return now }
	path := "/odd/-/odd-1.0.0.tgz"
	checkSettled(t, "before", settle(j, path, s), "unknown")
	s.docs["registry.example/odd"] = `{"time":{"1.0.0":"2020-01-01T00:00:00Z"}}`
	checkSettled(t, "too early", settle(j, path, s), "unknown")
	now = now.Add(staleAfter)
	checkSettled(t, "after", settle(j, path, s), "ok")
}

func TestAgeTogether(t *testing.T) {
	s := &shelf{docs: map[string]string{"registry.example/odd": packument}}
	j := at(judge(t, NPM, "", nil, week))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if v := settle(j, "/odd/-/odd-1.0.0.tgz", s); !v.Allow {
				t.Error(v.Reason)
			}
		})
	}
	group.Wait()
	if len(s.asked) != 1 {
		t.Errorf("asked %d times", len(s.asked))
	}
}

// Nothing known is kept without end.
func TestForget(t *testing.T) {
	s, all := NewSet(), newFacts()
	for i := range maxFacts {
		all.at[fmt.Sprint(i)] = today
	}
	for i := range 20 {
		_, err := s.lookUp(context.Background(), fmt.Sprint(i), "", today, func(context.Context) (*facts, error) {
			return &facts{at: maps.Clone(all.at)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for _, e := range s.known {
		count += 1 + len(e.facts.at)
	}
	if s.total != count || s.total > maxRemember || len(s.known) != len(s.order) || s.known["19"] == nil {
		t.Errorf("total %d, counted %d, %d known, %d in order", s.total, count, len(s.known), len(s.order))
	}
	if err := all.add("one more", ""); !errors.Is(err, errLarge) {
		t.Error(err)
	}
}

func TestTooLarge(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"readme":"`), &endlessX{})
	if _, err := readNPM(&capped{r: endless, left: 1 << 20}); !errors.Is(err, errLarge) {
		t.Error(err)
	}
}

type endlessX struct{}

func (*endlessX) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte("x"), len(p)))
	return len(p), nil
}

func TestNewest(t *testing.T) {
	order := []string{"0.0.1-rc.1", "1.0.0rc1", "2.0.0-alpha", "2.0.0-rc.2", "2.0.0-rc.10", "0.9", "v1.0.0", "1.0.0.post1", "1.9.0", "1.10.0", "v2.0.0+incompatible", "10.0.0", "10.0.0.1"}
	for i, a := range order {
		for k, b := range order {
			if got := compareVersions(a, b); got != compareInt(i, k) {
				t.Errorf("%s, %s: %d", a, b, got)
			}
		}
	}
}

func compareInt(a, b int) int { return boolean(a > b) - boolean(a < b) }

func TestTee(t *testing.T) {
	j := judge(t, NPM, "", nil, 0)
	file := j.Request("GET", "/odd/-/odd-1.0.0.tgz", "")
	pkg := rung.Package{Registry: NPM, Name: "odd", Version: "1.0.0"}
	digested := pkg
	digested.Digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for name, tt := range map[string]struct {
		verdict Verdict
		status  int
		header  http.Header
		body    io.Reader
		want    []rung.Package
	}{
		"whole":    {file, 200, nil, strings.NewReader("hello"), []rung.Package{digested}},
		"encoded":  {file, 200, http.Header{"Content-Encoding": {"gzip"}}, strings.NewReader("hello"), []rung.Package{pkg}},
		"cut":      {file, 200, nil, io.MultiReader(strings.NewReader("hel"), &failing{}), []rung.Package{pkg}},
		"nothing":  {file, 200, nil, &failing{}, nil},
		"part":     {file, 206, http.Header{"Content-Range": {"bytes 0-4/9"}}, strings.NewReader("hello"), []rung.Package{pkg}},
		"absent":   {file, 404, nil, strings.NewReader("hello"), nil},
		"metadata": {j.Request("GET", "/odd", ""), 200, nil, strings.NewReader("hello"), nil},
		"head":     {j.Request("HEAD", "/odd/-/odd-1.0.0.tgz", ""), 200, nil, strings.NewReader(""), nil},
	} {
		var got []rung.Package
		body := j.Tee(tt.verdict, tt.status, tt.header, io.NopCloser(tt.body), func(p rung.Package) { got = append(got, p) })
		_, _ = io.Copy(io.Discard, body) // a cut body fails here, which is the point
		_, _ = body.Read(make([]byte, 1))
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// FuzzMetadata: no document makes a reader fail otherwise than by an error, and none yields more than it may.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(packument))
	f.Add([]byte(`{"Version":"v1.0.0","Time":"2025-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"files":[{"url":"https://files.example/packages/bb/idna-3.9.tar.gz","upload-time":"2026-11-30T00:00:00Z"}]}`))
	f.Add([]byte("{\"a\":[1,-2.5e+9,true,null,\"\\u00e9\\\"\"],\"time\":{}}"))
	page, err := url.Parse("https://index.example/simple/idna/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		npm, npmErr := readNPM(bytes.NewReader(doc))
		simple, simpleErr := readSimple(bytes.NewReader(doc), page)
		info, infoErr := readInfo(bytes.NewReader(doc))
		for _, got := range []struct {
			facts *facts
			err   error
		}{{npm, npmErr}, {simple, simpleErr}, {info, infoErr}} {
			if got.err == nil && (got.facts == nil || len(got.facts.at) > len(doc)) {
				t.Fatalf("%+v", got)
			}
			if got.err == nil {
				got.facts.newestBefore(today)
			}
		}
		_, _ = readList(bytes.NewReader(doc))
		if npmErr == nil && json.Valid(doc) {
			agree(t, doc, npm)
		}
	})
}

// agree compares with what encoding/json reads from the same document.
func agree(t *testing.T, doc []byte, got *facts) {
	var whole struct{ members map[string]json.RawMessage }
	if json.Unmarshal(doc, &whole.members) != nil {
		t.Fatalf("read %v from what is no object", got.at)
	}
	var times map[string]json.RawMessage
	_ = json.Unmarshal(whole.members["time"], &times) // no object: no times
	want := map[string]time.Time{}
	for version, raw := range times {
		var text string
		if version != "created" && version != "modified" {
			_ = json.Unmarshal(raw, &text)                        // no text is no date
			want[version], _ = time.Parse(time.RFC3339Nano, text) // no date is the zero time
		}
	}
	if d := cmp.Diff(want, got.at); d != "" {
		t.Fatalf("%q: %s", doc, d)
	}
}
