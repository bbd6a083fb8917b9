package secret

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rung-dev/rung"
)

const watched = "rung-secret-abcdefghijklmnopqrstuvwxyz234567"

func TestWatchedPlaceholder(t *testing.T) {
	s := New()
	defer s.Close()
	for _, hosts := range [][]string{{"s3.example"}, {"sqs.example"}} { // one pair, two services
		if err := s.Watch("AWS", watched, hosts); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		host, header, value, query string
		tls, refused               bool
	}{
		{"s3.example", "Authorization", "AWS4-HMAC-SHA256 Credential=" + watched + "/20260101/x", "", true, false},
		{"sqs.example", "X-Amz-Security-Token", watched, "", true, false},
		{"s3.example", "X", "y", "X-Amz-Credential=" + watched, true, false},
		{"s3.example", "X-Any", watched, "", true, true},
		{"s3.example", "Authorization", watched, "", false, true},
		{"other.example", "Authorization", watched, "", true, true},
		{"other.example", "X", "y", "X-Amz-Credential=" + watched, true, true},
	} {
		p := Parts{Header: http.Header{c.header: {c.value}}, Path: "/", Query: c.query}
		err := s.Request(Target{c.host, c.tls}, &p)
		if IsRefused(err) != c.refused || err != nil && !c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil && (p.Header.Get(c.header) != c.value || p.Query != c.query) {
			t.Errorf("%+v: became %+v", c, p)
		}
	}
	if !s.Holds("x", watched+".a.example") || s.Holds("x", "rung-secret-") {
		t.Error("Holds")
	}
}

func TestHiddenValues(t *testing.T) {
	s := New()
	for i := range 5 {
		for range 2 {
			if err := s.Hide("token", Value(strings.Repeat("v", 10)+string(rune('0'+i))), "a.example"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Hide("token", Value("vvvvvvvvvv4"), "b.example"); err != nil || len(s.tab.entries) != perGroup || !s.Masks("a.example") || !s.Masks("b.example") {
		t.Errorf("%v, %d entries", err, len(s.tab.entries))
	}
	out, err := io.ReadAll(s.Mask(strings.NewReader("1 vvvvvvvvvv1 4 vvvvvvvvvv4.")))
	if err != nil || string(out) != "1 vvvvvvvvvv1 4 ***." {
		t.Errorf("%q, %v", out, err)
	}
	h := http.Header{"Vvvvvvvvvv4": {"x"}, "X": {"vvvvvvvvvv3"}} // as net/http spells names
	if err := s.MaskHeader(h); err != nil || len(h) != 1 || h.Get("X") != "***" {
		t.Errorf("%v, %v", h, err)
	}
	s.Close()
	if _, err := io.ReadAll(s.Mask(strings.NewReader("vvvvvvvvvv4"))); !s.Masks("a.example") || err == nil || s.MaskHeader(h) == nil || s.MaskText("vvvvvvvvvv4") != "" {
		t.Error("an answer that comes after the end passes unmasked")
	}
	if err := s.Hide("token", Value("vvvvvvvvvv5"), "a.example"); rung.KindOf(err) != rung.KindConflict {
		t.Errorf("after the end: %v", err)
	}
}
