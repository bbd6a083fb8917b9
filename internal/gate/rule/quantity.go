package rule

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rung-dev/rung"
)

// maxAge bounds ages: beyond it nobody means what they write, and nothing overflows.
const maxAge = 100 * 365 * 24 * time.Hour

var timeUnits = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

var sizeUnits = map[string]int64{
	"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// ParseAge reads whole numbers with units: 7d, 1w, 36h, 1d12h. A day has 24 hours.
func ParseAge(text string) (time.Duration, error) {
	var total time.Duration
	rest := text
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		if err != nil || digits == len(rest) {
			return 0, notAge(text)
		}
		unit, known := timeUnits[rest[digits:digits+1]]
		if !known || time.Duration(n) > maxAge/unit {
			return 0, notAge(text)
		}
		if total += time.Duration(n) * unit; total > maxAge {
			return 0, notAge(text)
		}
		rest = rest[digits+1:]
	}
	if text == "" {
		return 0, notAge(text)
	}
	return total, nil
}

func notAge(text string) error {
	return rung.Errorf(rung.KindInvalid, "%s is no age", quote(text)).WithHint("a whole number with s, m, h, d or w: 7d")
}

// parseSize reads a whole number of bytes with an optional unit: 4096, 10MiB, 1GB.
func parseSize(text string) (int64, error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	n, err := strconv.ParseInt(text[:digits], 10, 64)
	unit, known := sizeUnits[strings.TrimPrefix(text[digits:], " ")]
	if digits == len(text) {
		unit, known = 1, true
	}
	if err != nil || !known || n > math.MaxInt64/unit {
		return 0, rung.Errorf(rung.KindInvalid, "%s is no size", quote(text)).
			WithHint("a whole number of bytes, or one with KiB, MiB, GiB, TiB, KB, MB, GB or TB: 10MiB")
	}
	return n * unit, nil
}
