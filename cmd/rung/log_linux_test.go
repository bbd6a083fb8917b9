package main

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	for text, want := range map[string]time.Duration{"90m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0s": 0} {
		var m moment
		if err := m.UnmarshalText([]byte(text)); err != nil || (time.Since(m.Time)-want).Abs() > 2*time.Hour { // a day may have 25 hours
			t.Errorf("%s: %v, %v", text, m, err)
		}
	}
	var m moment
	if err := m.UnmarshalText([]byte("2026-11-30T12:00:00+01:00")); err != nil || !m.Equal(time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("%v, %v", m, err)
	}
	if err := m.UnmarshalText([]byte("2026-11-30")); err != nil || m.Day() != 30 {
		t.Errorf("%v, %v", m, err)
	}
	for _, bad := range []string{"", "-1h", "d", "7", "yesterday", "99999999d", "2026-13-01"} {
		if err := m.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
