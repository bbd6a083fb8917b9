package results

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplaceTouchesOnlyItsSection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	for _, step := range []struct{ name, title, body string }{
		{"a", "A", "one"}, {"b", "B", "two"}, {"a", "A", "three\n\n"},
	} {
		if err := Replace(path, step.name, step.title, step.body); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := head + "\n<!-- a -->\n## A\n\nthree\n<!-- end of a -->\n\n<!-- b -->\n## B\n\ntwo\n<!-- end of b -->\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{1, 2}, 1.5}, {[]float64{1, 2, 9}, 2}} {
		if got := Median(c.in); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}
