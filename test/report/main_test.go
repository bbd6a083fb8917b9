package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const pass = `{"Action":"pass","Package":"p","Test":"TestOK"}` + "\n" + `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n"
	for _, c := range []struct {
		name, in string
		bad      bool
		want     []string
	}{
		{"all pass", pass, false, []string{"ok  \tp\t0.1s\n", "no test was skipped", "x: 1 passed, 0 failed, 0 skipped\n"}},
		{"nothing ran", "", true, []string{"x: 0 passed"}},
		{
			"a skip with a reason",
			pass + `{"Action":"output","Package":"p","Test":"TestS","Output":"=== RUN   TestS\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"    a_test.go:3: needs root\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestS"}`,
			false,
			[]string{"p TestS: needs root\n", "1 passed, 0 failed, 1 skipped"},
		},
		{
			"a skip without one",
			pass + `{"Action":"output","Package":"p","Test":"TestS","Output":"    a_test.go:3: \n"}
{"Action":"skip","Package":"p","Test":"TestS"}`,
			true,
			[]string{"without a reason", "p TestS\n", "1 failed"},
		},
		{
			"a failure shows its output",
			pass + `{"Action":"output","Package":"p","Test":"TestF","Output":"    a_test.go:9: got 2\n"}
{"Action":"fail","Package":"p","Test":"TestF"}`,
			true,
			[]string{"FAIL p TestF\n    a_test.go:9: got 2\n", "1 passed, 1 failed"},
		},
		{
			"a package that died shows what had not ended",
			pass + `{"Action":"output","Package":"q","Test":"TestP","Output":"panic: no\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.2s\n"}
{"Action":"fail","Package":"q"}`,
			true,
			[]string{"UNFINISHED q TestP\npanic: no\n", "FAIL\tq\t0.2s\n"},
		},
		{
			"a build that failed",
			pass + `{"Action":"build-output","ImportPath":"q","Output":"x.go:1: no\n"}
{"Action":"build-fail","ImportPath":"q"}`,
			true,
			[]string{"x.go:1: no\n", "q (build)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport("x")
			if err := r.read(strings.NewReader(c.in), &out); err != nil {
				t.Fatal(err)
			}
			r.summary(&out)
			if r.bad() != c.bad {
				t.Errorf("bad() = %v, want %v", r.bad(), c.bad)
			}
			for _, w := range c.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("output lacks %q:\n%s", w, out.String())
				}
			}
		})
	}
}
