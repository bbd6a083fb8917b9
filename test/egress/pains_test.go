//go:build linux

package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere says of the pains of our survey that no case here is named after, where each is tested, or why it cannot be.
var elsewhere = map[int]string{
	7:  "a secret where nobody could replace it is refused before the start: internal/broker/lease, test/secrets",
	13: "a macOS sandbox's: rung's gate has no such path",
	29: "a Kubernetes mesh's",
	36: "the metadata service is NET-01 here, name lookups pain-01; a presigned URL to an allowed host is that host's: docs/egress.md, limits",
	37: "a tunnel of the user's own is a host that nothing names; in mode open it passes: docs/egress.md, limits",
}

// TestPains: every pain of the survey has a case that bears its number, or a reason.
func TestPains(t *testing.T) {
	var text strings.Builder
	files, _ := filepath.Glob("*_test.go") // a constant, well-formed pattern
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(raw)
	}
	for n := 1; n <= 40; n++ {
		if name := fmt.Sprintf("pain-%02d ", n); !strings.Contains(text.String(), name) && elsewhere[n] == "" {
			t.Errorf("no case is named after pain %d, and no reason is given", n)
		}
	}
}
