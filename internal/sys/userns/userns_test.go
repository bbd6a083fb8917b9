package userns

import (
	"testing"

	"github.com/rung-dev/rung"
)

func TestSubIDs(t *testing.T) {
	const text = "root:1:1\nann:100000:65536\nann:200000:70000\n1000:300000:65536\n:5:5\nbad:x:1\nbad:1\nbad:4294967295:2\nbad:1:0\n bob:1:2 \n"
	for _, c := range []struct {
		user, uid string
		want      Range
		ok        bool
	}{
		{"ann", "7", Range{200000, 70000}, true}, // the largest
		{"eve", "1000", Range{300000, 65536}, true},
		{"bob", "8", Range{1, 2}, true},
		{"bad", "9", Range{}, false},
		{"", "", Range{}, false},
		{"nobody", "65534", Range{}, false},
	} {
		if got, ok := subIDs(text, c.user, c.uid); got != c.want || ok != c.ok {
			t.Errorf("subIDs(%q, %q) = %v, %v", c.user, c.uid, got, ok)
		}
	}
}

func FuzzSubIDs(f *testing.F) {
	f.Add("ann:100000:65536\n", "ann", "1")
	f.Fuzz(func(t *testing.T, text, user, uid string) {
		if r, ok := subIDs(text, user, uid); ok != (r.Size > 0) || uint64(r.Base)+uint64(r.Size) > 1<<32-1 {
			t.Errorf("%v, %v", r, ok)
		}
	})
}

func TestMaps(t *testing.T) {
	good := []rung.IDMap{{Inside: 0, Host: 1000, Size: 1}, {Inside: 1, Host: 100000, Size: 65535}}
	if err := checkMaps(good); err != nil {
		t.Error(err)
	}
	if got := mapText(good); got != "0 1000 1\n1 100000 65535\n" {
		t.Errorf("mapText = %q", got)
	}
	for _, bad := range [][]rung.IDMap{nil, make([]rung.IDMap, 341), {{Size: 0}}, {{Host: 1<<32 - 1, Size: 1}}, {{Inside: 1 << 31, Size: 1 << 31}}} {
		if rung.KindOf(checkMaps(bad)) != rung.KindInvalid {
			t.Errorf("checkMaps(%v) passed", bad)
		}
	}
}
